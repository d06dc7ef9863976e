"""Every kind of tampering is named by `verify`, and by a verifier written from contracts.md alone."""

import json
from base64 import b64decode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from shutil import copytree

import anyio
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.audit.audit_log import AuditLog
from bridge.audit.chain import GENESIS, ZEROS, ChainBreakError, Head, follow, seal
from bridge.audit.checkpoints import ANCHORS_FILE, PUBLIC_KEY_FILE, Keyring
from bridge.audit.frames import frame
from bridge.audit.log_file import LOG_FILE
from bridge.audit.stored_form import members_text
from bridge.audit.verify import verify

Lines = list[bytes]
IndependentVerifier = Callable[[bytes], int | None]


def keys_of(log: Path) -> Path:
    return log.parent.parent / "keys"


def resealed(lines: Lines, start: int) -> Lines:
    """`lines` with the hashes from line `start` (0-based) on made right again, as somebody without the key would."""
    head, out = GENESIS, []
    for number, line in enumerate(lines):
        if number >= start:
            record = json.loads(line)
            members = {name: value for name, value in record.items() if name not in ("seq", "at", "prev", "hash")}
            line = seal(head, record["at"], members_text(members))[0]
        head = Head(number + 1, json.loads(line)["hash"])
        out.append(line)
    return out


def test_an_untouched_log_is_intact_and_anchored_to_its_end(written: Path, independent: IndependentVerifier) -> None:
    outcome = verify(written, keys_of(written))
    assert outcome.intact
    assert (outcome.records, outcome.anchored, outcome.unanchored) == (41, 41, 0)
    assert independent(written.read_bytes()) is None


def swapped(lines: Lines) -> Lines:
    return [*lines[:4], lines[5], lines[4], *lines[6:]]


def inserted(lines: Lines) -> Lines:
    return [*lines[:5], lines[4], *lines[5:]]


def deleted(lines: Lines) -> Lines:
    return [*lines[:4], *lines[5:]]


def first_deleted(lines: Lines) -> Lines:
    return lines[1:]


def spliced(lines: Lines) -> Lines:
    return [*lines[:4], *lines[20:]]


def joined(lines: Lines) -> Lines:
    return [*lines[:4], lines[4].rstrip(b"\n"), *lines[5:]]


def broken_in_two(lines: Lines) -> Lines:
    return [*lines[:4], lines[4][:50] + b"\n" + lines[4][50:], *lines[5:]]


def emptied(lines: Lines) -> Lines:
    return [*lines[:4], b"\n", *lines[4:]]


def payload_changed(lines: Lines) -> Lines:
    return [*lines[:4], lines[4].replace(b"claude-aaaaaa", b"claude-bbbbbb"), *lines[5:]]


def hash_made_right_but_not_the_next(lines: Lines) -> Lines:
    return [*lines[:4], resealed(payload_changed(lines), 4)[4], *lines[5:]]


@pytest.mark.parametrize(
    ("change", "first_bad"),
    [
        (swapped, 5),
        (inserted, 6),
        (deleted, 5),
        (first_deleted, 1),
        (spliced, 5),
        (joined, 5),
        (broken_in_two, 5),
        (emptied, 5),
        (payload_changed, 5),
        (hash_made_right_but_not_the_next, 6),
    ],
)
def test_a_log_that_was_changed_is_broken_at_its_first_bad_record(
    written: Path, independent: IndependentVerifier, change: Callable[[Lines], Lines], first_bad: int
) -> None:
    written.write_bytes(b"".join(change(written.read_bytes().splitlines(keepends=True))))
    outcome = verify(written, keys_of(written))
    assert outcome.first_bad is not None
    assert outcome.first_bad.seq == first_bad
    assert outcome.records == first_bad - 1
    assert independent(written.read_bytes()) == first_bad


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_is_found_at_its_record(
    written: Path, independent: IndependentVerifier, place: float, bit: int
) -> None:
    original = written.read_bytes()
    offset = int(place * len(original))
    flipped = bytearray(original)
    flipped[offset] ^= 1 << bit
    copy = written.with_name("flipped.jsonl")
    copy.write_bytes(flipped)
    outcome = verify(copy, keys_of(written))
    assert outcome.first_bad is not None
    assert outcome.first_bad.seq == original[:offset].count(b"\n") + 1
    if offset < len(original) - 1:  # the last newline makes the last line an unfinished one for a plain reader
        assert independent(bytes(flipped)) == outcome.first_bad.seq


