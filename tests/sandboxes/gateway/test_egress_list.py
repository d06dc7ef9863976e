"""What an entry of `--egress` may be, and where a listed name may lead (threats.md, N)."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxes.gateway.egress_address import is_public
from sandboxes.gateway.egress_list import EgressEntryError, parse_destination, parse_egress, proxy_variables


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("packages.example:443", "packages.example", 443),
        ("Packages.Example:443", "packages.example", 443),
        ("localhost:1", "localhost", 1),
        ("xn--bcher-kva.example:65535", "xn--bcher-kva.example", 65535),
        ("127.0.0.1:8443", "127.0.0.1", 8443),
        ("[::1]:443", "::1", 443),
        ("[2001:DB8:0:0::7]:443", "2001:db8::7", 443),
    ],
)
def test_an_entry_is_one_host_and_one_port(text: str, host: str, port: int) -> None:
    destination = parse_destination(text)

    assert (destination.host, destination.port) == (host, port)


@pytest.mark.parametrize(
    "text",
    [
        "", ":", "packages.example", "packages.example:", ":443", "packages.example:0", "packages.example:65536",
        "packages.example:0443", "packages.example:+443",
        "packages.example:٤٤٣", "packages.example: 443", "packages.example:443\n", " packages.example:443",
        "*.packages.example:443", "*:443", "packages.example:*",
        "packages..example:443", ".packages.example:443", "packages.example.:443", "-packages.example:443",
        "packages-.example:443", "pack_ages.example:443",
        "bücher.example:443", "user@packages.example:443", "https://packages.example:443",
        "packages.example:443/path", "packages.example:443:443",
        "127.1:443", "2130706433:443", "0x7f.0.0.1:443", "0x7f000001:443", "127.0.0.01:443", "256.0.0.1:443",
        "1.2.3.4.5:443", "::1:443", "[::1:443", "[::1%lo]:443", "[127.0.0.1]:443", "[packages.example]:443", "a\0b:443",
        f"{'a' * 64}.org:443", f"{'a.' * 127}aa:443",
    ],
)  # fmt: skip
def test_any_other_spelling_is_refused_with_the_mend(text: str) -> None:
    with pytest.raises(EgressEntryError, match="Write HOST:PORT"):
        parse_destination(text)


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_what_is_accepted_reads_back_as_itself(text: str) -> None:
    try:
        destination = parse_destination(text)
    except EgressEntryError:
        return

    assert parse_destination(str(destination)) == destination
    assert str(destination).isascii()
    assert destination.host == destination.host.lower()


def test_a_list_has_a_limit() -> None:
    with pytest.raises(EgressEntryError, match="at most 64"):
        parse_egress([f"h{number}.example:443" for number in range(65)])


def test_a_container_is_pointed_at_the_gateway_only_where_something_is_listed() -> None:
    assert proxy_variables(()) == {}
    variables = proxy_variables(["packages.example:443"])
    assert variables["HTTPS_PROXY"] == variables["https_proxy"] == "http://127.0.0.1:8080"
    assert variables["NO_PROXY"] == variables["no_proxy"] == "127.0.0.1,localhost"


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8", "2002:808:808::1"]
)
def test_the_public_network_may_be_reached_by_name(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.17.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0",
        "fc00::1", "fec0::1", "ff02::1", "2001:db8::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1",
        "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808", "2002:7f00:1::1", "2002:a00:1::", "::127.0.0.1",
        "no address",
    ],
)  # fmt: skip
def test_what_is_not_public_is_not_reached_by_name(address: str) -> None:
    assert not is_public(address)


@given(st.ip_addresses(v=4))
def test_an_address_in_disguise_is_judged_as_what_it_is(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    mapped = ipaddress.IPv6Address(0xFFFF << 32 | number)
    translated = ipaddress.IPv6Address(int(ipaddress.IPv6Address("64:ff9b::")) | number)

    assert is_public(str(mapped)) == is_public(str(translated)) == is_public(str(address))
