"""`mxs run` and `mxs logs`: start a worker and show what it does, or what it did."""

import json
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, NamedTuple, cast

import typer

from bridge.contract.json_types import JsonObject
from sandboxes.gateway.egress_list import EgressEntryError, parse_egress
from supervisor.cli.options import ActorsOption, ConfigOption, JsonOption, PolicyOption, RootOption, WorkerArgument
from supervisor.cli.run_printer import RunPrinter
from supervisor.cli.session import Session, SharedOptions, open_session, state_folder
from supervisor.cli.terminal import complain, print_json, say
from supervisor.configuration import size_bytes
from supervisor.control.client import ControlClient, running_supervisor
from supervisor.refusal import EXIT_FAILED, Refusal, exit_code_of
from supervisor.worker_spec import Limits, RunRequest, Timeouts
from supervisor.worker_store import WorkerStore, read_lines
from supervisor.workers.worker import WorkerKind

SCRIPT: Final = "script:"
LARGEST_SCRIPT: Final = 1024 * 1024


class ChosenModel(NamedTuple):
    """A provider's model with the handle of its key, or a script."""

    model: str | None = None
    key_handle: str | None = None
    script: str | None = None
    script_name: str = ""


def run(
    kind: Annotated[WorkerKind, typer.Argument(help="The kind of worker.")],
    prompt: Annotated[
        str | None, typer.Argument(help="What the worker is to do; left out, it is read from standard input.")
    ] = None,
    repo: Annotated[Path, typer.Option(metavar="PATH", help="The git repository; the worker gets a clone.")] = Path(),
    role: Annotated[
        str | None, typer.Option(help="Role of the permission file; may be left out where it has one.")
    ] = None,
    policy: PolicyOption = None,
    actors: ActorsOption = None,
    model: Annotated[str | None, typer.Option(help="A provider's model, or script:FILE.")] = None,
    image: Annotated[str | None, typer.Option(help="Another image for the container (any with glibc).")] = None,
    runtime: Annotated[str | None, typer.Option(help="The engine's runtime, e.g. runsc.")] = None,
    name: Annotated[str | None, typer.Option(help="A name for this worker.")] = None,
    egress: Annotated[
        list[str] | None, typer.Option(metavar="HOST:PORT", help="Also reachable by the worker. Repeatable.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(metavar="S", help="End the run after this many seconds.")] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Start it and print its id.")] = False,
    no_input: Annotated[bool, typer.Option("--no-input", help="Ask nothing: what would be asked is denied.")] = False,
    root: RootOption = None,
    config: ConfigOption = None,
    json_: JsonOption = False,
) -> None:
    """Start a worker on a copy of a repository and stream what it does.

    The result comes back as the branch mxs/ID. Ctrl-C stops the worker; closing the terminal does not.
    """
    listed = _egress(egress)
    options = SharedOptions(policy, tuple(actors or ()), root, config, repo)
    session = open_session(options)
    interactive = not (detach or no_input or json_) and sys.stdin.isatty()
    if session.notice:
        complain(session.notice, style="yellow")
    chosen = _choose_model(model or session.configuration.model, kind, session)
    request = RunRequest(
        kind=kind,
        prompt=_prompt(prompt),
        repo=str(repo.absolute()),
        role=role or session.configuration.role,
        policy=str(session.policy) if session.policy else None,
        image=image or session.configuration.image,
        runtime=runtime,
        name=name,
        egress=listed,
        timeout_s=timeout,
        interactive=interactive,
        limits=_limits(session),
        timeouts=_timeouts(session),
        model=chosen.model,
        script=chosen.script,
        script_name=chosen.script_name,
        key_handle=chosen.key_handle,
    )
    worker = str(session.client.post("/runs", request.to_json())["id"])
    if detach:
        print_json({"worker": worker}) if json_ else say(worker)
        return
    raise typer.Exit(_watch(session.client, worker, as_json=json_, interactive=interactive))