@pytest.mark.parametrize("kept", [0, 1, 30, 40])
def test_a_cut_tail_is_detected_against_the_anchor(written: Path, independent: IndependentVerifier, kept: int) -> None:
    written.write_bytes(b"".join(written.read_bytes().splitlines(keepends=True)[:kept]))
    outcome = verify(written, keys_of(written))
    assert outcome.first_bad is not None
    assert outcome.first_bad.seq == kept + 1
    assert "cut" in outcome.first_bad.what
    assert independent(written.read_bytes()) is None, "the chain alone cannot know"


def test_a_removed_log_is_detected_against_the_anchor(written: Path) -> None:
    written.unlink()
    assert not verify(written, keys_of(written)).intact


def test_a_cut_tail_stays_visible_after_the_log_was_written_on(written: Path) -> None:
    written.write_bytes(b"".join(written.read_bytes().splitlines(keepends=True)[:30]))
    anyio.run(append_fifty, written.parent)
    outcome = verify(written, keys_of(written))
    assert outcome.first_bad is not None
    assert outcome.first_bad.seq == 41
    assert b"the log ended at record 30, its anchor at 41" in written.read_bytes()


async def append_fifty(folder: Path) -> None:
    async with AuditLog.open(folder) as log:
        for _ in range(50):
            await log.append("gate", {"worker": "w"})


def test_rewriting_without_the_key_fails(written: Path, independent: IndependentVerifier) -> None:
    lines = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"".join(resealed(payload_changed(lines), 4)))
    assert independent(written.read_bytes()) is None, "every hash is right again"
    outcome = verify(written, keys_of(written))
    assert outcome.first_bad is not None
    assert outcome.first_bad.seq == 41
    assert "checkpoint" in outcome.first_bad.what


def test_rewriting_without_the_key_and_without_the_checkpoint_fails(written: Path) -> None:
    lines = written.read_bytes().splitlines(keepends=True)
    forged = resealed([*payload_changed(lines)[:-1], lines[3]], 4)
    written.write_bytes(b"".join(forged))
    outcome = verify(written, keys_of(written))
    assert outcome.first_bad is not None
    assert "anchor" in outcome.first_bad.what


def test_a_checkpoint_of_another_key_is_refused(written: Path, tmp_path: Path) -> None:
    lines = written.read_bytes().splitlines(keepends=True)[:-1]
    head = Head(40, json.loads(lines[-1])["hash"])
    other = Keyring.open(tmp_path / "other")
    members = members_text({"kind": "checkpoint"} | frame("checkpoint", other.sign(head)))
    written.write_bytes(b"".join([*lines, seal(head, "2026-11-30T18:40:12.031Z", members)[0]]))
    outcome = verify(written, keys_of(written))
    assert outcome.first_bad is not None
    assert "another key" in outcome.first_bad.what


@pytest.mark.parametrize(
    ("member", "forged"),
    [("count", 39), ("head", "0" * 64), ("signature", "AAAA"), ("signature", "not base64"), ("signature", None)],
)
def test_a_forged_member_of_a_checkpoint_is_refused(written: Path, member: str, forged: str | int | None) -> None:
    (keys_of(written) / ANCHORS_FILE).unlink()
    lines = written.read_bytes().splitlines(keepends=True)
    record = json.loads(lines[-1])
    members = {name: value for name, value in record.items() if name not in ("seq", "at", "prev", "hash")}
    line = seal(Head(40, record["prev"]), record["at"], members_text(members | {member: forged}))[0]
    written.write_bytes(b"".join([*lines[:-1], line]))
    outcome = verify(written, keys_of(written))
    assert outcome.first_bad is not None
    assert outcome.first_bad.seq == 41
    assert "checkpoint" in outcome.first_bad.what


def test_the_checkpoint_is_signed_as_the_documentation_says(written: Path) -> None:
    lines = written.read_bytes().splitlines()
    checkpoint = json.loads(lines[-1])
    key = load_pem_public_key((keys_of(written) / PUBLIC_KEY_FILE).read_bytes())
    assert isinstance(key, Ed25519PublicKey)
    assert (checkpoint["count"], checkpoint["head"]) == (40, json.loads(lines[-2])["hash"])
    signed = f"mxs audit checkpoint 1\n{checkpoint['count']}\n{checkpoint['head']}\n"
    key.verify(b64decode(checkpoint["signature"]), signed.encode())


def test_without_anchors_records_after_the_last_checkpoint_are_unanchored(written: Path) -> None:
    (keys_of(written) / ANCHORS_FILE).unlink()
    outcome = verify(written, keys_of(written))
    assert (outcome.anchored, outcome.unanchored) == (40, 1)


def test_without_a_public_key_the_chain_alone_is_checked(written: Path) -> None:
    (keys_of(written) / PUBLIC_KEY_FILE).unlink()
    outcome = verify(written, keys_of(written))
    assert outcome.intact
    assert (outcome.key_known, outcome.anchored) == (False, 0)


