"""`mxs`: the commands put together, and the one place where a refusal becomes words and an exit code."""

import sys
from importlib import import_module
from typing import Annotated, Final, NoReturn

import typer

import supervisor
from supervisor.cli.terminal import complain, say
from supervisor.refusal import EXIT_FAILED, EXIT_INTERRUPTED, Refusal
from supervisor.repo.repository_error import RepositoryError
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


COMMANDS: Final = {
    "run": "run_command",
    "ps": "worker_commands",
    "logs": "run_command",
    "stop": "worker_commands",
    "rm": "worker_commands",
    "diff": "worker_commands",
    "apply": "worker_commands",
    "show": "worker_commands",
    "approvals": "system_commands",
    "approve": "system_commands",
    "deny": "system_commands",
    "invoke": "bridge_commands",
    "trust": "system_commands",
    "up": "system_commands",
    "down": "system_commands",
    "status": "system_commands",
    "doctor": "doctor_command",
}
"""Each command, a function of its own name in a module of this package."""

GROUPS: Final = {"actors": "bridge_commands", "policy": "bridge_commands", "audit": "audit_commands"}
"""Each group of commands, `<name>_app` in a module of this package."""


def command_line(words: list[str]) -> typer.Typer:
    """The application with the command at hand, or all where none is named: importing all takes most of a second."""
    wanted = words[0] if words and words[0] in {*COMMANDS, *GROUPS} else None
    for name, module in COMMANDS.items():
        if wanted in (None, name):
            app.command(name)(getattr(import_module(f"supervisor.cli.{module}"), name))
    for name, module in GROUPS.items():
        if wanted in (None, name):
            app.add_typer(getattr(import_module(f"supervisor.cli.{module}"), f"{name}_app"), name=name)
    return app


def main() -> NoReturn:
    """Run the command line and exit."""
    try:
        code = command_line(sys.argv[1:])(prog_name="mxs", standalone_mode=False) or 0
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
