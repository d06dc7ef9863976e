"""Scripts: how they are read, played, and put into each worker's own tools (contracts.md, section 6)."""

import json
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sandboxes.gateway.model_request import DeclaredTool, ModelRequest
from sandboxes.gateway.script.claude_voice import ClaudeVoice
from sandboxes.gateway.script.codex_voice import CodexVoice
from sandboxes.gateway.script.model_turn import ModelTurn
from sandboxes.gateway.script.patch import edit_command, edit_patch, write_command
from sandboxes.gateway.script.script_file import ScriptFileError, parse_script
from sandboxes.gateway.script.script_model import ScriptError, WireFault
from sandboxes.gateway.script.script_player import ENDED, ScriptPlayer

CONTRACT = """
steps:
  - say: "Looking at the failing test."
    call: {tool: shell, args: {command: "python3 -m unittest -q"}}
    expect: "FAILED"
  - call: {tool: matrix_invoke, args: {target: demo.inventory, op: inventory.check, payload: {sku: WIDGET-42}}}
    expect: '"available": ?147'
  - calls:
      - {tool: edit, args: {path: shop/cart.py, old: "a - b", new: "a + b"}}
      - {tool: write, args: {path: NOTES.md, content: "done\\n"}}
  - delayMs: 200
    say: "Done."
agents:
  reviewer: {steps: [{say: "Looks right."}]}
"""
CLAUDE = tuple(
    DeclaredTool(n) for n in ("Bash", "Read", "Edit", "Write", "Agent", "mcp__matrix__matrix_invoke", "mcp__matrix__a")
)
PLAIN = tuple(DeclaredTool(name) for name in ("exec_command", "matrix_invoke", "a"))
PATCH = (*PLAIN, DeclaredTool("apply_patch", "custom"))
CODE = (
    DeclaredTool(
        "exec", "custom", "".join(f"declare const tools: {{ {t.name}(x): y; }};" for t in PATCH)
    ),
)  # fmt: skip


def asked(tools, results=None, **fields) -> ModelRequest:
    return ModelRequest(
        "m", True, fields.pop("agent", None), tools, fields.pop("auxiliary", False), results or {}, **fields
    )


def play_through(player: ScriptPlayer, tools, outputs: list[str]) -> list[ModelTurn | WireFault]:
    """Every answer, each call getting the next output as its result, until there is no call."""
    results: dict[str, str] = {}
    answers = []
    while True:
        answers.append(player.play(asked(tools, dict(results))).answer)
        if not isinstance(answers[-1], ModelTurn) or not answers[-1].calls:
            return answers
        for call in answers[-1].calls:
            results[call.id] = outputs.pop(0)


def turns_through(player: ScriptPlayer, tools, outputs: list[str]) -> list[ModelTurn]:
    """The same, for a script without faults."""
    return [answer for answer in play_through(player, tools, outputs) if isinstance(answer, ModelTurn)]


def test_the_contracts_script_drives_claude() -> None:
    player = ScriptPlayer(parse_script(CONTRACT), ClaudeVoice({}))

    answers = play_through(player, CLAUDE, ["FAILED", '{"available": 147}', "1\ta - b", "ok", "ok"])

    names = [[call.name for call in turn.calls] for turn in answers if isinstance(turn, ModelTurn)]
    assert names == [["Bash"], ["mcp__matrix__matrix_invoke"], ["Read"], ["Edit", "Write"], []]
    assert answers[2].calls[0].arguments == {"file_path": "/workspace/shop/cart.py"}  # type: ignore[union-attr]
    assert player.finished


def test_the_contracts_script_drives_codex_with_patches() -> None:
    player = ScriptPlayer(parse_script(CONTRACT), CodexVoice({}))
    read = "Chunk ID: 1\nOutput:\ndef f(a, b):\n    return a - b\n"

    answers = play_through(player, PATCH, ["FAILED", '{"available": 147}', read, "ok", "ok"])

    names = [[call.name for call in turn.calls] for turn in answers if isinstance(turn, ModelTurn)]
    assert names == [["exec_command"], ["matrix_invoke"], ["exec_command"], ["apply_patch", "apply_patch"], []]
    assert "\n def f(a, b):\n-    return a - b\n+    return a + b\n" in str(answers[3].calls[0].arguments)  # type: ignore[union-attr]


