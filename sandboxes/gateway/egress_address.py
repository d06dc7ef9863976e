"""Which addresses a tunnel may be opened to: a listed name counts only with addresses of the public network.

Who answers for a name can point it anywhere (DNS rebinding), so each address is judged here and then connected to as
it was judged, never looked up again. Above: `egress`.
"""

import errno
import ipaddress
import socket
import threading
from typing import Final

import anyio.to_thread

from sandboxes.gateway.egress_list import Destination

LOOKUPS: Final = 4
"""Of one worker at a time: a thread each, and names that nobody answers for take half a minute."""

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv6 that a translator turns into the IPv4 address in its last four bytes (RFC 6052)."""
_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""All that is given out of IPv6 for the public network (IANA); the rest is local, reserved or multicast."""


class NotPublicError(Exception):
    """The name leads, or leads also, to an address that is not of the public network."""


class NameLookups:
    """The lookups of one worker. One that hangs keeps its place until the system gives it up, though nobody waits."""

    def __init__(self) -> None:
        self._places = threading.BoundedSemaphore(LOOKUPS)

    async def addresses_of(self, destination: Destination) -> tuple[str, ...]:
        """The addresses to connect to, judged. Raises `NotPublicError`, and `OSError` for a name that nobody knows."""
        if destination.is_literal:
            return (destination.host,)
        addresses = await anyio.to_thread.run_sync(self._look_up, destination, abandon_on_cancel=True)
        if not all(map(is_public, addresses)):
            raise NotPublicError
        return addresses

    def _look_up(self, destination: Destination) -> tuple[str, ...]:
        if not self._places.acquire(blocking=False):
            raise OSError(errno.EAGAIN, "earlier names are still being looked up")
        try:
            found = socket.getaddrinfo(destination.host, destination.port, type=socket.SOCK_STREAM)
        finally:
            self._places.release()
        return tuple(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


def is_public(text: str) -> bool:
    """Whether `text` is an address of the public network, by itself and by every IPv4 address that it stands for."""
    try:
        address: IpAddress = ipaddress.ip_address(text)
    except ValueError:
        return False
    return all(_is_public(each) for each in (address, *_carried(address)))


def _is_public(address: IpAddress) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast
    is_only_a_cover = address.ipv4_mapped is not None or address in _TRANSLATED  # judged by what it carries
    return is_only_a_cover or (address.is_global and address in _UNICAST)


def _carried(address: IpAddress) -> tuple[ipaddress.IPv4Address, ...]:
    """The IPv4 addresses that an IPv6 address leads to: mapped, translated, or by a tunnel."""
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    carried = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _TRANSLATED:
        carried.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return tuple(each for each in carried if each is not None)
