"""The real gateway process: keys, upstreams, smuggling, floods, its end (threats.md, N and K)."""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from sandboxes.gateway.client import GatewayClient, GatewayError
from sandboxes.gateway.worker_gate import HOOKS_AT_A_TIME
from sandboxes.gateway.worker_opening import Limits
from tests.e2e.local_upstream import LAST_WORD, local_upstream
from tests.sandboxes.gateway.answers import messages_body, responses_body
from tests.sandboxes.gateway.conftest import (
    REPOSITORY,
    STEP_S,
    WorkerSide,
    opening,
    read_answer,
    request,
    split,
    start_gateway,
    stop_gateway,
)
from tests.sandboxes.gateway.forward_proxy import forward_proxy

ABORT_S = 1.0
"""threats.md, N9: so long may a provider go on for nobody."""
KEY = "sk-test-0123456789-canary"
ASKED = 9
HELLO = "steps: [{say: hello}]"


async def test_a_messages_request_goes_up_with_our_key_and_comes_back_metered(client, events, open_worker) -> None:
    with local_upstream(KEY) as upstream:
        await client.put_key("k", "anthropic", KEY, upstream.base_url)
        worker = await open_worker(key_handle="k", expected_tools=("Bash", "Read"))

        status, body = await worker.post(
            "/v1/messages?beta=true",
            messages_body(),
            x_api_key="placeholder",
            Cookie="a=b",
            anthropic_version="2023-06-01",
        )

        inference = await events.first("inference")
        assert status == 200
        assert b"from-the-provider" in body
        received = upstream.received[0]
        assert received.path == "/v1/messages?beta=true"
        assert received.headers["x-api-key"] == KEY
        assert received.headers["anthropic-version"] == "2023-06-01"
        assert "cookie" not in received.headers
        assert "placeholder" not in str(received)
        assert inference["tokens"] == {"input": 25, "output": 7}
        assert inference["model"] == "claude-test"
        witness = await events.first("witness")
        assert (witness["id"], witness["tool"], witness["agent"]) == ("toolu_local", "Bash", None)
        surface = await events.first("surface")
        assert (surface["missing"], surface["unexpected"]) == (["Read"], [])
        assert (await client.close_worker("worker-a")).inferences == 1


async def test_a_responses_request_goes_up_with_a_bearer_key_over_tls(folder, tmp_path) -> None:
    with local_upstream(KEY, tls_folder=tmp_path) as upstream:
        running = start_gateway(folder, SSL_CERT_FILE=str(upstream.ca_file))
        async with GatewayClient(running.control) as client:
            await client.put_key("k", "openai", KEY, f"{upstream.base_url}/v1")
            worker = await _open(client, folder, kind="codex", key_handle="k")

            status, body = await worker.post("/v1/responses", responses_body(), authorization="Bearer placeholder")

        assert status == 200
        assert b"call_local" in body
        assert upstream.received[0].path == "/v1/responses"
        assert upstream.received[0].headers["authorization"] == f"Bearer {KEY}"
        assert stop_gateway(running) == b""


async def _open(client, folder: Path, **fields: object):
    path = folder / "w.sock"
    await client.open_worker(opening(worker="w", socket=path, **fields))
    return WorkerSide(path)


async def test_the_usual_proxy_variables_lead_to_the_provider(folder, tmp_path) -> None:
    with local_upstream(KEY, tls_folder=tmp_path) as upstream:
        async with forward_proxy() as proxy:
            variables = {"HTTPS_PROXY": proxy.url, "NO_PROXY": "", "SSL_CERT_FILE": str(upstream.ca_file)}
            running = start_gateway(folder, **variables)
            async with GatewayClient(running.control) as client:
                await client.put_key("k", "anthropic", KEY, upstream.base_url)
                worker = await _open(client, folder, kind="claude", key_handle="k")

                status, _ = await worker.post("/v1/messages", messages_body())

            assert status == 200
            assert proxy.asked == [f"CONNECT 127.0.0.1:{upstream.port} HTTP/1.1"]
            assert upstream.received[0].headers["x-api-key"] == KEY
            assert stop_gateway(running) == b""


