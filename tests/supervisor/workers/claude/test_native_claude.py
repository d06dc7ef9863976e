"""The table from Claude Code's tools to native ops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract.json_types import JsonObject
from supervisor.workers.native_claude import CLAUDE_TOOLS, native_call, offered_tools, result_text

KNOWN_OPS = {"file.read", "file.write", "shell.exec", "net.fetch", "agent.spawn"}
scalars = st.none() | st.booleans() | st.integers() | st.text()
json_values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)
NAMED_KEYS = ["command", "file_path", "notebook_path", "path", "pattern", "glob", "url"]
arguments = st.dictionaries(st.sampled_from(NAMED_KEYS) | st.text(max_size=5), json_values, max_size=5)


@given(st.text().filter(lambda tool: tool not in CLAUDE_TOOLS), arguments)
def test_a_tool_that_the_table_does_not_name_is_other(tool: str, given_arguments: JsonObject) -> None:
    call = native_call(tool, given_arguments)
    assert (call.op, call.tool, call.payload) == (f"other.{tool}", tool, given_arguments)


@given(st.sampled_from(sorted(CLAUDE_TOOLS)), arguments)
def test_a_named_tool_is_its_op_with_what_it_touches_or_other(tool: str, given_arguments: JsonObject) -> None:
    call = native_call(tool, given_arguments)
    assert call.op in KNOWN_OPS | {f"other.{tool}"}
    if call.op == "shell.exec":
        assert call.command == given_arguments["command"] != ""
    if call.op.startswith("file."):
        assert call.paths
        assert {path.access for path in call.paths} == {call.op.removeprefix("file.")}


@pytest.mark.parametrize(
    ("tool", "given_arguments", "op", "paths"),
    [
        ("Read", {"file_path": "/workspace/a"}, "file.read", [("/workspace/a", "read")]),
        ("Write", {"file_path": "b", "content": ""}, "file.write", [("b", "write")]),
        ("NotebookEdit", {"notebook_path": "n.ipynb"}, "file.write", [("n.ipynb", "write")]),
        ("Grep", {"pattern": "x"}, "file.read", [(".", "read")]),
        ("Grep", {"path": "a", "glob": "../b/*"}, "file.read", [("a", "read"), ("a/../b", "read")]),
        ("Glob", {"pattern": "/etc/**/*.conf"}, "file.read", [(".", "read"), ("/etc", "read")]),
        ("Glob", {"pattern": "secrets/key.pem"}, "file.read", [(".", "read"), ("secrets/key.pem", "read")]),
        ("Glob", {"pattern": "*.py"}, "file.read", [(".", "read")]),
        ("Read", {"file_path": ["/etc/passwd"]}, "other.Read", []),
        ("Grep", {"pattern": "x", "path": 7}, "other.Grep", []),
        ("Bash", {}, "other.Bash", []),
    ],
)  # fmt: skip
def test_paths_are_what_the_tool_would_touch(
    tool: str, given_arguments: JsonObject, op: str, paths: list[tuple[str, str]]
) -> None:
    call = native_call(tool, given_arguments, "/workspace/sub")
    assert call.op == op
    assert [(path.shown, path.access) for path in call.paths] == paths
    assert all(path.path is None for path in call.paths)  # the bridge resolves them
    assert call.cwd == "/workspace/sub"


@pytest.mark.parametrize(
    ("allowed", "tools"),
    [
        (set(), set()),
        ({"file.read"}, {"Read", "Grep", "Glob"}),
        ({"file.*"}, {"Read", "Grep", "Glob", "Edit", "Write"}),
        ({"shell.exec", "agent.spawn"}, {"Bash", "Agent"}),
        ({"*"}, {"Bash", "Read", "Grep", "Glob", "Edit", "Write", "WebFetch", "Agent"}),
        ({"other.TodoWrite"}, {"TodoWrite"}),
        ({"other.*"}, set()),
    ],
)
def test_a_tool_is_offered_only_where_its_op_could_be_allowed(allowed: set[str], tools: set[str]) -> None:
    assert set(offered_tools(frozenset(allowed))) == tools


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ("plain", "plain"),
        ({"stdout": "out", "stderr": "err", "interrupted": False}, "out\nerr"),
        ({"stdout": "out", "stderr": ""}, "out"),
        ({"type": "text", "file": {"content": "line\n"}}, "line\n"),
        ({"filePath": "/workspace/a", "oldString": "x"}, "/workspace/a"),
        ({"anything": [1]}, '{"anything": [1]}'),
        (None, "null"),
    ],
)
def test_what_a_tool_answered_is_told_as_the_text_a_person_would_want_of_it(response: object, text: str) -> None:
    assert result_text(response) == text
