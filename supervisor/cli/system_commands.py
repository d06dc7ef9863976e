"""`mxs up`, `down`, `status`, `trust`, `approvals`, `approve`, `deny`: the supervisor, and what waits for a person."""

import json
from pathlib import Path
from typing import Annotated, cast

import typer

from bridge.contract.json_types import JsonObject
from supervisor.cli.options import ActorsOption, ConfigOption, JsonOption, RootOption
from supervisor.cli.session import SharedOptions, open_session, state_folder
from supervisor.cli.terminal import print_json, say, table
from supervisor.configuration import FILE_NAME
from supervisor.control.client import ControlClient, end_supervisor, running_supervisor
from supervisor.refusal import EXIT_UNAVAILABLE, Refusal
from supervisor.trust import TrustStore


def up(
    actors: ActorsOption = None, root: RootOption = None, config: ConfigOption = None, json_: JsonOption = False
) -> None:
    """Start the supervisor in the background, and load actors."""
    _print_status(open_session(SharedOptions(None, tuple(actors or ()), root, config)).client, as_json=json_)


def down() -> None:
    """Stop every worker and end the supervisor with all its processes."""
    home = state_folder()
    client = running_supervisor(home)
    if client is None:
        say("no supervisor runs")
        return
    if not end_supervisor(client):
        raise Refusal(
            "The supervisor is still there.", f"See {home.logs / 'supervisor.log'}.", exit_code=EXIT_UNAVAILABLE
        )


def status(json_: JsonOption = False) -> None:
    """Show the running supervisor; exit code 3 when none runs."""
    client = running_supervisor(state_folder())
    if client is None:
        raise Refusal("No supervisor runs.", "`mxs up` starts one.", exit_code=EXIT_UNAVAILABLE)
    _print_status(client, as_json=json_)


def trust(path: Annotated[Path, typer.Argument(help="A repository, or its mxs.toml.")] = Path()) -> None:
    """Let a repository's mxs.toml and its permission file count, exactly as they are now."""
    file = path / FILE_NAME if path.is_dir() else path
    if not file.is_file():
        raise Refusal(f"{file}: there is no such file.", f"Name a folder that holds {FILE_NAME}.")
    TrustStore(state_folder().trusted).trust(file.absolute())
    say(f"trusted as it is now: {file.absolute()}")


def approvals(json_: JsonOption = False) -> None:
    """List the calls that wait for a person."""
    client = running_supervisor(state_folder())
    pending = cast("list[JsonObject]", client.get("/approvals")["approvals"]) if client is not None else []
    if json_:
        for question in pending:
            print_json(question)
        return
    rows = [[q["number"], q["worker"], q.get("tool") or q.get("op"), json.dumps(q.get("payload"))] for q in pending]
    table(["N", "WORKER", "CALL", "ARGUMENTS"], rows)


Number = Annotated[int, typer.Argument(metavar="N", help="The question's number, as `mxs approvals` lists it.")]


def approve(number: Number) -> None:
    """Allow the call that waits as number N, once."""
    _answer(number, "allow")


def deny(number: Number) -> None:
    """Deny the call that waits as number N."""
    _answer(number, "deny")


def _answer(number: int, verdict: str) -> None:
    client = running_supervisor(state_folder())
    if client is None:
        raise Refusal("No supervisor runs, so nothing waits.", exit_code=EXIT_UNAVAILABLE)
    client.post(f"/approvals/{number}", {"verdict": verdict, "by": "command line"})


def _print_status(client: ControlClient, *, as_json: bool) -> None:
    state = client.get("/status")
    if as_json:
        print_json(state)
        return
    say(f"mxs {state['version']}, root {state['root']}, bus {state['bus']}, process {state['pid']}")
    workers = cast("JsonObject", state["workers"])
    say(f"  home {state['home']}; {workers['running']} worker(s) running; {state['recordsWaiting']} record(s) waiting")