async def test_a_host_in_no_proxy_is_asked_directly(folder) -> None:
    with local_upstream(KEY) as upstream:
        async with forward_proxy() as proxy:
            running = start_gateway(folder, HTTP_PROXY=proxy.url, NO_PROXY="127.0.0.1")
            async with GatewayClient(running.control) as client:
                await client.put_key("k", "anthropic", KEY, upstream.base_url)
                worker = await _open(client, folder, kind="claude", key_handle="k")

                status, _ = await worker.post("/v1/messages", messages_body())

            assert (status, proxy.asked) == (200, [])
            assert stop_gateway(running) == b""


async def test_an_upstream_whose_certificate_nobody_trusts_is_unreachable(
    client, events, open_worker, tmp_path
) -> None:
    with local_upstream(KEY, tls_folder=tmp_path) as upstream:
        await client.put_key("k", "anthropic", KEY, upstream.base_url)
        worker = await open_worker(key_handle="k")

        status, body = await worker.post("/v1/messages", messages_body())

        assert status == 502
        assert b"cannot be reached" in body
        assert not upstream.received


@pytest.mark.parametrize("fault", [401, 429, 529])
async def test_a_providers_refusal_reaches_the_worker_without_the_key_and_its_retry_works(
    client, events, open_worker, fault: int
) -> None:
    with local_upstream(KEY) as upstream:
        upstream.fail_once.append(fault)
        await client.put_key("k", "anthropic", KEY, upstream.base_url)
        worker = await open_worker(key_handle="k")

        first = await worker.raw(request("POST", "/v1/messages", json.dumps(messages_body()).encode()))
        second, _ = await worker.post("/v1/messages", messages_body())

        status, body = split(first)
        assert (status, second) == (fault, 200)
        assert b"failed once" in body
        assert KEY.encode() not in first
        assert b"set-cookie" not in first.lower()
        inference = await events.first("inference")
        assert inference["status"] == fault
        assert KEY not in json.dumps(events.seen)
        assert all("cookie" not in received.headers for received in upstream.received)


async def test_a_redirect_is_not_followed(client, events, open_worker) -> None:
    with local_upstream(KEY) as upstream, local_upstream(KEY) as elsewhere:
        upstream.redirect_to = f"{elsewhere.base_url}/v1/messages"
        await client.put_key("k", "anthropic", KEY, upstream.base_url)
        worker = await open_worker(key_handle="k")

        status, _ = await worker.post("/v1/messages", messages_body())

        assert status == 502
        assert not elsewhere.received


async def test_an_upstream_that_is_not_there_is_a_typed_failure(client, events, open_worker) -> None:
    await client.put_key("k", "openai", KEY, "http://127.0.0.1:1/v1")
    worker = await open_worker(kind="codex", key_handle="k")

    status, body = await worker.post("/v1/responses", responses_body())

    assert status == 502
    assert json.loads(body)["error"]["code"] == "MX_AGENT_INFERENCE_FAILED"
    assert (await events.first("inference"))["error"]["code"] == "MX_AGENT_INFERENCE_FAILED"


async def test_a_silent_upstream_ends_in_the_infer_time_out(client, events, open_worker) -> None:
    with local_upstream(KEY) as upstream:
        upstream.silent = True
        await client.put_key("k", "anthropic", KEY, upstream.base_url)
        worker = await open_worker(key_handle="k", infer_timeout_ms=200)

        status, body = await worker.post("/v1/messages", messages_body())

        assert status == 504
        assert b"MX_AGENT_INFER_TIMEOUT" in body


async def test_a_stream_that_falls_silent_ends_with_an_error_event(client, events, open_worker) -> None:
    with local_upstream(KEY) as upstream:
        await client.put_key("k", "anthropic", KEY, upstream.base_url)
        worker = await open_worker(key_handle="k", infer_timeout_ms=300)

        status, body = await worker.post("/v1/messages", messages_body(), anthropic_beta="hang")

        assert status == 200
        assert b"event: error" in body
        assert b"MX_AGENT_INFER_TIMEOUT" in body
        assert b"tool_use" not in body


async def test_a_worker_that_leaves_closes_the_upstream(client, events, open_worker) -> None:
    with local_upstream(KEY) as upstream:
        await client.put_key("k", "anthropic", KEY, upstream.base_url)
        worker = await open_worker(key_handle="k")

        async with await anyio.connect_unix(str(worker.path)) as stream:
            body = json.dumps(messages_body()).encode()
            await stream.send(request("POST", "/v1/messages", body, anthropic_beta="hang"))
            assert b"200" in await stream.receive()

        left = await anyio.to_thread.run_sync(upstream.client_left.wait, ABORT_S)
        assert left, f"the connection to the provider was still open {ABORT_S} s after the worker had left"
        assert (await events.first("inference"))["status"] == 499


