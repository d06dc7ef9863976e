"""JSON-RPC 2.0, one object a line, both ways over a byte stream: the wire between our own processes and to Codex.

It knows no method, no policy and no process: handlers are given, the stream is given. Below it stands `strict_json`,
above it whoever owns a channel (`bridge.client`, `bridge.assembly`, `bridge.bus`, the worker drivers). Lines are
bounded in both directions, handlers run side by side, and no text of a foreign exception ever leaves.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import Final, NamedTuple, TypeGuard

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream, TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from bridge.contract import strict_json
from bridge.contract.errors import MatrixError
from bridge.contract.json_lines import STREAM_ENDS, LineReader, read_leniently
from bridge.contract.json_rpc_errors import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    error_from,
    error_object,
    method_not_found,
    too_long,
    unsendable,
)
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.socket_stream import SocketStream

MAX_LINE_BYTES: Final = 4 * 1024 * 1024
MAX_LINE_DEPTH: Final = 72
"""64 levels of a payload, and the envelope around it."""
MAX_HANDLERS: Final = 1024
"""Requests handled at once; at the bound reading pauses, so a flood waits in its sender."""
MAX_IDLE_HANDLERS: Final = 32
"""Handlers kept for the next request: waking one costs a fifth of starting one."""
MAX_QUEUED_NOTIFICATIONS: Final = 1024
SEND_TIMEOUT_MS: Final = 30_000
"""A peer that does not read for this long is given up: its stream is closed."""

_log = logging.getLogger(__name__)

RequestHandler = Callable[[str, JsonObject], Awaitable[JsonValue]]
NotificationHandler = Callable[[str, JsonObject], Awaitable[None]]
MalformedHandler = Callable[[MatrixError, JsonObject | None], Awaitable[None]]
"""(why the line was refused, the message as far as a lenient reader makes it out) -> None."""
_Notification = tuple[str, JsonObject, int]
"""Method, parameters, bytes of its line."""
_Queue = MemoryObjectSendStream[_Notification]


class _Request(NamedTuple):
    """A request of the peer's, and what cancels its handling."""

    number: int | str
    method: str
    params: JsonObject
    scope: anyio.CancelScope
    size: int


@dataclass(eq=False)
class _Handler:
    """A task that handles one request after the other; without one it waits in the peer's `_idle`."""

    request: _Request | None
    woken: anyio.Event = field(default_factory=anyio.Event)

    def wake(self, request: _Request | None) -> None:
        self.request = request
        self.woken.set()


@dataclass
class _Pending:
    """One request of ours that has no answer yet."""

    answered: anyio.Event = field(default_factory=anyio.Event)
    value: JsonValue = None
    error: MatrixError | None = None

    def fail(self, error: MatrixError) -> None:
        self.error = error
        self.answered.set()


