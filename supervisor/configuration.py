"""`mxs.toml`: the defaults of the shared options, read, checked and described field by field (contracts.md, section 2).

Pure but for reading the file. Whether a repository's file may count is settled by `trust`; the command line stands
above it.
"""

import difflib
import re
import tomllib
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from supervisor.refusal import Refusal

FILE_NAME: Final = "mxs.toml"
LARGEST_FILE: Final = 256 * 1024

_SIZE = re.compile(r"^(\d+)([kmg]?)b?$", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


class Section(BaseModel):
    """A table of the file: frozen, and closed against keys it does not describe."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Timeouts(Section):
    """`AgentActorProps`, in milliseconds."""

    tool_ms: Annotated[int, Field(gt=0, description="one tool call")] = 15_000
    introspect_ms: Annotated[int, Field(gt=0, description="one $introspect")] = 5_000
    infer_ms: Annotated[int, Field(gt=0, description="silence of a model's stream")] = 120_000
    prompt_ms: Annotated[int, Field(gt=0, description="one $prompt")] = 600_000


class ConfiguredLimits(Section):
    """What one worker's container may use."""

    memory: Annotated[str, Field(description='memory, e.g. "2g"')] = "2g"
    cpus: Annotated[float, Field(gt=0, description="processors")] = 2.0
    pids: Annotated[int, Field(ge=16, description="processes and threads")] = 512
    workspace: Annotated[str, Field(description='files in the clone, e.g. "10g"')] = "10g"


class Configuration(Section):
    """The whole file. Paths are relative to it until `load` has made them absolute."""

    root: Annotated[str, Field(description="authority root of this supervisor's actors")] = "local"
    role: Annotated[str | None, Field(description="role of the permission file to use")] = None
    policy: Annotated[str | None, Field(description="permission file")] = None
    actors: Annotated[tuple[str, ...], Field(description="folders or files with actors")] = ()
    model: Annotated[str | None, Field(description="a provider's model, or script:FILE")] = None
    image: Annotated[str | None, Field(description="image of the workers' containers")] = None
    timeouts: Timeouts = Timeouts()
    limits: ConfiguredLimits = ConfiguredLimits()


def load(path: Path) -> Configuration:
    """Read and check `path`; its paths become absolute. Raises `Refusal` with line and mend."""
    text = _read(path)
    try:
        configuration = Configuration.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as fault:
        raise Refusal(f"{path}: not TOML: {fault}.", "Mend the line named, or remove the file.") from fault
    except ValidationError as fault:
        raise _refusal_of(path, text, fault) from fault
    size_bytes(configuration.limits.memory, str(path))
    beside = path.parent
    return configuration.model_copy(
        update={
            "policy": str((beside / configuration.policy).absolute()) if configuration.policy else None,
            "actors": tuple(str((beside / actor).absolute()) for actor in configuration.actors),
            "model": _absolute_script(configuration.model, beside),
        }
    )


def size_bytes(size: str, where: str) -> int:
    """`"2g"` as bytes. Raises `Refusal`."""
    match = _SIZE.match(size.strip())
    if match is None:
        raise Refusal(f"{where}: {size!r} is not a size.", 'Write a number with k, m or g, e.g. "2g".')
    return int(match[1]) * _UNITS[match[2].lower()]


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise Refusal(f"{path}: over {LARGEST_FILE} bytes.", "A configuration file is small: name the right one.")
        return data.decode()
    except UnicodeDecodeError as fault:
        raise Refusal(f"{path}: not UTF-8.", "Save it as UTF-8.") from fault
    except OSError as fault:
        raise Refusal(f"{path}: cannot be read: {fault.strerror}.", "Check the path and its rights.") from fault


def _absolute_script(model: str | None, beside: Path) -> str | None:
    if model is None or not model.startswith("script:"):
        return model
    return f"script:{(beside / model.removeprefix('script:')).absolute()}"


def _refusal_of(path: Path, text: str, fault: ValidationError) -> Refusal:
    first = fault.errors()[0]
    names = [str(part) for part in first["loc"]]
    line = _line_of(text, names[-1] if names else "")
    where = f"{path}:{line}" if line else str(path)
    if first["type"] != "extra_forbidden":
        return Refusal(f"{where}: {'.'.join(names)}: {first['msg']}.", "Correct the value.")
    near = difflib.get_close_matches(names[-1], _known_keys(names[:-1]), n=1)
    mend = f"Did you mean {near[0]!r}?" if near else f"Known keys: {', '.join(_known_keys(names[:-1]))}."
    return Refusal(f"{where}: unknown key {'.'.join(names)!r}.", mend)


def _known_keys(table: list[str]) -> list[str]:
    sections: dict[str, type[Section]] = {"timeouts": Timeouts, "limits": ConfiguredLimits}
    return list(sections.get(table[0] if table else "", Configuration).model_fields)


def _line_of(text: str, key: str) -> int | None:
    pattern = re.compile(rf"^\s*(\[+)?\s*(?:[\w.]+\.)?{re.escape(key)}\b")
    return next((number for number, line in enumerate(text.splitlines(), 1) if pattern.match(line)), None)