def test_the_contracts_script_drives_codex_without_patches_and_in_code_mode() -> None:
    plain = play_through(
        ScriptPlayer(parse_script(CONTRACT), CodexVoice({})), PLAIN, ["FAILED", '"available":147', "", ""]
    )
    code = play_through(
        ScriptPlayer(parse_script(CONTRACT), CodexVoice({})), CODE, ["FAILED", '"available":147', "a - b", ""]
    )

    assert [len(turn.calls) for turn in plain if isinstance(turn, ModelTurn)] == [1, 1, 2, 0]
    assert all(call.name == "exec" for turn in code if isinstance(turn, ModelTurn) for call in turn.calls)
    assert str(code[3].calls[0].arguments).count("await tools.apply_patch(") == 2  # type: ignore[union-attr]


UNREAD = "<tool_use_error>File has not been read yet. Read it first before writing to it.</tool_use_error>"
WRITES = """
steps:
  - say: Two files.
    calls:
      - {tool: write, args: {path: old.txt, content: a}}
      - {tool: write, args: {path: new.txt, content: b}}
    expect: "created[^$]*updated"
  - say: Done.
"""


def test_a_write_over_a_file_that_claude_has_not_read_is_made_again_after_reading_it() -> None:
    player = ScriptPlayer(parse_script(WRITES), ClaudeVoice({}))

    answers = turns_through(player, CLAUDE, [UNREAD, "created", "1\tx", "updated"])

    made = [[call.name for call in turn.calls] for turn in answers]
    assert made == [["Write", "Write"], ["Read"], ["Write"], []]
    assert all("/workspace/old.txt" in str(turn.calls[0].arguments) for turn in answers[:3])
    assert [turn.say for turn in answers] == ["Two files.", "", "", "Done."]
    assert player.finished


def test_a_write_that_is_refused_twice_is_not_made_a_third_time() -> None:
    player = ScriptPlayer(parse_script("steps: [{call: {tool: write, args: {path: f, content: a}}}]"), ClaudeVoice({}))

    assert len(play_through(player, CLAUDE, [UNREAD, "1\tx", UNREAD])) == 4
    assert player.finished


def test_a_change_of_a_file_waits_for_the_change_before_it_and_is_read_again() -> None:
    edits = "{tool: edit, args: {path: f, old: a, new: b}}, {tool: edit, args: {path: f, old: b c, new: d}}"
    other = "{tool: write, args: {path: g, content: 'x'}}"
    player = ScriptPlayer(parse_script(f"steps: [{{calls: [{edits}, {other}], expect: '1\\s2\\s3'}}]"), CodexVoice({}))

    answers = turns_through(player, PATCH, ["Output:\na c\n", "1", "Output:\nb c\n", "2", "3"])

    names = [[call.name for call in turn.calls] for turn in answers]
    assert names == [["exec_command"], ["apply_patch"], ["exec_command"], ["apply_patch", "exec_command"], []]
    assert apply(str(answers[3].calls[0].arguments), "b c\n") == "d\n"
    assert player.finished


def test_a_change_by_a_shell_command_waits_too() -> None:
    edits = "{tool: edit, args: {path: f, old: a, new: b}}, {tool: read, args: {path: f}}"
    player = ScriptPlayer(parse_script(f"steps: [{{say: Go, calls: [{edits}]}}]"), CodexVoice({}))

    answers = turns_through(player, PLAIN, ["", "b"])

    assert [(turn.say, len(turn.calls)) for turn in answers[:2]] == [("Go", 1), ("", 1)]


def test_an_auxiliary_request_advances_nothing() -> None:
    player = ScriptPlayer(parse_script("steps: [{say: first}]"), ClaudeVoice({}))

    player.play(asked((), auxiliary=True))

    assert player.play(asked(CLAUDE)).answer == ModelTurn("first")
    assert player.play(asked(CLAUDE)).answer == ENDED