class JsonRpcPeer:
    """One end of a channel. `run()` serves it until the stream ends; requests may be made only while it runs.

    `closed_code` is the code that requests get when the stream is gone. `version_member=False` leaves out `"jsonrpc"`,
    as the Codex app-server does. `on_malformed` hears of lines that are refused before any handler sees them.
    `max_held_bytes` bounds the lines whose handling has not ended; at the bound reading pauses. Not for a channel whose
    handlers wait for answers of the same peer: those could not be read then.
    """

    def __init__(
        self,
        stream: ByteStream,
        on_request: RequestHandler | None = None,
        on_notification: NotificationHandler | None = None,
        max_line_bytes: int = MAX_LINE_BYTES,
        version_member: bool = True,
        *,
        closed_code: str = "MX_AGENT_BRIDGE_UNAVAILABLE",
        on_malformed: MalformedHandler | None = None,
        max_handlers: int = MAX_HANDLERS,
        max_held_bytes: float = inf,
    ) -> None:
        self._stream = stream
        self._on_request = on_request
        self._on_notification = on_notification
        self._on_malformed = on_malformed
        self._max_line_bytes = max_line_bytes
        self._head: JsonObject = {"jsonrpc": "2.0"} if version_member else {}
        self._closed_code = closed_code
        self._ids = count(1)
        self._pending: dict[int, _Pending] = {}
        self._handling: dict[int | str, anyio.CancelScope] = {}
        self._idle: list[_Handler] = []
        self._slots = anyio.Semaphore(max_handlers, fast_acquire=True)
        self._max_held_bytes = max_held_bytes
        self._held_bytes = 0
        self._let_go = anyio.Event()
        self._writing = anyio.Lock(fast_acquire=True)
        self._outbox: list[bytes] = []
        self._gathering = False
        self._lines = LineReader(stream, max_line_bytes)
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the stream has ended or was closed; no request can be made any more."""
        return self._closed

    async def run(self) -> None:
        """Read and serve until the stream ends, then cancel what still runs. Never raises for the peer's sake."""
        queue, queued = anyio.create_memory_object_stream[_Notification](MAX_QUEUED_NOTIFICATIONS)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._deliver, queued)
            try:
                with queue:
                    await self._read(tasks, queue)
            finally:
                await self.aclose()
            for scope in list(self._handling.values()):
                scope.cancel()
            for handler in self._idle:
                handler.wake(None)

    async def request(
        self,
        method: str,
        params: JsonObject | None = None,
        timeout_ms: float | None = None,
        timeout_code: str = "MX_AGENT_TOOL_TIMEOUT",
    ) -> JsonValue:
        """The peer's result. Raises `MatrixError`: the peer's own, `timeout_code`, TOO_LARGE, or `closed_code`.

        Cancelling the caller, or the time-out, sends `$/cancel`; an answer that comes later is dropped.
        """
        number = next(self._ids)
        pending = self._pending[number] = _Pending()
        try:
            asked: JsonObject = {"id": number, "method": method, "params": params or {}}
            if timeout_ms is None:
                await self._send(asked)
                await pending.answered.wait()
            else:
                with anyio.move_on_after(timeout_ms / 1000):
                    await self._send(asked)
                    await pending.answered.wait()
            if not pending.answered.is_set():
                raise MatrixError(timeout_code, f"{method!r} did not answer within {timeout_ms:g} ms.")
        finally:
            del self._pending[number]
            if not pending.answered.is_set():
                await self._send_cancel(number)
        if pending.error is not None:
            raise pending.error
        return pending.value

    async def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Tell the peer something that has no answer. Raises `MatrixError`: TOO_LARGE, or `closed_code`."""
        await self._send({"method": method, "params": params or {}})

    async def notify_all(self, method: str, params: Sequence[JsonObject]) -> None:
        """As `notify`, several in one write."""
        self._outbox.extend(self._line({"method": method, "params": one}) for one in params[:-1])
        await self.notify(method, params[-1])

    async def aclose(self) -> None:
        """Close the stream; every pending request ends with `closed_code`. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for pending in self._pending.values():
            pending.fail(self._gone())
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(self._stream)

    def _gone(self) -> MatrixError:
        return MatrixError(self._closed_code, "The other end of the channel is gone.")

    # sending

    def _line(self, message: JsonObject) -> bytes:
        line = (strict_json.dumps({**self._head, **message}) + "\n").encode("ascii")
        if len(line) > self._max_line_bytes:
            raise MatrixError(
                "MX_AGENT_TOO_LARGE", f"The message has {len(line)} bytes, the limit is {self._max_line_bytes}."
            )
        return line

    async def _send(self, message: JsonObject) -> None:
        line = self._line(message)
        if self._closed:
            raise self._gone()
        self._outbox.append(line)
        if self._gathering:
            return  # our line goes with the one that is waiting for company
        if self._writing.locked() or not await self._sent_together():
            async with self._writing:
                await self._flush()

    async def _sent_together(self) -> bool:
        """Whether the kernel took at once what all tasks send in this turn of the loop; the rest stays queued.

        One write for many, because a write wakes a process, which costs more than the message.
        """
        if not isinstance(self._stream, SocketStream):
            return False
        self._gathering = True
        try:
            await anyio.lowlevel.cancel_shielded_checkpoint()
        finally:
            self._gathering = False
        if self._writing.locked():
            return False  # who began before us goes on with half a line
        try:
            rest = self._stream.send_now(b"".join(self._outbox))
        except STREAM_ENDS:
            await self.aclose()
            raise self._gone() from None
        self._outbox[:] = [rest] if rest else []
        return not rest

    async def _flush(self) -> None:
        """Send everything queued in one write. Shielded, because half a line would spoil the stream for all."""
        if not self._outbox:
            return  # the holder of the lock before us sent our line with its own
        batch = b"".join(self._outbox)
        self._outbox.clear()
        with anyio.move_on_after(SEND_TIMEOUT_MS / 1000, shield=True) as scope:
            try:
                await self._stream.send(batch)
            except STREAM_ENDS:
                await self.aclose()
                raise self._gone() from None
        if scope.cancelled_caught:
            await self.aclose()
            raise self._gone()

    async def _send_cancel(self, number: int) -> None:
        with anyio.CancelScope(shield=True):
            await self._answer({"method": "$/cancel", "params": {"id": number}})

    async def _answer(self, message: JsonObject) -> None:
        """Send what nobody waits for: a peer that is gone does not need it."""
        try:
            await self._send(message)
        except MatrixError as error:
            if "result" in message and not self._closed:  # it is too large, or no JSON
                await self._answer({"id": message["id"], "error": error_object(unsendable(error))})

    # reading

    async def _read(self, tasks: TaskGroup, queue: _Queue) -> None:
        while (lines := await self._lines.next_lines()) is not None:
            for line in lines:
                if len(line) > self._max_line_bytes:
                    return await self._refuse_line(too_long(self._max_line_bytes), None)
                if line.strip():
                    await self._take(line, tasks, queue)
        return None

    async def _take(self, line: bytes, tasks: TaskGroup, queue: _Queue) -> None:
        try:
            message = strict_json.loads(line, max_bytes=self._max_line_bytes, max_depth=MAX_LINE_DEPTH)
        except MatrixError as error:
            return await self._refuse_line(error, read_leniently(line))
        if not isinstance(message, dict):
            return await self._refuse_line(
                MatrixError("MX_AGENT_INVALID_ARGUMENTS", "A line must be one JSON object."), None
            )
        if "method" in message:
            await self._take_call(message, len(line), tasks, queue)
        else:
            self._take_answer(message)
        return None

    async def _take_call(self, message: JsonObject, size: int, tasks: TaskGroup, queue: _Queue) -> None:
        method, params, number = message["method"], message.get("params"), message.get("id")
        params = {} if params is None else params
        if not isinstance(method, str) or not isinstance(params, dict):
            error = MatrixError("MX_AGENT_INVALID_ARGUMENTS", "A method is text and its parameters are an object.")
            await self._refuse_line(error, message)
        elif method == "$/cancel":
            self._cancel_handler(params.get("id"))
        elif _is_number(number):
            await self._hold(size)
            await self._slots.acquire()
            scope = self._handling[number] = anyio.CancelScope()
            request = _Request(number, method, params, scope, size)
            if self._idle:
                self._idle.pop().wake(request)
            else:
                tasks.start_soon(self._serve, _Handler(request))
        elif self._on_notification is not None:
            await self._hold(size)
            await queue.send((method, params, size))

    async def _hold(self, size: int) -> None:
        """Wait until there is room for a line of `size` bytes; one line alone always has it."""
        while self._held_bytes and self._held_bytes + size > self._max_held_bytes:
            self._let_go = anyio.Event()
            await self._let_go.wait()
        self._held_bytes += size

    def _release(self, size: int) -> None:
        self._held_bytes -= size
        self._let_go.set()

    def _take_answer(self, message: JsonObject) -> None:
        number = message.get("id")
        pending = self._pending.get(number) if isinstance(number, int) else None
        if pending is None:
            return  # an answer that is late: its request timed out or was cancelled
        error = message.get("error")
        if error is None:
            pending.value = message.get("result")
            pending.answered.set()
        else:
            pending.fail(error_from(error))

    async def _refuse_line(self, error: MatrixError, message: JsonObject | None) -> None:
        number = message.get("id") if message is not None else None
        answer: JsonObject = {
            "id": number if _is_number(number) else None,
            "error": {**error_object(error), "code": PARSE_ERROR if message is None else INVALID_REQUEST},
        }
        if self._on_malformed is not None:
            await self._on_malformed(error, message)
        await self._answer(answer)

    # handling

    async def _serve(self, handler: _Handler) -> None:
        """One request after the other, until there are more of us idle than are kept."""
        while handler.request is not None:
            await self._handle(handler.request)
            if self._closed or len(self._idle) >= MAX_IDLE_HANDLERS:
                return
            handler.request, handler.woken = None, anyio.Event()
            self._idle.append(handler)
            await handler.woken.wait()

    async def _handle(self, request: _Request) -> None:
        number = request.number
        answer: JsonObject = {"id": number, "error": error_object(MatrixError("MX_AGENT_CANCELLED"))}
        try:
            with request.scope:
                answer = {"id": number, **await self._result_or_error(request.method, request.params)}
            await self._answer(answer)
        finally:
            self._slots.release()
            self._release(request.size)
            if self._handling.get(number) is request.scope:
                del self._handling[number]

    async def _result_or_error(self, method: str, params: JsonObject) -> JsonObject:
        if self._on_request is None:
            return {"error": error_object(method_not_found(method))}
        try:
            return {"result": await self._on_request(method, params)}
        except MatrixError as error:
            return {"error": error_object(error)}
        except Exception as error:  # noqa: BLE001 - the wall: whatever a handler raises, only its type is told
            _log.error("the handler of %r failed with %s", method, type(error).__name__)
            failure = MatrixError("MX_AGENT_ACTOR_ERROR", f"The handler of {method!r} failed.")
            return {"error": {**error_object(failure), "code": INTERNAL_ERROR}}

    def _cancel_handler(self, number: JsonValue) -> None:
        scope = self._handling.get(number) if _is_number(number) else None
        if scope is not None:
            scope.cancel()

    async def _deliver(self, queued: MemoryObjectReceiveStream[_Notification]) -> None:
        """Notifications are handled one after the other, in the order they came."""
        with queued:
            async for method, params, size in queued:
                assert self._on_notification is not None
                try:
                    await self._on_notification(method, params)
                except Exception as error:  # noqa: BLE001 - one bad notification must not end the channel
                    _log.error("the handler of the notification %r failed with %s", method, type(error).__name__)
                finally:
                    self._release(size)


def _is_number(value: object) -> TypeGuard[int | str]:
    return isinstance(value, int | str) and not isinstance(value, bool)