def logs(
    worker: WorkerArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the worker ends.")] = False,
    json_: JsonOption = False,
) -> None:
    """Show what a worker did; with -f also what it does, until it ends."""
    home = state_folder()
    record = WorkerStore(home).find(worker)
    client = running_supervisor(home) if follow else None
    lines = client.events(record.id) if client else read_lines(home.worker(record.id).events, 0)[0]
    _View(as_json=json_).show(lines)


def _watch(client: ControlClient, worker: str, *, as_json: bool, interactive: bool) -> int:
    """Show a run until its end; its exit code. Ctrl-C stops the worker and shows how that ended."""
    view = _View(as_json=as_json, answering=client if interactive else None)
    try:
        return view.show(client.events(worker))
    except KeyboardInterrupt:
        if not as_json:
            complain(f"stopping {worker} …", style="yellow")
        client.post(f"/workers/{worker}/stop")
        return view.show(islice(client.events(worker), view.shown, None))


class _View:
    """Prints events; knows how many it has, so that another reading of the same events can go on after them."""

    def __init__(self, *, as_json: bool, answering: ControlClient | None = None) -> None:
        self.shown = 0
        self._print = print_json if as_json else RunPrinter().print
        self._answering = answering

    def show(self, lines: Iterable[str]) -> int:
        """Print each event; the exit code that the last one, the result, stands for."""
        code = EXIT_FAILED
        for text in lines:
            event = cast("JsonObject", json.loads(text))
            self._print(event)
            self.shown += 1
            if event.get("type") == "approval" and self._answering is not None:
                _answer(event, self._answering)
            if event.get("type") == "result":
                code = _exit_code(event)
        return code


def _answer(event: JsonObject, client: ControlClient) -> None:
    allowed = typer.confirm("Allow this call?", default=False)
    try:
        client.post(f"/approvals/{event['number']}", {"verdict": "allow" if allowed else "deny", "by": "terminal"})
    except Refusal:
        return  # its deadline has passed: it was denied


def _exit_code(result: JsonObject) -> int:
    error = result.get("error")
    return exit_code_of(str(result.get("status")), str(error.get("code")) if isinstance(error, dict) else "")


def _egress(entries: list[str] | None) -> tuple[str, ...]:
    try:
        parse_egress(entries or ())
    except EgressEntryError as fault:
        raise Refusal(f"--egress: {fault}") from fault
    return tuple(entries or ())


def _prompt(prompt: str | None) -> str:
    if prompt is None and sys.stdin.isatty():
        raise Refusal("There is no prompt.", 'Give it: mxs run KIND "what to do", or by standard input.')
    text = sys.stdin.read() if prompt is None else prompt
    if not text.strip():
        raise Refusal("The prompt is empty.", "Say what the worker is to do.")
    return text


def _limits(session: Session) -> Limits:
    asked = session.configuration.limits
    return Limits(memory_bytes=size_bytes(asked.memory, "memory"), cpus=asked.cpus, pids=asked.pids)


def _timeouts(session: Session) -> Timeouts:
    asked = session.configuration.timeouts
    return Timeouts(tool_ms=asked.tool_ms, introspect_ms=asked.introspect_ms, infer_ms=asked.infer_ms)


def _choose_model(model: str | None, kind: WorkerKind, session: Session) -> ChosenModel:
    if model is None or not model.startswith(SCRIPT):
        from supervisor.gateway_keys import give_key  # brings an HTTP client that a script does not need

        return ChosenModel(model=model, key_handle=give_key(kind, session.home))
    path = Path(model.removeprefix(SCRIPT))
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_SCRIPT + 1)
        if len(text) > LARGEST_SCRIPT:
            raise Refusal(f"{path}: the script is over {LARGEST_SCRIPT} bytes.", "Make it shorter.")
        return ChosenModel(script=text.decode(), script_name=str(path))
    except UnicodeDecodeError as fault:
        raise Refusal(f"{path}: the script is not UTF-8.", "Save it as UTF-8.") from fault
    except OSError as fault:
        raise Refusal(f"{path}: the script cannot be read: {fault.strerror}.", "Check --model script:FILE.") from fault
