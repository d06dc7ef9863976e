"""A model provider on this machine that speaks both protocols as the real ones do, for tests without a network.

It checks the key, answers over TLS too (with a CA made for the test), fails once with each status it is told to, and
keeps what it received. Its model calls the worker's shell, by default once, and then says that it is done.
"""

import datetime
import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

COMMAND = "echo from-the-provider"
LAST_WORD = "The local provider is done."
TYPES = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}


@dataclass(frozen=True)
class Received:
    """One request as it arrived. Header names are lower-case."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class LocalUpstream:
    """A running upstream. `fail_once` is answered from the left, one status a request; `hang` holds answers back."""

    key: str
    address: str = "127.0.0.1"
    commands: tuple[str, ...] = (COMMAND,)
    port: int = 0
    ca_file: Path | None = None
    received: list[Received] = field(default_factory=list)
    fail_once: list[int] = field(default_factory=list)
    redirect_to: str | None = None
    hang: threading.Event = field(default_factory=threading.Event)
    silent: bool = False
    client_left: threading.Event = field(default_factory=threading.Event)
    connections: int = 0

    @property
    def base_url(self) -> str:
        """What `ANTHROPIC_BASE_URL` and, with `/v1` behind it, `OPENAI_BASE_URL` are set to."""
        return f"http{'s' if self.ca_file else ''}://{self.address}:{self.port}"


@contextmanager
def local_upstream(key: str, tls_folder: Path | None = None, address: str = "127.0.0.1") -> Iterator[LocalUpstream]:
    """Serve until the context ends; over TLS if there is a folder for the CA's files."""
    upstream = LocalUpstream(key, address)
    server = ThreadingHTTPServer((address, 0), type("Handler", (_Handler,), {"upstream": upstream}))
    server.daemon_threads = True
    if tls_folder is not None:
        context, upstream.ca_file = server_tls(tls_folder, address)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    upstream.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield upstream
    finally:
        upstream.hang.set()
        server.shutdown()
        server.server_close()


def anthropic_events(body: dict[str, Any], commands: tuple[str, ...] = (COMMAND,)) -> list[dict[str, Any]]:
    """The streamed answer of a Messages model: the next `Bash` call if there is such a tool, at last text."""
    results = [b for m in body["messages"] for b in _blocks(m["content"]) if b.get("type") == "tool_result"]
    call = any(tool["name"] == "Bash" for tool in body.get("tools", [])) and len(results) < len(commands)
    block = (
        {"type": "tool_use", "id": f"toolu_local{len(results) or ''}", "name": "Bash", "input": {}}
        if call
        else {"type": "text", "text": ""}
    )
    delta = (
        {"type": "input_json_delta", "partial_json": json.dumps({"command": commands[len(results)]})}
        if call
        else {"type": "text_delta", "text": LAST_WORD}
    )
    usage = {"input_tokens": 21, "cache_read_input_tokens": 4, "output_tokens": 1}
    message = {"id": "msg_local", "type": "message", "role": "assistant", "model": body["model"], "content": []}
    return [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 7},
        },
        {"type": "message_stop"},
    ]


def openai_events(body: dict[str, Any], commands: tuple[str, ...] = (COMMAND,)) -> list[dict[str, Any]]:
    """The streamed answer of a Responses model: the next `exec_command` call if there is such a tool, at last text."""
    results = [item for item in body["input"] if item.get("type") == "function_call_output"]
    call = any(tool.get("name") == "exec_command" for tool in body.get("tools", [])) and len(results) < len(commands)
    item: dict[str, Any] = {"type": "message", "id": "msg_local", "role": "assistant", "status": "completed"}
    item["content"] = [{"type": "output_text", "text": LAST_WORD, "annotations": []}]
    pieces = [{"type": "response.output_text.delta", "item_id": "msg_local", "content_index": 0, "delta": LAST_WORD}]
    if call:
        number, pieces = len(results) or "", []
        item = {"type": "function_call", "id": f"fc_local{number}", "call_id": f"call_local{number}"}
        item |= {
            "name": "exec_command",
            "status": "completed",
            "arguments": json.dumps({"cmd": commands[len(results)]}),
        }
    usage = {"input_tokens": 25, "output_tokens": 7, "total_tokens": 32}
    response = {"id": "resp_local", "object": "response", "model": body["model"], "output": []}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**response, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress"}},
        *({**piece, "output_index": 0} for piece in pieces),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {
            "type": "response.completed",
            "response": {**response, "status": "completed", "output": [item], "usage": usage},
        },
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _blocks(content: Any) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else []