async def test_a_run_waits_for_its_key_and_goes_on_when_it_comes(client, events, open_worker) -> None:
    with local_upstream(KEY) as upstream:
        worker = await open_worker(key_handle="late")
        answers: list[tuple[int, bytes]] = []

        async def ask() -> None:
            answers.append(await worker.post("/v1/messages", messages_body()))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await events.first("waitingForKey")
            await client.put_key("late", "anthropic", KEY, upstream.base_url)

        assert answers[0][0] == 200


async def test_a_run_without_key_and_script_is_told_so(client, events, open_worker) -> None:
    worker = await open_worker()

    status, body = await worker.post("/v1/messages", messages_body())

    assert status == 401
    assert b"neither a provider key nor a script" in body


async def test_the_key_goes_with_the_last_worker_that_uses_it(client, events, open_worker) -> None:
    with local_upstream(KEY) as upstream:
        await client.put_key("k", "anthropic", KEY, upstream.base_url)
        await open_worker("worker-a", key_handle="k")
        await client.close_worker("worker-a")
        worker = await open_worker("worker-b", key_handle="k")

        async with anyio.create_task_group() as group:
            group.start_soon(worker.post, "/v1/messages", messages_body())
            await events.first("waitingForKey")
            group.cancel_scope.cancel()

        assert not upstream.received


async def test_a_body_that_is_refused_never_opens_a_connection(client, events, open_worker) -> None:
    with local_upstream(KEY) as upstream:
        await client.put_key("k", "anthropic", KEY, upstream.base_url)
        worker = await open_worker(key_handle="k")

        status, body = await worker.post("/v1/messages", messages_body(mcp_servers=[]))

        assert status == 400
        assert json.loads(body)["error"]["type"] == "invalid_request_error"
        assert upstream.connections == 0
        assert (await events.first("refusedRequest"))["status"] == 400


BODY = json.dumps(messages_body()).encode()
HEAD = b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        HEAD + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        HEAD + b"Content-Length: 5, 6\r\n\r\nhello!",
        HEAD + b"Content-Length: +5\r\n\r\nhello",
        HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
        HEAD + b"Content-Length : 5\r\n\r\nhello",
        HEAD + b"X-A: b\r\n Content-Length: 5\r\n\r\nhello",
        HEAD + b"X-A: b\nContent-Length: 5\r\n\r\nhello",
        HEAD + b"X-A: b\0\r\n\r\n",
        b"POST /v1/messages HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST  /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
async def test_smuggling_is_answered_400_and_the_connection_is_closed(client, events, open_worker, data: bytes) -> None:
    with local_upstream(KEY) as upstream:
        await client.put_key("k", "anthropic", KEY, upstream.base_url)
        worker = await open_worker(key_handle="k")

        async with await anyio.connect_unix(str(worker.path)) as stream:
            received = b""
            with anyio.fail_after(STEP_S):
                await stream.send(data)
                try:
                    while True:
                        received += await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    pass

        assert received.startswith(b"HTTP/1.1 400")
        assert received.count(b"HTTP/1.1 ") == 1
        assert upstream.connections == 0


async def test_a_second_request_behind_a_first_is_not_taken_for_its_body(client, events, open_worker) -> None:
    worker = await open_worker(script=HELLO)

    answer = await worker.raw(request("POST", "/v1/messages", BODY) + request("DELETE", "/v1/files"))

    assert answer.count(b"HTTP/1.1 200") == 1
    assert not events.of("refusedRequest")


async def test_a_body_over_the_limit_is_refused_by_its_announcement(client, events, open_worker) -> None:
    worker = await open_worker(script=HELLO)

    answer = await worker.raw(HEAD + b"Content-Length: 99999999\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 413")


async def test_a_connection_serves_one_request_after_the_other(client, events, open_worker) -> None:
    worker = await open_worker(script="steps: [{say: one}, {say: two}]")

    async with await anyio.connect_unix(str(worker.path)) as stream:
        for word in (b"one", b"two"):
            await stream.send(request("POST", "/v1/messages", json.dumps(messages_body(stream=False)).encode()))
            assert word in await read_answer(stream)


