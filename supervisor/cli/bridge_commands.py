"""`mxs invoke`, `mxs actors …`, `mxs policy …`: what the bridge answers, under the same permissions as a worker."""

import sys
from pathlib import Path
from typing import Annotated, Final, cast

import typer

from bridge.contract import strict_json
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject
from supervisor.cli.options import ActorsOption, ConfigOption, JsonOption, PolicyOption, RoleOption, RootOption
from supervisor.cli.session import Session, SharedOptions, open_session
from supervisor.cli.terminal import complain, print_json, say, table
from supervisor.refusal import EXIT_ASK, EXIT_FAILED, EXIT_REFUSED, EXIT_USAGE, Refusal, exit_code_of_call

actors_app = typer.Typer(no_args_is_help=True, help="The catalog of actors.")
policy_app = typer.Typer(no_args_is_help=True, help="Permission files: check one, explain a verdict.")

INVOKE_TIMEOUT_S: Final = 600.0
"""Longer than any call: its own time limit and a person's approval end it before."""

Target = Annotated[str, typer.Argument(help="The actor's mount, e.g. demo.inventory.")]
Op = Annotated[str, typer.Argument(help="The op, e.g. inventory.check.")]


def invoke(
    target: Target,
    op: Op,
    payload: Annotated[str, typer.Argument(help="The op's arguments as JSON; - reads standard input.")] = "{}",
    role: RoleOption = None,
    policy: PolicyOption = None,
    actors: ActorsOption = None,
    root: RootOption = None,
    config: ConfigOption = None,
    json_: JsonOption = False,
) -> None:
    """Call one op of an actor through the bridge, as a person under a role."""
    session = open_session(SharedOptions(policy, tuple(actors or ()), root, config))
    text = sys.stdin.read() if payload == "-" else payload
    waits = session.configuration.timeouts
    timeouts: JsonObject = {"toolMs": waits.tool_ms, "introspectMs": waits.introspect_ms}
    caller: JsonObject = {**_role_and_policy(session, role), "timeouts": timeouts}
    answer = session.client.post("/invoke", {**caller, "target": target, "op": op, "payload": text}, INVOKE_TIMEOUT_S)
    error = answer.get("error")
    if isinstance(error, dict):
        code, message = str(error.get("code")), str(error.get("message"))
        if json_:
            print_json({"error": {"code": code, "message": message}})
        else:
            complain(f"{code}: {message}", style="red")
        raise typer.Exit(_exit_code(code, text))
    print_json({"result": answer.get("result")} if json_ else answer.get("result"))


def _exit_code(code: str, payload: str) -> int:
    """What was too large is the caller's fault only where the payload was: else it was the actor's result."""
    if code == "MX_AGENT_TOO_LARGE":
        try:
            strict_json.loads(payload)
        except MatrixError:
            return EXIT_USAGE
        return EXIT_FAILED
    return exit_code_of_call(code)


@actors_app.command("list")
def list_actors(
    actors: ActorsOption = None, root: RootOption = None, config: ConfigOption = None, json_: JsonOption = False
) -> None:
    """List the actors that are mounted."""
    session = open_session(SharedOptions(None, tuple(actors or ()), root, config))
    found = cast("list[JsonObject]", session.client.bridge("actors.list", {})["actors"])
    if json_:
        for actor in found:
            print_json(actor)
        return
    rows = [[str(a["mount"]), str(len(cast("list[str]", a["ops"]))), str(a["description"])] for a in found]
    table(["MOUNT", "OPS", "DESCRIPTION"], rows)


