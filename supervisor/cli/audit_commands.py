"""`mxs audit`: shows, searches, checks and exports the log, straight from its files and without a supervisor.

Decides nothing and writes nothing. What a record says is shown through `terminal`. Above: `supervisor.cli.main`. Below:
the reading side of `bridge.audit`.
"""

import re
import sys
import threading
from datetime import UTC, datetime, timedelta
from json import dumps
from pathlib import Path
from typing import Annotated, Final

import typer

from bridge.audit import query as audit
from bridge.audit.verify import Verification, verify
from bridge.contract.json_types import JsonObject
from supervisor.cli.terminal import complain, print_json, say
from supervisor.home import StateFolder, state_home

audit_app = typer.Typer(no_args_is_help=True, help="Read and check the audit log; needs no supervisor.")

EXIT_BROKEN: Final = 1
EXIT_UNKNOWN: Final = 1
EXIT_USAGE: Final = 2
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_GOOD: Final = frozenset({"allow", "ok"})

Json = Annotated[bool, typer.Option("--json", help="Print records as JSON, one a line.")]


def _time(text: str) -> str:
    """A point in time as records state it: RFC 3339, or an age such as `90s`, `15m`, `2h`, `7d`."""
    if age := re.fullmatch(r"([0-9]{1,9})([smhd])", text):
        try:
            at = datetime.now(UTC) - timedelta(**{_UNITS[age[2]]: int(age[1])})
        except OverflowError:
            raise typer.BadParameter(f"{text!r} lies before all time") from None
    else:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is no time; give RFC 3339, or an age such as 15m, 2h, 7d") from None
    at = at if at.tzinfo else at.astimezone()
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Since = Annotated[
    str | None, typer.Option(parser=_time, metavar="TIME", help="From then on: RFC 3339, or an age: 15m, 2h, 7d.")
]
Until = Annotated[str | None, typer.Option(parser=_time, metavar="TIME", help="Before then; like --since.")]


@audit_app.command()
def tail(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new records as they are written.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last records.")] = 20,
    json: Json = False,
) -> None:
    """Show the last records."""
    folder = StateFolder(state_home()).audit
    stop = threading.Event()
    if not follow:
        stop.set()
    try:
        for record in audit.follow(folder, stop, last=lines):
            _show(record, json=json)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@audit_app.command("query")
def query_records(
    worker: Annotated[str | None, typer.Option(help="Only this worker's.")] = None,
    run: Annotated[str | None, typer.Option(help="Only this run's.")] = None,
    role: Annotated[str | None, typer.Option(help="Only calls under this role.")] = None,
    target: Annotated[str | None, typer.Option(help="Only calls to this target and below it.")] = None,
    op: Annotated[str | None, typer.Option(help="Only this op.")] = None,
    verdict: Annotated[str | None, typer.Option(help="allow, deny or ask.")] = None,
    outcome: Annotated[
        str | None, typer.Option(help="ok, denied, invalid, timedOut, failed, cancelled or unknown.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Only records of this kind, such as tool.call.")] = None,
    source: Annotated[str | None, typer.Option(help="bus (enforced) or native (claimed by the worker).")] = None,
    since: Since = None,
    until: Until = None,
    text: Annotated[str | None, typer.Option(help="Only records with this text somewhere.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the last so many.")] = None,
    json: Json = False,
) -> None:
    """Show the records for which everything given holds."""
    wanted = audit.AuditQuery(
        worker=worker, run=run, role=role, target=target, op=op, verdict=verdict, outcome=outcome, kind=kind,
        source=source, since=since, until=until, text=text, limit=limit,
    )  # fmt: skip
    for record in audit.query(StateFolder(state_home()).audit, wanted):
        _show(record, json=json)


@audit_app.command()
def show(call: Annotated[str, typer.Argument(metavar="CALL", help="A call's id.")], json: Json = False) -> None:
    """Show everything recorded of one call: the call, its approvals, its result and what it changed."""
    records = audit.find_call(StateFolder(state_home()).audit, call)
    if not records:
        complain(f"No record belongs to a call {call!r}; `mxs audit query --kind tool.call` lists the calls.")
        raise typer.Exit(EXIT_UNKNOWN)
    for record in records:
        if json:
            print_json(record)
        else:
            _show_fields(record)


