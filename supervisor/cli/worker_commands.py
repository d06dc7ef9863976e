"""`mxs ps`, `stop`, `rm`, `diff`, `apply`, `show`: what became of workers. All but `stop` need no supervisor."""

from functools import partial
from typing import Annotated, Final

import anyio
import typer

from supervisor.cli.options import JsonOption, WorkerArgument
from supervisor.cli.run_view import cut, lines_of
from supervisor.cli.session import state_folder
from supervisor.cli.terminal import print_json, say, table
from supervisor.control.client import running_supervisor
from supervisor.refusal import EXIT_FAILED, Refusal
from supervisor.removal import remove_worker
from supervisor.repo import ResultStat, WorkerRepository
from supervisor.worker_spec import WorkerRecord
from supervisor.worker_store import WorkerStore

_DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


def ps(
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also workers that have ended.")] = False,
    json_: JsonOption = False,
) -> None:
    """List workers: those that run, or all that are kept."""
    records = [record for record in WorkerStore(state_folder()).all() if all_ or record.state != "ended"]
    if json_:
        for record in records:
            print_json(record.to_json())
        return
    rows = [[r.id, r.name or "", r.state, _status(r), r.role, r.created_at, cut(r.prompt, 40)] for r in records]
    table(["ID", "NAME", "STATE", "STATUS", "ROLE", "CREATED", "PROMPT"], rows)


def stop(workers: Annotated[list[str], typer.Argument(metavar="ID…", help="Workers to stop.")]) -> None:
    """Stop running workers; their work so far comes back as a branch."""
    home = state_folder()
    client = running_supervisor(home)
    for word in workers:
        record = WorkerStore(home).find(word)
        if client is not None:
            client.post(f"/workers/{record.id}/stop")
        say(record.id)


def rm(
    workers: Annotated[list[str], typer.Argument(metavar="ID…", help="Workers to forget.")],
    force: Annotated[bool, typer.Option("--force", "-f", help="Also when the result is nowhere else.")] = False,
) -> None:
    """Remove what is kept of ended workers. The audit log and the branch stay."""
    home = state_folder()
    client = running_supervisor(home)
    store = WorkerStore(home)
    for word in workers:
        record = store.find(word)
        if client is not None:
            client.delete(f"/workers/{record.id}?force={int(force)}")
        else:
            anyio.run(partial(remove_worker, home, record, force=force))
        say(record.id)


def diff(
    worker: WorkerArgument,
    stat: Annotated[bool, typer.Option("--stat", help="Only the sums.")] = False,
    json_: JsonOption = False,
) -> None:
    """Show what a worker changed, as a unified diff."""
    record = _with_branch(worker)
    repository = anyio.run(WorkerRepository.reopen, state_folder().worker(record.id).repo)
    if stat:
        print_sums(anyio.run(repository.stat), as_json=json_)
        return
    text = anyio.run(repository.diff).decode(errors="replace")
    if json_:
        print_json({"worker": record.id, "branch": f"mxs/{record.id}", "diff": text})
    else:
        for line in text.splitlines():
            say(line, style=_DIFF_STYLES.get(line[:1], ""))


def apply(worker: WorkerArgument, json_: JsonOption = False) -> None:
    """Bring a worker's changes to the work tree, uncommitted: all of them, or none and exit 1."""
    record = _with_branch(worker)
    repository = anyio.run(WorkerRepository.reopen, state_folder().worker(record.id).repo)
    changed = anyio.run(repository.apply)
    WorkerStore(state_folder()).save(record.model_copy(update={"applied": True}))
    if json_:
        print_json({"worker": record.id, "files": list(changed)})
    else:
        say(f"applied {record.id} to {record.repo}, uncommitted: {len(changed)} file(s)")


def show(worker: WorkerArgument, json_: JsonOption = False) -> None:
    """Show one worker: what it was asked, how it ended, what it brought back."""
    record = WorkerStore(state_folder()).find(worker)
    if json_:
        print_json(record.to_json())
        return
    say(f"{record.id} {record.name or ''} ({record.kind}, role {record.role})", style="bold")
    say(f"  asked: {record.prompt}")
    say(f"  repository: {record.repo}")
    say(f"  created {record.created_at}, ended {record.ended_at or '-'}, state {record.state}")
    if record.result is not None:
        for line in lines_of({"type": "result", "worker": record.id, **record.result}):
            say(line.text, style=line.style)


def print_sums(sums: ResultStat, *, as_json: bool) -> None:
    """Files and lines changed."""
    if as_json:
        print_json({"changed": sums.changed, "insertions": sums.insertions, "deletions": sums.deletions})
    else:
        say(f"{sums.changed} file(s) changed, {sums.insertions} insertion(s), {sums.deletions} deletion(s)")


def _with_branch(worker: str) -> WorkerRecord:
    record = WorkerStore(state_folder()).find(worker)
    if record.state != "ended":
        raise Refusal(
            f"{record.id} is {record.state}: its branch comes at its end.",
            "Wait for it, or stop it.",
            exit_code=EXIT_FAILED,
        )
    if not (record.result or {}).get("branch"):
        raise Refusal(f"{record.id} brought no change back.", exit_code=EXIT_FAILED)
    return record


def _status(record: WorkerRecord) -> str:
    return str((record.result or {}).get("status", ""))