def test_a_request_that_comes_again_gets_the_same_answer() -> None:
    player = ScriptPlayer(parse_script(CONTRACT), ClaudeVoice({}))

    assert player.play(asked(CLAUDE)) is player.play(asked(CLAUDE))


def test_a_failed_expectation_shows_expected_and_got_and_stays() -> None:
    player = ScriptPlayer(parse_script(CONTRACT), ClaudeVoice({}))
    call = player.play(asked(CLAUDE)).answer.calls[0]  # type: ignore[union-attr]

    with pytest.raises(ScriptError, match=r"Step 1 expected .*'FAILED' and got: 'all well'") as failed:
        player.play(asked(CLAUDE, {call.id: "all well"}))
    with pytest.raises(ScriptError):
        player.play(asked(CLAUDE, {call.id: "FAILED"}))

    assert failed.value.code == "MX_SCRIPT_EXPECTATION"
    assert not player.finished


@pytest.mark.parametrize(("voice", "tools"), [(ClaudeVoice({}), CLAUDE), (CodexVoice({}), PATCH)])
@pytest.mark.parametrize("tool", ["fetch, args: {url: 'https://a.example'}", "acme.com/demo.x/y.z", "no_such_tool"])
def test_a_tool_that_the_worker_does_not_have_ends_the_run(voice, tools, tool: str) -> None:
    player = ScriptPlayer(parse_script(f"steps: [{{call: {{tool: {tool}}}}}]"), voice)

    with pytest.raises(ScriptError) as failed:
        player.play(asked(tools))

    assert failed.value.code == "MX_SCRIPT_UNSUPPORTED"


@pytest.mark.parametrize(
    ("voice", "tools", "name"), [(ClaudeVoice, CLAUDE, "mcp__matrix__a"), (CodexVoice, PATCH, "a")]
)
def test_a_matrix_tool_is_called_by_its_canonical_name(voice, tools, name: str) -> None:
    script = parse_script("steps: [{call: {tool: acme.com/demo.x/y.z, args: {n: 1}}}]")

    turn = ScriptPlayer(script, voice({"acme.com/demo.x/y.z": "a"})).play(asked(tools)).answer

    assert (turn.calls[0].name, turn.calls[0].arguments) == (name, {"n": 1})  # type: ignore[union-attr]


def test_a_sub_agent_plays_its_own_script() -> None:
    spawn = "{tool: spawn, args: {agent: reviewer, prompt: Review it.}}"
    script = f"steps: [{{call: {spawn}}}, {{say: done}}]\nagents: {{reviewer: {{steps: [{{say: fine}}]}}}}"
    player = ScriptPlayer(parse_script(script), ClaudeVoice({}))

    assert player.play(asked(CLAUDE)).answer.calls[0].name == "Agent"  # type: ignore[union-attr]

    assert player.play(asked(CLAUDE, agent="a1", opening="x\nReview it.")).answer == ModelTurn("fine")
    assert player.play(asked(CLAUDE, agent="a2", opening="Review it.")).answer == ENDED


def test_faults_are_played_once() -> None:
    player = ScriptPlayer(parse_script("steps: [{error: {status: 529}}, {raw: 'data: x'}, {say: ok}]"), ClaudeVoice({}))

    answers = [player.play(asked(CLAUDE)).answer for _ in range(3)]

    assert [answer.status for answer in answers if isinstance(answer, WireFault)] == [529, 200]
    assert answers[2] == ModelTurn("ok")


