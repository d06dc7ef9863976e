"""What a worker may ask for: method, path, headers and body (threats.md, N2 to N5 and N10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxes.gateway import strict_json
from sandboxes.gateway.body_policy import judge_body
from sandboxes.gateway.json_types import JsonObject, JsonValue
from sandboxes.gateway.refusal import Refusal, WorkerKind
from sandboxes.gateway.request_policy import Route, forwarded, returned, route
from tests.sandboxes.gateway.answers import messages_body, responses_body

HOST = (("host", "127.0.0.1:8080"),)


@pytest.mark.parametrize(
    ("kind", "method", "target"),
    [
        ("claude", "POST", "/v1/messages?beta=true"),
        ("claude", "POST", "/v1/messages/count_tokens"),
        ("claude", "GET", "/v1/models/claude-opus-5-5"),
        ("codex", "POST", "/v1/responses"),
        ("codex", "GET", "/v1/models?client_version=0.163.0"),
        ("codex", "POST", "/mxs/hook"),
    ],
)
def test_what_both_workers_need_is_let_through_unchanged(kind: WorkerKind, method: str, target: str) -> None:
    way = route(kind, method, target, HOST)

    assert isinstance(way, Route)
    assert way.target == target


@pytest.mark.parametrize(
    ("kind", "method", "target"),
    [
        ("claude", "POST", "/v1/responses"),
        ("codex", "POST", "/v1/messages"),
        ("claude", "POST", "/v1/files"),
        ("claude", "POST", "/v1/messages/batches"),
        ("claude", "GET", "/v1/skills"),
        ("claude", "GET", "/v1/organizations/x"),
        ("codex", "GET", "/v1/responses/resp_1"),
        ("codex", "DELETE", "/v1/models/x"),
        ("claude", "HEAD", "/"),
        ("claude", "PUT", "/v1/messages"),
    ],
)
def test_what_is_not_on_the_list_is_forbidden(kind: WorkerKind, method: str, target: str) -> None:
    way = route(kind, method, target, HOST)

    assert isinstance(way, Refusal)
    assert way.status == 403


@pytest.mark.parametrize(
    "target",
    [
        "http://evil.example/v1/messages",
        "//evil.example/v1/messages",
        "/v1//messages",
        "/v1/./messages",
        "/v1/../v1/messages",
        "/v1/%2e%2e/messages",
        "/v1/messages%00",
        "/v1/messages%2f..",
        "/v1\\messages",
        "/v1/messages\u00e9",
        "*",
        "/v1/models/../files",
        "/v1/messages?x=%0d%0a",
        "/v1/messages#part",
    ],
)
def test_a_target_that_could_be_read_in_two_ways_is_malformed(target: str) -> None:
    way = route("claude", "POST", target, HOST)

    assert isinstance(way, Refusal)
    assert way.status == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ((), 421),
        ((("host", "evil.example"),), 421),
        ((("host", "127.0.0.1.evil.example"),), 421),
        ((*HOST, *HOST), 421),
        ((*HOST, ("connection", "Upgrade"), ("upgrade", "websocket")), 426),
        ((*HOST, ("content-encoding", "zstd")), 415),
    ],
)
def test_a_foreign_host_an_upgrade_and_a_packed_body_are_refused(
    headers: tuple[tuple[str, str], ...], status: int
) -> None:
    way = route("codex", "POST", "/v1/responses", headers)

    assert isinstance(way, Refusal)
    assert way.status == status


def test_connect_is_refused() -> None:
    way = route("claude", "CONNECT", "api.anthropic.com:443", HOST)

    assert isinstance(way, Refusal)
    assert way.status == 405


@given(
    st.lists(
        st.tuples(st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1).map(str.lower), st.just("v"))
    )
)
def test_the_workers_own_credentials_never_go_upstream(more: list[tuple[str, str]]) -> None:
    secret = [("x-api-key", "s"), ("authorization", "s"), ("cookie", "s"), ("proxy-authorization", "s"), ("host", "h")]

    sent = forwarded("claude", (*more, *secret)) + forwarded("codex", (*more, *secret))

    assert not {name for name, _ in sent} & {name for name, _ in secret}


def test_a_header_that_holds_the_key_does_not_come_back() -> None:
    headers = (
        ("Request-Id", "r1"),
        ("X-Request-Id", "it was sk-12345678"),
        ("Set-Cookie", "a=b"),
        ("Retry-After", "3"),
    )

    assert returned(headers, "sk-12345678") == (("request-id", "r1"), ("retry-after", "3"))


def test_ordinary_requests_of_both_kinds_pass_the_body_policy() -> None:
    assert (
        judge_body("claude", messages_body(thinking={"type": "adaptive"}, system=[{"type": "text", "text": "s"}]))
        is None
    )
    assert judge_body("codex", responses_body(store=False, include=["reasoning.encrypted_content"])) is None


def test_arguments_of_a_call_may_look_like_remote_sources() -> None:
    call: JsonObject = {
        "type": "tool_use",
        "id": "t",
        "name": "x",
        "input": {"source": {"type": "url", "url": "https://a.example"}},
    }

    assert judge_body("claude", messages_body(messages=[{"role": "assistant", "content": [call]}])) is None


URL_IMAGE: JsonObject = {"type": "image", "source": {"type": "url", "url": "https://a.example/x.png"}}
NESTED: JsonObject = {"type": "document", "source": {"type": "content", "content": [URL_IMAGE]}}
FILE: JsonObject = {"type": "document", "source": {"type": "file", "file_id": "file_1"}}


@pytest.mark.parametrize(
    "fields",
    [
        {"mcp_servers": [{"type": "url", "url": "https://a.example"}]},
        {"container": "c"},
        *({"tools": [{"type": tool, "name": "x"}]} for tool in (
            "web_search_20250305", "web_fetch_20250910", "code_execution_20250825", "computer_20250124", "mcp_toolset",
            "tool_search_tool_regex_20251119",
        )),
        {"messages": [{"role": "user", "content": [URL_IMAGE]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [FILE]}]}]},
        {"messages": [{"role": "user", "content": [NESTED]}]},
        {"messages": [{"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]}]},
        {"fallbacks": []},
    ],
)  # fmt: skip
def test_anthropic_bodies_that_act_on_the_providers_side_are_refused(fields: dict[str, JsonValue]) -> None:
    refusal = judge_body("claude", messages_body(**fields))

    assert refusal is not None
    assert refusal.status == 400


@pytest.mark.parametrize(
    "fields",
    [
        *({"tools": [{"type": tool}]} for tool in (
            "web_search", "web_search_preview", "file_search", "code_interpreter", "mcp", "image_generation",
            "computer_use_preview", "tool_search",
        )),
        {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}]},
        {"input": [{"type": "additional_tools", "tools": [{"type": "web_search"}]}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://a.example/x.png"}]}]},
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]}]},
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "https://a.example/x"}]}]},
        {"input": [{"type": "function_call_output", "call_id": "c", "output": [{"file_id": "f"}]}]},
        {"input": [{"type": "item_reference", "id": "rs_1"}]},
        {"previous_response_id": "resp_1"},
        {"background": True},
    ],
)  # fmt: skip
def test_openai_bodies_that_act_on_the_providers_side_are_refused(fields: dict[str, JsonValue]) -> None:
    refusal = judge_body("codex", responses_body(**fields))

    assert refusal is not None
    assert refusal.status == 400


@pytest.mark.parametrize(
    "body",
    [b'{"a": 1, "a": 2}', b'{"a": NaN}', b"{} {}", b"\xff{}", b"[" * 200 + b"]" * 200, b"", b"[]", b'{"a": -Infinity}'],
)
def test_json_that_two_readers_could_read_differently_is_refused(body: bytes) -> None:
    with pytest.raises(strict_json.JsonRefusedError):
        strict_json.load_object(body)


def test_brackets_inside_of_texts_are_no_depth() -> None:
    assert strict_json.load_object(b'{"a": "' + b"[{" * 500 + b'"}') == {"a": "[{" * 500}
