"""What a person sees of a run: each event as lines of text and a style. Pure; `terminal` prints them safely."""

import json
from typing import Final, NamedTuple

from bridge.contract.json_types import JsonObject, JsonValue

MOST_SHOWN: Final = 10
LONGEST_QUESTION: Final = 2000
"""Characters of the arguments that a person is asked about: enough to judge by, too few to scroll the op away."""

LONGEST_SUMMARY: Final = 160
"""Characters of an argument or a result in one line; `mxs audit show` has the rest."""


class Line(NamedTuple):
    """One line to print, and a style of rich's: "" is plain."""

    text: str
    style: str = ""


def lines_of(event: JsonObject) -> list[Line]:
    """The lines for one event of `mxs run`; none for what only a program wants."""
    show = _VIEWS.get(str(event.get("type")))
    return show(event) if show is not None else []


def cut(text: str, longest: int = LONGEST_SUMMARY) -> str:
    """`text` on one line, cut with a mark."""
    flat = " ".join(text.split())
    return flat if len(flat) <= longest else flat[: longest - 1] + "…"


def _notice(event: JsonObject) -> list[Line]:
    return [Line(f"! {event.get('text')}", "yellow")]


def _phase(event: JsonObject) -> list[Line]:
    return [Line(f"  {event.get('phase')} {_seconds(event.get('ms'))}", "dim")]


def _call(event: JsonObject) -> list[Line]:
    verdict = str(event.get("verdict"))
    mark, style = {"allow": ("→", "cyan"), "ask": ("?", "yellow")}.get(verdict, ("✗", "red"))
    name = f"{event.get('target')} {event.get('op')}" if event.get("source") == "bus" else str(event.get("op"))
    why = "" if verdict == "allow" else f"  {event.get('reason')}"
    return [Line(f"{mark} {name} {cut(str(event.get('summary', '')))}{why}", style)]


def _call_result(event: JsonObject) -> list[Line]:
    outcome = str(event.get("outcome"))
    if outcome == "denied":
        return []
    style = "dim" if outcome == "ok" else "red"
    mark = "ok" if outcome == "ok" else outcome
    return [Line(f"  {mark} {_seconds(event.get('durationMs'))} {cut(str(event.get('summary', '')))}", style)]


def _approval(event: JsonObject) -> list[Line]:
    payload = cut(json.dumps(event.get("payload"), ensure_ascii=False), LONGEST_QUESTION)
    return [Line(f"? {event.get('tool') or event.get('op')} {payload}", "yellow")]


def _retry(event: JsonObject) -> list[Line]:
    return [Line(f"! the provider: {event.get('reason')}; try {event.get('attempt')}", "yellow")]


def _agent(event: JsonObject) -> list[Line]:
    did = "started" if event.get("type") == "agent.started" else "ended"
    return [Line(f"  sub-agent {event.get('agent')} {did}", "dim")]


def _waiting(_: JsonObject) -> list[Line]:
    return [
        Line("! waiting for a provider's key: give it by running a command with the key in its environment", "yellow")
    ]


def _egress(event: JsonObject) -> list[Line]:
    where, error = f"{event.get('host')}:{event.get('port')}", event.get("error")
    figures = f"{event.get('bytesIn')} bytes in, {event.get('bytesOut')} out, {_seconds(event.get('durationMs'))}"
    if isinstance(error, dict):
        return [Line(f"  egress {where} {figures}: {cut(str(error.get('message')))}", "yellow")]
    return [Line(f"  egress {where} {figures}", "dim")]


def _refused_request(event: JsonObject) -> list[Line]:
    """A tunnel that is not on the list; other refused requests are for programs."""
    if event.get("method") != "CONNECT":
        return []
    return [Line(f"! no tunnel to {cut(str(event.get('path')))}: {cut(str(event.get('why')))}", "yellow")]


def _result(event: JsonObject) -> list[Line]:
    return [Line(""), *_verdict(event), *_work(event), *_figures(event)]


def _verdict(event: JsonObject) -> list[Line]:
    status, error = event.get("status"), event.get("error")
    if status == "completed":
        return [Line(f"{event.get('worker')} completed", "bold green")]
    lines = [Line(f"{event.get('worker')} {status}", "bold red")]
    if isinstance(error, dict):
        lines.append(Line(f"  {error.get('code')}: {error.get('message')}", "red"))
    return lines


def _work(event: JsonObject) -> list[Line]:
    lines, files = [], event.get("files")
    if event.get("branch") and isinstance(files, dict):
        changed = f"{files.get('changed')} file(s), +{files.get('insertions')} -{files.get('deletions')}"
        lines.append(Line(f"  branch {event.get('branch')}: {event.get('commits')} commit(s), {changed}"))
    else:
        lines.append(Line("  no change to bring back"))
    left = [item for item in _list(event.get("leftBehind")) if not _is_ignored(item)]
    for title, items in (("left behind", left), ("review before running", _list(event.get("review")))):
        lines += [Line(f"  {title}: {_item(item)}", "yellow") for item in items[:MOST_SHOWN]]
        if len(items) > MOST_SHOWN:
            lines.append(Line(f"  {title}: {len(items) - MOST_SHOWN} more (--json has all)", "yellow"))
    return lines


def _figures(event: JsonObject) -> list[Line]:
    calls, tokens, audit = (_dict(event.get(key)) for key in ("calls", "tokens", "audit"))
    kinds = ", ".join(f"{calls.get(name)} {name}" for name in ("allowed", "denied", "failed"))
    counted = f"{calls.get('total')} call(s): {kinds}"
    spent = f"{event.get('inferences')} inference(s), {tokens.get('input')} + {tokens.get('output')} tokens"
    return [
        Line(f"  {counted}"),
        Line(
            f"  {spent}, {_seconds(event.get('durationMs'))}, records {audit.get('first')} to {audit.get('last')}",
            "dim",
        ),
    ]


def _is_ignored(item: JsonValue) -> bool:
    """What the repository itself ignores is no news to a person."""
    return isinstance(item, dict) and str(item.get("why", "")).startswith("ignored")


def _item(item: JsonValue) -> str:
    if isinstance(item, dict):
        return f"{item.get('path')} ({item.get('why')})"
    return str(item)


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _dict(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _seconds(ms: JsonValue) -> str:
    return f"{ms / 1000:.2f} s" if isinstance(ms, int | float) and not isinstance(ms, bool) else ""


_VIEWS: Final = {
    "notice": _notice,
    "phase": _phase,
    "call": _call,
    "call.result": _call_result,
    "approval": _approval,
    "retry": _retry,
    "agent.started": _agent,
    "agent.ended": _agent,
    "waitingForKey": _waiting,
    "egress": _egress,
    "refusedRequest": _refused_request,
    "result": _result,
}