async def test_a_websocket_is_refused_and_the_worker_can_fall_back(client, events, open_worker) -> None:
    worker = await open_worker(kind="codex", script=HELLO)

    upgrade = request("GET", "/v1/responses", Connection="Upgrade", Upgrade="websocket", Content_Length="0")

    assert (await worker.raw(upgrade)).startswith(b"HTTP/1.1 426")
    assert (await worker.post("/v1/responses", responses_body()))[0] == 200


async def test_a_flood_of_one_worker_leaves_the_other_alone(
    client, events, open_worker, record_testsuite_property
) -> None:
    flooding = await open_worker("worker-a", script=HELLO)
    quiet = await open_worker("worker-b", script=HELLO)
    answered: list[int] = []
    calm = [await _seconds(quiet, answered) for _ in range(ASKED)]

    enough = anyio.Event()  # a connection that is cancelled while it is made makes asyncio complain

    async def flood() -> None:
        while not enough.is_set():
            try:
                await flooding.raw(request("GET", "/v1/files", Content_Length="0"))
            except anyio.BrokenResourceError:
                await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(flood)
        await events.count("refusedRequest", 5)
        flooded = [await _seconds(quiet, answered) for _ in range(ASKED)]
        enough.set()

    assert answered == [200] * 2 * ASKED
    ratio = statistics.median(flooded) / statistics.median(calm)
    record_testsuite_property("latency under another worker's flood, times the calm one", round(ratio, 2))


async def _seconds(worker, answered: list[int]) -> float:
    started = time.perf_counter()
    with anyio.fail_after(STEP_S):
        answered.append((await worker.post("/v1/messages", messages_body()))[0])
    return time.perf_counter() - started


async def test_a_spent_budget_is_said_and_reported(client, events, open_worker) -> None:
    worker = await open_worker(script="steps: [{say: a}, {say: b}]", limits=Limits(tokens=15))

    first, _ = await worker.post("/v1/messages", messages_body())
    second, body = await worker.post("/v1/messages", messages_body())

    assert (first, second) == (200, 403)
    assert b"MX_AGENT_BUDGET_SPENT" in body


async def test_a_hook_is_brought_to_the_supervisor_and_its_answer_back(client, events, open_worker) -> None:
    worker = await open_worker(kind="codex", script=HELLO)
    answers: list[tuple[int, bytes]] = []

    async def ask() -> None:
        answers.append(await worker.post("/mxs/hook", {"tool_name": "Bash"}))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        event = await events.first("hook")
        assert event["body"] == {"tool_name": "Bash"}
        assert await client.answer(str(event["ask"]), {"decision": "deny"})

    assert answers == [(200, b'{"decision":"deny"}')]
    assert not await client.answer(str(event["ask"]), {"decision": "allow"}), "an answer counts once"


async def test_a_flood_of_hooks_waits_at_the_socket_and_not_at_the_supervisor(client, events, open_worker) -> None:
    worker, more = await open_worker(kind="codex", script=HELLO), 3
    async with anyio.create_task_group() as group:
        for _ in range(HOOKS_AT_A_TIME + more):
            group.start_soon(worker.post, "/mxs/hook", {"tool_name": "Bash"})
        asked = await events.count("hook", HOOKS_AT_A_TIME)
        await worker.raw(request("GET", "/mark"))  # comes after them all, and its report after theirs
        await events.first("refusedRequest")
        assert len(events.of("hook")) == HOOKS_AT_A_TIME
        for event in asked:
            assert await client.answer(str(event["ask"]), {})
        for event in (await events.count("hook", HOOKS_AT_A_TIME + more))[HOOKS_AT_A_TIME:]:
            assert await client.answer(str(event["ask"]), {})


@pytest.mark.parametrize(("allow", "seen"), [(True, True), (False, False)])
async def test_a_judged_call_waits_for_its_verdict(client, events, open_worker, allow: bool, seen: bool) -> None:
    script = "steps: [{say: s, call: {tool: shell, args: {command: ls}}}]"
    worker = await open_worker(script=script, judge_tools=("Bash",))
    answers: list[tuple[int, bytes]] = []

    async with anyio.create_task_group() as group:
        group.start_soon(_ask, worker, answers)
        event = await events.first("judge")
        assert not answers
        await client.answer(str(event["ask"]), {"allow": allow, "message": "Refused: not here."})

    assert (b"tool_use" in answers[0][1]) is seen
    assert (b"Refused: not here." in answers[0][1]) is not seen