class _Handler(BaseHTTPRequestHandler):
    upstream: LocalUpstream
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        self.upstream.connections += 1
        super().setup()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the library's name)
        """Say nothing."""

    def do_GET(self) -> None:
        self._receive({})
        self._json(200, {"data": [], "object": "list"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self._receive(body)
        anthropic = self.path.startswith("/v1/messages")
        status = self._status(anthropic)
        if status != 200:
            self._fail(status, anthropic)
        elif self.path.startswith("/v1/messages/count_tokens"):
            self._json(200, {"input_tokens": 42})
        elif self.upstream.silent:
            self.upstream.hang.wait(30)
        else:
            events = anthropic_events if anthropic else openai_events
            self._stream(events(body, self.upstream.commands))

    def _receive(self, body: dict[str, Any]) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.upstream.received.append(Received(self.command, self.path, headers, body))

    def _status(self, anthropic: bool) -> int:
        sent = self.headers.get("x-api-key") if anthropic else self.headers.get("authorization", "")[7:]
        if sent != self.upstream.key:
            return 401
        if self.upstream.redirect_to is not None:
            return 307
        return self.upstream.fail_once.pop(0) if self.upstream.fail_once else 200

    def _fail(self, status: int, anthropic: bool) -> None:
        """An error in the provider's shape; like some real proxies it repeats the key it was sent."""
        if status == 307:
            self.send_response(307)
            self.send_header("location", str(self.upstream.redirect_to))
            self.send_header("content-length", "0")
            self.end_headers()
            return
        message = f"failed once with {status}; the key was {self.upstream.key}"
        error: dict[str, Any] = {"type": TYPES.get(status, "api_error"), "message": message}
        self._json(status, {"type": "error", "error": error} if anthropic else {"error": {**error, "code": None}})

    def _json(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.send_header("set-cookie", "session=of-the-provider")
        if status == 429:
            self.send_header("retry-after", "0")
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, events: list[dict[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in events:
            self._chunk(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            if event["type"] == "content_block_start" and self.headers.get("anthropic-beta") == "hang":
                self._until_client_leaves()
                return
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _until_client_leaves(self) -> None:
        """Send nothing more, and note when the other end has closed the connection."""
        self.connection.settimeout(30)
        if not self.connection.recv(1):
            self.upstream.client_left.set()
        self.close_connection = True


def server_tls(folder: Path, address: str = "127.0.0.1") -> tuple[ssl.SSLContext, Path]:
    """A server context for `address`, and the file of the CA that signed it."""
    ca_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "A test's own CA")])
    ca = _certificate(ca_name, ca_name, ca_key, ca_key, x509.BasicConstraints(ca=True, path_length=0), None)
    server_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, address)])
    leaf = _certificate(
        server_name, ca_name, server_key, ca_key, x509.BasicConstraints(ca=False, path_length=None), address
    )
    ca_file, leaf_file = folder / "ca.pem", folder / "server.pem"
    ca_file.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    private = server_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    leaf_file.write_bytes(private + leaf.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(leaf_file)
    return context, ca_file


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    subject_key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    constraints: x509.BasicConstraints,
    address: str | None,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(subject_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(constraints, critical=True)
    )
    if address is not None:
        name = x509.IPAddress(ipaddress.ip_address(address))
        builder = builder.add_extension(x509.SubjectAlternativeName([name]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())
