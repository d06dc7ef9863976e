"""A small proxy of the kind that companies have between themselves and a provider: it carries CONNECT, and notes it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import SocketAttribute, SocketStream


@dataclass
class ForwardProxy:
    """A running proxy; `asked` holds the request lines."""

    port: int
    asked: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, client: SocketStream) -> None:
        async with client:
            head = (await client.receive()).decode()
            line = head.partition("\r\n")[0]
            self.asked.append(line)
            host, _, port = line.split(" ")[1].rpartition(":")
            async with await anyio.connect_tcp(host, int(port)) as upstream, anyio.create_task_group() as group:
                await client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
                group.start_soon(_carry, client, upstream)
                group.start_soon(_carry, upstream, client)


@asynccontextmanager
async def forward_proxy() -> AsyncIterator[ForwardProxy]:
    """Serve until the context ends."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    proxy = ForwardProxy(listener.extra(SocketAttribute.local_port))
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, proxy.serve)
        yield proxy
        group.cancel_scope.cancel()


async def _carry(source: SocketStream, sink: SocketStream) -> None:
    try:
        async for piece in source:
            await sink.send(piece)
        await sink.send_eof()
    except anyio.BrokenResourceError:
        return