async def _ask(worker, answers: list[tuple[int, bytes]]) -> None:
    answers.append(await worker.post("/v1/messages", messages_body()))


async def test_a_socket_is_for_its_own_user_alone(client, events, open_worker) -> None:
    worker = await open_worker(script=HELLO, uid=os.geteuid() + 12345)

    try:
        answer = await worker.raw(request("GET", "/v1/models"))
    except (OSError, anyio.BrokenResourceError):
        answer = b""

    assert answer == b""


async def test_a_closed_worker_has_no_socket(client, events, open_worker) -> None:
    worker = await open_worker(script=HELLO)

    figures = await client.close_worker("worker-a")

    assert not worker.path.exists()
    assert not figures.script.finished
    with pytest.raises(GatewayError, match="No such worker"):
        await client.worker("worker-a")


async def test_a_bad_script_is_refused_with_its_line(client, open_worker) -> None:
    with pytest.raises(GatewayError, match=r"demo\.yaml, line 2") as refused:
        await open_worker(script="steps:\n  - sya: x\n", script_name="demo.yaml")

    assert refused.value.line == 2


async def test_the_key_is_nowhere_but_in_the_gateways_closed_memory(running, client, open_worker) -> None:
    await client.put_key("k", "anthropic", KEY)
    process = Path("/proc") / str(running.process.pid)

    assert KEY.encode() not in (process / "cmdline").read_bytes()
    assert "Max core file size        0" in (process / "limits").read_text()
    assert (process / "mem").stat().st_uid == 0, "the process is dumpable"
    with pytest.raises(GatewayError) as refused:
        await client.put_key("k2", "anthropic", f"{KEY} with a space")
    assert KEY not in str(refused.value)


async def test_a_further_worker_costs_little_memory(running, client, open_worker) -> None:
    await open_worker("worker-0", script=HELLO)
    before = _resident(running.process.pid)

    for number in range(1, 21):
        worker = await open_worker(f"worker-{number}", script=HELLO)
        await worker.post("/v1/messages", messages_body())

    assert (_resident(running.process.pid) - before) / 20 < 5 * 1024 * 1024


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


async def test_the_gateway_ends_with_its_parent_and_leaves_no_socket(folder: Path) -> None:
    running = start_gateway(folder)
    async with GatewayClient(running.control) as client:
        worker = await _open(client, folder, kind="claude", script=HELLO)

        written = await anyio.to_thread.run_sync(stop_gateway, running)

    assert running.process.returncode == 0
    assert written == b""
    assert not running.control.exists()
    assert not worker.path.exists()


def test_the_gateway_ends_by_a_signal_and_leaves_no_socket(folder: Path) -> None:
    running = start_gateway(folder)

    running.process.terminate()

    assert running.process.wait(STEP_S) == 0
    assert not running.control.exists()
    assert stop_gateway(running) == b""


def test_the_gateway_loads_nothing_that_it_has_no_use_for() -> None:
    """It runs beside every supervisor: what it imports is resident memory of all who use this."""
    ask = "import sys, sandboxes.gateway.__main__; print(*sorted({name.partition('.')[0] for name in sys.modules}))"

    loaded = subprocess.run([sys.executable, "-c", ask], cwd=REPOSITORY, capture_output=True, check=True).stdout

    heavy = {
        "docker",
        "requests",
        "mcp",
        "claude_agent_sdk",
        "pydantic",
        "starlette",
        "uvicorn",
        "cryptography",
        "typer",
    }
    assert not heavy & set(loaded.decode().split())


async def test_the_last_word_of_the_local_provider_comes_through(client, events, open_worker) -> None:
    with local_upstream(KEY) as upstream:
        await client.put_key("k", "openai", KEY, upstream.base_url)
        worker = await open_worker(kind="codex", key_handle="k")

        _, body = await worker.post("/v1/responses", responses_body(tools=[]))

        assert LAST_WORD.encode() in body
        assert (await events.first("inference"))["auxiliary"] is True