@pytest.mark.parametrize(
    ("text", "line", "mend"),
    [
        ("", 1, "steps"),
        ("steps:\n  - say: x\n    cal: y\n", 3, "known are"),
        ("steps:\n  - say: [1]\n", 2, "quotes"),
        ("steps:\n  - say: x\n    say: y\n", 3, "twice"),
        ("steps:\n  - call: {tool: shell, args: {cmd: ls}}\n", 2, "command"),
        ("steps:\n  - say: x\n    expect: y\n", 3, "results"),
        ("steps:\n  - call: {tool: x}\n    expect: '('\n", 3, "regular expression"),
        ("steps:\n  - error: {status: 200}\n", 2, "400"),
        ("steps:\n  - say: x\n    error: {status: 500}\n", 2, "either"),
        ("steps: &a\n  - say: x\nagents: {r: {steps: *a}}\n", 3, "Aliases"),
        ("steps:\n  - say: x\n    delayMs: -1\n", 3, "whole number"),
        ("steps:\n  - call: {tool: spawn, args: {agent: r, prompt: p}}\n", 2, "agents"),
        ("codexSurface: fancy\nsteps: [{say: x}]\n", 1, "plain"),
        ("steps: [{say: x}\n", 2, "YAML"),
        ("steps:\n  - call: {tool: x, args: {a: .nan}}\n", 2, "quotes"),
        ("[" * 5000, 1, "flatten"),
        ("steps:\n  - call: {tool: x, args: {a: 2026-01-01}}\n", 2, "quotes"),
    ],
)
def test_a_malformed_script_is_refused_with_its_line_and_the_mend(text: str, line: int, mend: str) -> None:
    with pytest.raises(ScriptFileError) as refused:
        parse_script(text)

    assert refused.value.line == line
    assert mend in refused.value.message


@given(st.text(max_size=200))
def test_any_text_is_a_script_or_a_typed_refusal(text: str) -> None:
    with suppress(ScriptFileError):
        assert parse_script(text).steps


lines = st.lists(st.text("ab -", max_size=3), min_size=1, max_size=12)


@given(lines, st.data())
def test_a_patch_changes_exactly_the_first_place(content: list[str], data: st.DataObject) -> None:
    text = "\n".join(content) + "\n"
    assume(len(text) > 1)
    start = data.draw(st.integers(0, len(text) - 2))
    end = data.draw(st.integers(start + 1, len(text) - 1))
    old = text[start:end]
    new = data.draw(st.text("xy\n", max_size=3))
    assume(not old.endswith("\n"))

    patched = apply(edit_patch("f", text, old, new), text)

    assert patched == text.replace(old, new, 1)


def apply(patch: str, text: str) -> str:
    """What Codex does with a patch of one hunk: the first place where its old lines stand is replaced."""
    hunk = patch.split("@@\n")[1].removesuffix("*** End Patch\n").removesuffix("\n").split("\n")
    old = [line[1:] for line in hunk if line[0] in " -"]
    new = [line[1:] for line in hunk if line[0] in " +"]
    have = text.removesuffix("\n").split("\n")
    place = next(at for at in range(len(have)) if have[at : at + len(old)] == old)
    return "\n".join([*have[:place], *new, *have[place + len(old) :]]) + "\n"


@settings(max_examples=25)
@given(st.text("ab'\"$\n\\`*?[ ", min_size=1, max_size=6), st.text("cd'\"$\n\\`% ", max_size=6))
def test_a_shell_edit_changes_exactly_these_bytes(tmp_path_factory: pytest.TempPathFactory, old: str, new: str) -> None:
    path = tmp_path_factory.mktemp("edit") / "it's a file"
    text = f"x{old}y\n\n"
    assume(text.count(old) == 1)
    subprocess.run(["sh", "-c", write_command(str(path), text)], check=True, capture_output=True)

    subprocess.run(["sh", "-c", edit_command(str(path), old, new)], check=True, capture_output=True)

    assert Path(path).read_text() == f"x{new}y\n\n"


def test_a_shell_edit_without_its_text_fails_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("abc")

    done = subprocess.run(["sh", "-c", edit_command(str(path), "x", "y")], check=False, capture_output=True)

    assert done.returncode == 1
    assert b"is not in" in done.stderr
    assert path.read_text() == "abc"


def test_calls_in_code_mode_are_valid_text() -> None:
    script = parse_script(json.dumps({"steps": [{"call": {"tool": "shell", "args": {"command": "echo `'\"${x}"}}}]}))

    turn = ScriptPlayer(script, CodexVoice({})).play(asked(CODE)).answer

    assert json.dumps("echo `'\"${x}") in str(turn.calls[0].arguments)  # type: ignore[union-attr]
