"""Frames and tails, whatever way the bytes are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxes.docker_stream import FRAME_HEAD, STDERR, STDOUT, FrameDecoder, Tail

frames = st.lists(st.tuples(st.sampled_from([STDOUT, STDERR]), st.binary(max_size=40)), max_size=12)


@given(frames, st.data())
def test_frames_are_split_the_same_however_the_socket_cuts_them(
    sent: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(FRAME_HEAD.pack(channel, len(content)) + content for channel, content in sent)
    decoder, got = FrameDecoder(), {STDOUT: b"", STDERR: b""}
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        for piece in decoder.feed(stream[:cut]):
            got[piece.channel] += piece.data
        stream = stream[cut:]
    for channel in got:
        assert got[channel] == b"".join(content for of, content in sent if of == channel)


@pytest.mark.parametrize("channel", [0, 3, 72])
def test_a_stream_of_another_kind_is_refused(channel: int) -> None:
    with pytest.raises(ValueError, match="not an attached stream"):
        FrameDecoder().feed(bytes([channel]) + b"TTP/1.1 500 oh")


@given(st.lists(st.binary(max_size=30).map(lambda raw: raw.hex().encode()), max_size=20), st.integers(1, 50))
def test_a_tail_is_the_end_of_everything(pieces: list[bytes], limit: int) -> None:
    tail = Tail(limit)
    for piece in pieces:
        tail.add(piece)
    assert tail.text() == b"".join(pieces)[-limit:].decode()


def test_a_tail_that_starts_inside_a_character_is_still_text() -> None:
    tail = Tail(2)
    tail.add("\u20ac!".encode())
    assert tail.text().endswith("!")
