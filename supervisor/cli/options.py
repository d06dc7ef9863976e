"""The options that several commands share, described once (contracts.md, section 2)."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

PolicyOption: TypeAlias = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", help="Permission file; named here, it is trusted.")
]
ActorsOption: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--actors", metavar="PATH", help="Folder or file with actors, run in a process of their own. Repeatable."
    ),
]
RootOption: TypeAlias = Annotated[
    str | None, typer.Option("--root", help="Authority root of the supervisor's actors (default: local).")
]
ConfigOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Configuration file instead of the repository's mxs.toml."),
]
RoleOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--as", metavar="ROLE", help="Role of the permission file; may be left out where it has one."),
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON instead of text for people.")]
WorkerArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="ID", help="A worker's id, its name, or a beginning of its id that no other has.")
]