@audit_app.command("verify")
def verify_log(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A copy or an export; default: the log itself.")
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(help="Folder with the public key and the anchors; default: $MXS_HOME/keys.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON document.")] = False,
) -> None:
    """Check that no record was changed, moved, inserted or taken away: exit 0 intact, 1 broken."""
    home = StateFolder(state_home())
    if file is not None and not file.is_file():
        complain(f"There is no file {str(file)!r} to verify.")
        raise typer.Exit(EXIT_USAGE)
    try:
        outcome = verify(file or audit.log_path(home.audit), keys or home.keys)
    except (OSError, ValueError) as error:
        complain(f"The log cannot be verified: {error}. Make its files readable, or name others.")
        raise typer.Exit(EXIT_USAGE) from None
    if json:
        print_json(_outcome_value(outcome))
    else:
        _say_outcome(outcome)
    if not outcome.intact:
        raise typer.Exit(EXIT_BROKEN)


@audit_app.command()
def export(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this new file instead.")] = None,
) -> None:
    """Print every record, one a line, byte for byte as stored."""
    lines = audit.read_lines(StateFolder(state_home()).audit)
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.writelines(lines)
        sys.stdout.buffer.flush()
        return
    try:
        with output.open("xb") as copy:
            copy.writelines(lines)
    except OSError as error:
        complain(f"Cannot write {str(output)!r}: {error.strerror}. Name a file that does not exist yet.")
        raise typer.Exit(EXIT_USAGE) from None


def _show(record: JsonObject, *, json: bool) -> None:
    if json:
        print_json(record)
        return
    words = [str(record.get("seq", "?")), str(record.get("at", "")), str(record.get("kind", "?"))]
    ending, style = _ending(record)
    words += [str(record[name]) for name in ("worker", "target", "op", "path", "state") if record.get(name) is not None]
    line = "  ".join([*words, *ending]).replace("\n", "\\n")
    say(line, style)


def _ending(record: JsonObject) -> tuple[list[str], str]:
    """The verdict or outcome with its reason, and the style that a look at it deserves."""
    decision = record.get("decision")
    if isinstance(decision, dict):
        said = [str(decision.get("verdict")), str(decision.get("reason"))]
    elif record.get("outcome") is not None:
        said = [str(record["outcome"]), f"{record.get('durationMs')} ms"]
    else:
        return [], ""
    if record.get("source") == "native":
        said.append("(native)")
    return said, "" if said[0] in _GOOD else "yellow" if said[0] == "ask" else "red"


def _show_fields(record: JsonObject) -> None:
    say(f"record {record.get('seq')}  {record.get('at')}  {record.get('kind')}", "bold")
    for name, value in record.items():
        if name not in ("seq", "at", "kind", "prev", "hash") and value is not None:
            say(f"  {name}: {value if isinstance(value, str) else dumps(value)}")


def _outcome_value(outcome: Verification) -> JsonObject:
    bad = outcome.first_bad
    return {
        "intact": outcome.intact,
        "records": outcome.records,
        "head": outcome.head,
        "anchored": outcome.anchored,
        "unanchored": outcome.unanchored,
        "keyKnown": outcome.key_known,
        "unfinishedBytes": outcome.unfinished_bytes,
        "firstBad": None if bad is None else {"seq": bad.seq, "line": bad.line, "what": bad.what},
    }


def _say_outcome(outcome: Verification) -> None:
    bad = outcome.first_bad
    if bad is None:
        say(f"intact: {outcome.records} records, {outcome.anchored} anchored, {outcome.unanchored} unanchored", "green")
    else:
        say(f"BROKEN at record {bad.seq} (line {bad.line}): {bad.what}", "bold red")
        say(f"{outcome.records} records before it are intact, {outcome.anchored} of them anchored")
    if not outcome.key_known:
        say("no public key was found, so checkpoints could not be checked: name its folder with --keys", "yellow")
    if outcome.unfinished_bytes:
        say(f"{outcome.unfinished_bytes} bytes after the last complete line were not looked at", "yellow")
