"""`mxs`: the commands put together, and the one place where a refusal becomes words and an exit code."""

import sys
from typing import Annotated, NoReturn

import typer

import supervisor
from supervisor.cli import (
    audit_commands,
    bridge_commands,
    doctor_command,
    run_command,
    system_commands,
    worker_commands,
)
from supervisor.cli.terminal import complain, say
from supervisor.refusal import EXIT_FAILED, EXIT_INTERRUPTED, Refusal
from supervisor.repo import RepositoryError
from supervisor.worker_store import UnknownWorkerError

app = typer.Typer(
    name="mxs",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Run coding agents in hardened containers; every tool call is judged and recorded.",
)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"mxs {supervisor.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run coding agents in hardened containers; every tool call is judged and recorded."""


for _command in (
    run_command.run,
    worker_commands.ps,
    run_command.logs,
    worker_commands.stop,
    worker_commands.rm,
    worker_commands.diff,
    worker_commands.apply,
    worker_commands.show,
    system_commands.approvals,
    system_commands.approve,
    system_commands.deny,
    bridge_commands.invoke,
    system_commands.trust,
    system_commands.up,
    system_commands.down,
    system_commands.status,
    doctor_command.doctor,
):
    app.command()(_command)
app.add_typer(bridge_commands.actors_app, name="actors")
app.add_typer(bridge_commands.policy_app, name="policy")
app.add_typer(audit_commands.app, name="audit")


def main() -> NoReturn:
    """Run the command line and exit."""
    try:
        code = app(prog_name="mxs", standalone_mode=False) or 0
    except Refusal as refusal:
        code = _refuse(refusal)
    except UnknownWorkerError as unknown:
        code = _refuse(Refusal(str(unknown), exit_code=EXIT_FAILED))
    except RepositoryError as fault:
        code = _refuse(Refusal(fault.message, fault.mend, exit_code=fault.exit_code))
    except (KeyboardInterrupt, typer.Abort):
        code = EXIT_INTERRUPTED
    except typer.TyperException as fault:
        code = _refuse(Refusal(fault.format_message(), "`mxs --help` and `mxs COMMAND --help` show what is possible."))
    except BrokenPipeError:
        code = EXIT_FAILED
    sys.exit(code)


def _refuse(refusal: Refusal) -> int:
    complain(f"mxs: {refusal.code + ': ' if refusal.code else ''}{refusal.message}", style="red")
    if refusal.mend:
        complain(f"  {refusal.mend}")
    return refusal.exit_code
