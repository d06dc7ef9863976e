"""The table of Codex's tools, the reader of patches and of quoted command lines."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_sitter import Language, Parser
from tree_sitter_bash import language

from bridge.contract.json_types import JsonObject
from bridge.contract.tool_invocation import NativeCall
from supervisor.workers.codex_patch import patched_by_command, patched_paths
from supervisor.workers.codex_shell_words import line_given_to_shell, words_of
from supervisor.workers.native_codex import CODEX_TOOLS, GATEWAY_JUDGED_TOOLS, could_allow, judge_witnessed, native_call

NAMES = st.text(
    st.characters(exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\x00", exclude_categories=["Cs"]),
    min_size=1,
    max_size=8,
)
PATHS = NAMES.map(str.strip).filter(bool)
KINDS = ["Add File", "Update File", "Delete File", "Move to"]
TEXT = st.text(max_size=6)
ARGUMENTS = st.sampled_from(["cmd", "command", "input", "path", "chars"])
VALUES = TEXT | st.integers() | st.lists(TEXT, max_size=2)


def paths_of(native: NativeCall) -> list[tuple[str, str]]:
    return [(path.shown, path.access) for path in native.paths]


@pytest.mark.parametrize(
    ("tool", "arguments", "op", "command"),
    [
        ("Bash", {"command": "ls"}, "shell.exec", "ls"),
        ("exec_command", {"cmd": "ls -l"}, "shell.exec", "ls -l"),
        ("shell", {"command": ["rm", "a b"]}, "shell.exec", "rm 'a b'"),
        ("web_search", {"query": "x"}, "net.fetch", None),
        ("spawn_agent", {"message": "x"}, "agent.spawn", None),
        ("multi_agent_v1wait_agent", {}, "agent.spawn", None),
        ("collaborationspawn_agent", {}, "agent.spawn", None),
        ("multi_agent_v1__close_agent", {}, "agent.spawn", None),
        ("update_plan", {}, "other.update_plan", None),
        ("Bash", {"command": ""}, "other.Bash", None),
        ("exec_command", {"cmd": 3}, "other.exec_command", None),
        ("apply_patch", {"command": "no patch"}, "other.apply_patch", None),
    ],
)
def test_each_tool_is_the_op_of_its_row(tool: str, arguments: JsonObject, op: str, command: str | None) -> None:
    native = native_call(tool, arguments)
    assert (native.op, native.command) == (op, command)


@settings(max_examples=100)
@given(st.sampled_from([*CODEX_TOOLS, "", "x.y"]), st.dictionaries(ARGUMENTS, VALUES, max_size=2))
def test_the_mapping_is_total_and_what_it_cannot_read_is_an_op_that_nothing_grants(
    tool: str, arguments: JsonObject
) -> None:
    native = native_call(tool, arguments)
    assert native.payload == arguments
    assert native.op.startswith("other.") or native.op == CODEX_TOOLS[native.tool].op or native.op == "file.write"
    if native.op == "shell.exec":
        assert native.command
    if native.op in ("file.write", "file.read"):
        assert native.paths


@given(
    st.lists(
        st.tuples(st.sampled_from(["Add File", "Update File", "Delete File", "Move to"]), PATHS), min_size=1, max_size=4
    )
)
def test_every_header_of_a_patch_gives_its_path_once(headers: list[tuple[str, str]]) -> None:
    body = "".join(f"*** {kind}: {path}\n@@\n+*** Add File: content\n" for kind, path in headers)
    found = patched_paths(f"*** Begin Patch\n{body}*** End Patch")
    assert found == tuple(dict.fromkeys(path for _, path in headers))


def test_an_indented_header_counts_since_codex_reads_it_as_one() -> None:
    assert patched_paths("*** Begin Patch\n  *** Delete File:  secrets/key \n*** End Patch") == ("secrets/key",)


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        ("apply_patch <<'EOF'\n{}\nEOF\n", ("a",)),
        ('cd sub && apply_patch <<"EOF"\n{}\nEOF', ("sub/a",)),
        ("cd 'two words' && apply_patch <<'EOF'\n{}\nEOF", ("two words/a",)),
        ("apply_patch <<EOF\n{}\nEOF", ()),  # a shell would expand it
        ("apply_patch <<'EOF'\n{}\nEOF\nrm -rf .", ()),
        ("apply_patch <<'EOF'\n{}\nEOF\nrm -rf .\nEOF", ()),
        ("rm x; apply_patch <<'EOF'\n{}\nEOF", ()),
        ("cd $(touch x) && apply_patch <<'EOF'\n{}\nEOF", ()),
    ],
)
def test_a_command_is_a_patch_only_where_it_is_nothing_else(command: str, paths: tuple[str, ...]) -> None:
    line = command.format("*** Begin Patch\n*** Add File: a\n+x\n*** End Patch")
    assert patched_by_command(line) == paths
    native = native_call("Bash", {"command": line})
    assert native.op == ("file.write" if paths else "shell.exec")
    assert paths_of(native) == [(path, "write") for path in paths]


QUOTABLE = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)


@given(st.lists(QUOTABLE, min_size=1, max_size=4), st.data())
def test_words_come_back_from_every_kind_of_quote(words: list[str], data: st.DataObject) -> None:
    quoted = [data.draw(st.sampled_from([in_single, in_double, escaped]))(word) for word in words]
    assert words_of(" ".join(quoted)) == tuple(words)


def in_single(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def in_double(word: str) -> str:
    for special in '\\"$`':
        word = word.replace(special, "\\" + special)
    return f'"{word}"'


def escaped(word: str) -> str:
    """As `in_single` where a backslash would join lines."""
    return in_single(word) if "\n" in word or not word else "".join("\\" + letter for letter in word)


@given(st.lists(st.sampled_from(["a", "'", '"', "\\", " ", "$x", "`"]), max_size=12).map("".join))
def test_the_splitter_agrees_with_a_posix_shell(line: str) -> None:
    words = words_of(line)
    plain = "$" not in line and "`" not in line
    if words is None or not plain or line.endswith("\\"):
        return
    ran = subprocess.run(["/bin/sh", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True)
    assert ran.stdout.decode().split("\0")[:-1] == (list(words) or [""])


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        ("/usr/bin/bash -lc 'id; echo x'", "id; echo x"),
        ("/bin/sh -c ls", "ls"),
        ("/usr/bin/bash -c \"a \\$b 'c'\"", "a $b 'c'"),
        ("/workspace/bin/bash -c ls", None),
        ("bash -c ls", None),
        ("/usr/bin/python3 -c 'x'", None),
        ("/usr/bin/bash -c 'ls", None),
        ("/usr/bin/bash -c ls more", None),
        ("/usr/bin/bash -ic ls", None),
    ],
)
def test_only_a_known_shell_with_one_line_is_taken_apart(shown: str, line: str | None) -> None:
    assert line_given_to_shell(shown) == line


@given(st.text(min_size=1))
def test_text_for_a_running_command_never_parses_as_a_shell_line(chars: str) -> None:
    native = judge_witnessed("write_stdin", {"session_id": 1, "chars": chars})
    assert native is not None
    assert native.op == "shell.exec"
    assert native.command is not None
    tree = Parser(Language(language())).parse(native.command.encode("utf-8", "surrogatepass"))
    assert tree.root_node.has_error


def test_reading_what_a_command_has_printed_since_is_nothing_to_judge() -> None:
    assert judge_witnessed("write_stdin", {"session_id": 1}) is None
    assert judge_witnessed("write_stdin", {"session_id": 1, "chars": ""}) is None
    assert judge_witnessed("write_stdin", {"session_id": 1, "chars": 7}) is not None


def test_every_tool_that_no_hook_is_certain_to_cover_is_judged_at_the_gateway() -> None:
    asked_twice_in_the_container = {"Bash", "exec_command", "shell", "shell_command", "local_shell", "apply_patch"}
    assert set(CODEX_TOOLS) - asked_twice_in_the_container <= GATEWAY_JUDGED_TOOLS


@pytest.mark.parametrize(
    ("allowed", "could"),
    [({"file.read"}, True), ({"file.*"}, True), ({"*"}, True), ({"file.write"}, False), (set(), False)],
)
def test_an_op_could_be_allowed_by_its_name_its_family_or_everything(allowed: set[str], could: bool) -> None:
    assert could_allow("file.read", frozenset(allowed)) is could