@actors_app.command("describe")
def describe_actor(
    target: Target,
    actors: ActorsOption = None,
    root: RootOption = None,
    config: ConfigOption = None,
    json_: JsonOption = False,
) -> None:
    """Show what one actor declares: its ops, state, facts and events."""
    session = open_session(SharedOptions(None, tuple(actors or ()), root, config))
    try:
        declared = session.client.bridge("actors.describe", {"target": target})
    except Refusal as refusal:
        raise Refusal(
            refusal.message, "`mxs actors list` shows what is mounted.", exit_code=EXIT_FAILED, code=refusal.code
        ) from None
    if json_:
        print_json(declared)
        return
    say(f"{declared.get('root')}/{target}  {declared.get('type')}", style="bold")
    say(f"  {declared.get('description')}")
    for section in ("accepts", "state", "blackboard", "emits"):
        for name, entry in cast("dict[str, JsonObject]", declared.get(section) or {}).items():
            say(f"  {section} {name}: {entry.get('description')}")
            for field, descriptor in cast("dict[str, JsonObject]", entry.get("schema") or {}).items():
                kind = "" if not descriptor.get("optional") else ", optional"
                say(f"      {field} ({descriptor.get('type')}{kind}): {descriptor.get('description')}", style="dim")


@actors_app.command("lint")
def lint_actors(
    path: Annotated[Path, typer.Argument(help="A file or folder of actors.")], json_: JsonOption = False
) -> None:
    """Name every op and field without a description. The actors are read, not run."""
    if not path.exists():
        raise Refusal(f"{path}: there is no such file or folder.")
    session = open_session(SharedOptions())
    problems = cast(
        "list[JsonObject]", session.client.bridge("actors.lint", {"path": str(path.absolute())})["problems"]
    )
    if json_:
        print_json({"problems": [*problems]})
    for problem in [] if json_ else problems:
        say(f"{problem.get('file')}:{problem.get('line')}: {problem.get('where')}: {problem.get('message')}")
    if problems:
        raise typer.Exit(EXIT_FAILED)


@actors_app.command("reload")
def reload_actors(
    target: Annotated[str | None, typer.Argument(help="Only the host of this actor.")] = None, json_: JsonOption = False
) -> None:
    """Load what changed in the actors' files, their state kept."""
    session = open_session(SharedOptions())
    answer = session.client.bridge("actors.reload", {"target": target})
    print_json(answer) if json_ else say(f"reloaded: {answer.get('mounts')}")


@policy_app.command("check")
def check_policy(file: Annotated[Path, typer.Argument(help="A permission file.")], json_: JsonOption = False) -> None:
    """Validate a permission file: each problem with its line and its mend."""
    session = open_session(SharedOptions())
    answer = session.client.bridge("policy.check", {"path": str(file.absolute())})
    if json_:
        print_json(answer)
    elif answer.get("ok"):
        say(f"{file}: good; roles {', '.join(map(str, cast('list[str]', answer.get('roles'))))}")
    for problem in [] if json_ else cast("list[JsonObject]", answer.get("problems") or []):
        complain(f"{file}:{problem.get('line')}: {problem.get('message')} {problem.get('mend')}")
    if not answer.get("ok"):
        raise typer.Exit(EXIT_USAGE)


@policy_app.command("explain")
def explain_policy(
    target: Target,
    op: Op,
    role: RoleOption = None,
    policy: PolicyOption = None,
    actors: ActorsOption = None,
    root: RootOption = None,
    config: ConfigOption = None,
    json_: JsonOption = False,
) -> None:
    """Say what the bridge would decide about a call, and why. Exit code 0 allow, 4 deny, 7 ask."""
    session = open_session(SharedOptions(policy, tuple(actors or ()), root, config))
    shared = _role_and_policy(session, role)
    asked: JsonObject = {"path": shared["policy"], "role": shared["role"], "target": target, "op": op}
    answer = session.client.bridge("policy.explain", asked)
    if json_:
        print_json({key: answer.get(key) for key in ("verdict", "reason", "rule", "nearest")})
    else:
        say(f"{answer.get('verdict')}: {answer.get('reason')}, by {answer.get('rule') or 'no rule'}")
        if answer.get("nearest"):
            say(f"  nearest allowed: {answer.get('nearest')}")
    codes = {"allow": 0, "ask": EXIT_ASK}
    raise typer.Exit(codes.get(str(answer.get("verdict")), EXIT_REFUSED))


def _role_and_policy(session: Session, role: str | None) -> JsonObject:
    return {"role": role or session.configuration.role, "policy": str(session.policy) if session.policy else None}
