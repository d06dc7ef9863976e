"""The engine's attached stream as a byte stream: what the process writes, split into its two outputs.

An attached container (or exec) is one socket: what is sent goes to standard input; what arrives is frames of eight
bytes (which output, three zeros, length as big-endian 32 bits) and their content. Knows frames and nothing of
containers. Above: `docker_sandbox`, which opens the socket.
"""

import socket
import struct
from collections import deque
from dataclasses import dataclass

import anyio
from anyio.abc import ByteStream, UNIXSocketStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

FRAME_HEAD = struct.Struct(">BxxxL")
STDOUT = 1
STDERR = 2
STDERR_TAIL_BYTES = 8 * 1024
RECEIVE_BYTES = 64 * 1024
WAITING_PIECES = 16  # times RECEIVE_BYTES: what the process may write ahead of its reader before it has to wait
SEND_PIECE_BYTES = 64 * 1024


class Tail:
    """The last bytes of a text stream, at most `limit` of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: deque[bytes] = deque()
        self._size = 0

    def add(self, piece: bytes) -> None:
        """Append, forgetting from the front."""
        piece = piece[-self._limit :]
        self._pieces.append(piece)
        self._size += len(piece)
        while self._size - len(self._pieces[0]) >= self._limit:
            self._size -= len(self._pieces.popleft())

    def text(self) -> str:
        """What is kept, from its first whole character on."""
        kept = b"".join(self._pieces)[-self._limit :]
        return kept.decode("utf-8", "replace")


@dataclass(frozen=True)
class Piece:
    """Part of a frame: `channel` is `STDOUT` or `STDERR`."""

    channel: int
    data: bytes


class FrameDecoder:
    """Bytes as they come from the socket -> pieces, without waiting for a frame to be whole. Pure."""

    def __init__(self) -> None:
        self._head = b""
        self._channel = 0
        self._missing = 0

    def feed(self, data: bytes) -> list[Piece]:
        """The pieces that `data` completes or continues. Raises ValueError when it is not such a stream."""
        pieces: list[Piece] = []
        view = memoryview(data)
        while view:
            if self._missing == 0:
                view = self._take_head(view)
                continue
            taken, view = view[: self._missing], view[self._missing :]
            self._missing -= len(taken)
            pieces.append(Piece(self._channel, bytes(taken)))
        return pieces

    def _take_head(self, view: memoryview) -> memoryview:
        lacking = FRAME_HEAD.size - len(self._head)
        self._head += bytes(view[:lacking])
        if len(self._head) == FRAME_HEAD.size:
            self._channel, self._missing = FRAME_HEAD.unpack(self._head)
            if self._channel not in (STDOUT, STDERR):
                raise ValueError(f"not an attached stream of the engine: channel {self._channel}")
            self._head = b""
        return view[lacking:]


class AttachedStream(ByteStream):
    """Standard input and output of one process. `pump` has to run for anything to be received.

    Back-pressure reaches the process: with `WAITING_PIECES` pieces unread it blocks in its write, and nothing is lost.
    """

    def __init__(self, connection: UNIXSocketStream) -> None:
        self._connection = connection
        self._send_lock = anyio.Lock()
        self._rest = b""
        self._discarding = False
        self.stderr = Tail(STDERR_TAIL_BYTES)
        self.ended = anyio.Event()
        """Set when the engine closed the stream: every process that held the outputs is gone, or the engine is."""
        self._arrived: MemoryObjectSendStream[bytes]
        self._waiting: MemoryObjectReceiveStream[bytes]
        self._arrived, self._waiting = anyio.create_memory_object_stream[bytes](WAITING_PIECES)

    @classmethod
    async def from_socket(cls, raw: socket.socket) -> "AttachedStream":
        """Take over a connected unix socket whose HTTP head was read."""
        return cls(await UNIXSocketStream.from_socket(raw))

    async def pump(self) -> None:
        """Move what arrives to its reader until the stream ends."""
        decoder = FrameDecoder()
        try:
            while True:
                for piece in decoder.feed(await self._connection.receive(RECEIVE_BYTES)):
                    await self._deliver(piece)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, ValueError):
            return  # however the engine's end came, for the reader it is the end of the output
        finally:
            self._arrived.close()
            self.ended.set()

    async def _deliver(self, piece: Piece) -> None:
        if piece.channel == STDERR:
            self.stderr.add(piece.data)
        elif not self._discarding:
            await self._arrived.send(piece.data)

    def discard_output(self) -> None:
        """Drop what was not read and all that follows, so that the stream's end is reached without a reader."""
        self._discarding = True
        try:
            while True:
                self._waiting.receive_nowait()
        except (anyio.WouldBlock, anyio.EndOfStream, anyio.ClosedResourceError):
            return

    async def receive(self, max_bytes: int = RECEIVE_BYTES) -> bytes:
        """Bytes of standard output, at least one. Raises `anyio.EndOfStream` at its end."""
        data = self._rest or await self._waiting.receive()
        self._rest = data[max_bytes:]
        return data[:max_bytes]

    async def send(self, item: bytes) -> None:
        """Write all of `item` to standard input; one writer at a time, so that messages never mix."""
        async with self._send_lock:
            for start in range(0, len(item), SEND_PIECE_BYTES):
                await self._connection.send(item[start : start + SEND_PIECE_BYTES])

    async def send_eof(self) -> None:
        """Close the process's standard input. Its output stays open."""
        try:
            await self._connection.send_eof()
        except OSError:
            return  # it is closed already

    async def aclose(self) -> None:
        """Let go of the socket; unread output is dropped."""
        self.discard_output()
        await self._connection.aclose()
        self._arrived.close()
        self._waiting.close()
        self.ended.set()