def test_forged_and_torn_anchors_say_nothing(written: Path) -> None:
    with (keys_of(written) / ANCHORS_FILE).open("ab") as anchors:
        anchors.write(b'{"count":99,"head":"00","keyId":"x","signature":"AAAA"}\n{"count":7')
    assert verify(written, keys_of(written)).intact


def test_an_unfinished_last_line_is_left_alone_but_bytes_after_a_record_are_not(written: Path) -> None:
    lines = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"".join(lines) + b'{"seq":42,"at":"2026')
    outcome = verify(written, keys_of(written))
    assert outcome.intact
    assert outcome.unfinished_bytes == 20
    written.write_bytes(b"".join(lines)[:-1] + b"\r")
    assert not verify(written, keys_of(written)).intact


async def test_a_log_is_intact_at_every_moment_while_it_is_written(folder: Path) -> None:
    async with AuditLog.open(folder) as log:
        for number in range(40):
            appended = await log.append("gate", {"worker": f"w{number}"}, durable=number % 2 == 0)
            outcome = verify(folder / LOG_FILE, folder.parent / "keys")
            assert outcome.intact
            assert outcome.records == appended.seq


def test_a_copy_with_its_keys_verifies_elsewhere(written: Path, tmp_path: Path) -> None:
    copytree(written.parent.parent / "keys", tmp_path / "elsewhere" / "keys")
    copy = tmp_path / "elsewhere" / "export.jsonl"
    copy.write_bytes(written.read_bytes())
    assert verify(copy, tmp_path / "elsewhere" / "keys").intact


def spelled(members: str, claimed: str | None = None) -> bytes:
    """A line of its own spelling, with the right hash unless another is claimed."""
    covered = ("{" + members).encode("utf-8")
    return covered + f',"hash":"{claimed or sha256(covered).hexdigest()}"}}'.encode()


@pytest.mark.parametrize(
    "members",
    [
        f'"seq":1,"prev":"{ZEROS}","kind":"gate"',
        f'"kind":"gate","seq":1,"prev":"{ZEROS}"',
        f'"seq":1,"at":"x","payload":{{"a":1,"hash":"y"}},"prev":"{ZEROS}"',
    ],
)
def test_a_record_in_another_order_of_fields_follows_too(members: str, independent: IndependentVerifier) -> None:
    line = spelled(members)
    assert follow(GENESIS, line).seq == 1
    assert independent(line + b"\n") is None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"[" * 100_000,
        spelled(f'"seq":2,"at":"x","prev":"{ZEROS}"'),
        spelled(f'"seq":true,"at":"x","prev":"{ZEROS}"'),
        spelled(f'"seq":1.0,"at":"x","prev":"{ZEROS}"'),
        spelled(f'"seq":1,"at":"x","prev":"{"1" * 64}"'),
        spelled('"seq":1,"at":"x"'),
        spelled(f'"seq":1,"seq":1,"prev":"{ZEROS}"'),
        spelled(f'"seq":1,"at":"é","prev":"{ZEROS}"'),
        spelled(f'"seq":1,"at":"x","prev":"{ZEROS}"', claimed="0" * 64),
        spelled(f'"seq":1,"at":"x","prev":"{ZEROS}"')[:-1] + b',"more":1}',
        spelled(f'"seq":1,"at":"x","prev":"{ZEROS}"') + b" ",
        spelled(f'"seq":1,"at":"x","prev":"{ZEROS}"').replace(b'"}', b'" }'),
    ],
)
def test_a_line_that_is_no_next_record_breaks_the_chain(line: bytes) -> None:
    with pytest.raises(ChainBreakError):
        follow(GENESIS, line)


TEXT = st.text(max_size=12)


@settings(max_examples=100)
@given(values=st.lists(st.dictionaries(TEXT, TEXT | st.integers() | st.none(), max_size=3), max_size=4))
def test_whatever_is_sealed_follows_and_is_one_ascii_line_of_json(values: list[dict[str, str | int | None]]) -> None:
    head = GENESIS
    for value in values:
        line, after = seal(head, "2026-11-30T18:40:12.031Z", members_text({"kind": "gate", "payload": dict(value)}))
        assert line.isascii()
        assert line.count(b"\n") == 1
        assert line.endswith(b"\n")
        assert not any(byte < 0x20 or byte == 0x7F for byte in line[:-1])
        assert follow(head, line[:-1]) == after
        assert json.loads(line)["hash"] == sha256(line[: line.rindex(b',"hash":')]).hexdigest()
        head = after
