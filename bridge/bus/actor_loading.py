"""Finds actors in Python files and keeps a local bus equal to what the files say, version by version.

Runs in an actor host only, because it executes the author's code. Above: `actor_host`. A file that does not load, or an
actor that does not start, leaves the running version where it is and becomes a problem with file, line and mend.
"""

import hashlib
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Final

import anyio

from bridge.bus.actor import Actor
from bridge.bus.local_bus import LocalBus
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject

LOAD_TIMEOUT_MS: Final = 10_000
"""A module that is still being executed after this long does not load."""
START_TIMEOUT_MS: Final = 10_000
_MODULE_PREFIX: Final = "mxs_actors_"


@dataclass(frozen=True)
class LoadProblem:
    """Why a file or an actor is not (newly) loaded."""

    file: str
    line: int
    message: str

    def to_json(self) -> JsonObject:
        """The wire form."""
        return {"file": self.file, "line": self.line, "message": self.message}


@dataclass
class _LoadedFile:
    revision: str
    mounts: set[str] = field(default_factory=set)


class ActorFolder:
    """The actors of one folder, or of one file. Names beginning with `_` are helpers, which actors may import."""

    def __init__(self, path: Path, bus: LocalBus) -> None:
        self._path = path
        self._bus = bus
        self._loaded: dict[Path, _LoadedFile] = {}
        self._tried: dict[Path, tuple[str, list[LoadProblem]]] = {}
        sys.path.insert(0, str(self._folder))
        sys.dont_write_bytecode = True
        sys.pycache_prefix = os.devnull  # helpers too run from their text: a folder can bring bytecode of other code

    @property
    def _folder(self) -> Path:
        return self._path if self._path.is_dir() else self._path.parent

    async def load(self) -> list[LoadProblem]:
        """Bring the bus up to date with the files; only what changed is loaded anew. Returns what is wrong now."""
        files = self._actor_files()
        if not files and not self._path.exists():
            return [LoadProblem(str(self._path), 0, "The path does not exist; give a folder or a file of actors.")]
        for gone in self._loaded.keys() - files.keys():
            await self._unload(gone)
        helpers = self._helpers_revision(files)
        for file, revision in files.items():
            if self._tried.get(file, ("", []))[0] != f"{revision}{helpers}":
                self._forget_helpers()
                problems = await self._load_file(file, f"{revision}{helpers}")
                self._tried[file] = (f"{revision}{helpers}", problems)
        return [problem for file in files for problem in self._tried[file][1]]

    def _actor_files(self) -> dict[Path, str]:
        candidates = [self._path] if self._path.is_file() else sorted(self._path.glob("*.py"))
        return {
            file: hashlib.sha256(file.read_bytes()).hexdigest()
            for file in candidates
            if file.is_file() and (file == self._path or not file.name.startswith("_"))
        }

    def _helpers_revision(self, files: dict[Path, str]) -> str:
        digest = hashlib.sha256()
        for helper in sorted(self._folder.rglob("*.py")):
            if helper not in files:
                digest.update(helper.read_bytes())
        return digest.hexdigest()

    def _forget_helpers(self) -> None:
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file and name != "__main__" and Path(file).is_relative_to(self._folder) and not _is_ours(name):
                del sys.modules[name]

    async def _load_file(self, file: Path, revision: str) -> list[LoadProblem]:
        try:
            with anyio.fail_after(LOAD_TIMEOUT_MS / 1000):
                module = await anyio.to_thread.run_sync(_execute, file, abandon_on_cancel=True)
        except TimeoutError:
            return [LoadProblem(str(file), 0, f"The module was still running after {LOAD_TIMEOUT_MS} ms.")]
        except _LoadError as failure:
            return [failure.problem]
        before = self._loaded.get(file)
        loaded = _LoadedFile(revision)
        problems = [
            problem
            for kind in _actor_classes(module)
            if (problem := await self._mount(kind, file, loaded, before)) is not None
        ]
        self._loaded[file] = loaded
        for mount in before.mounts - loaded.mounts if before is not None else ():
            await self._bus.unmount(mount)
        return problems

    async def _mount(
        self, kind: type[Actor], file: Path, loaded: _LoadedFile, before: _LoadedFile | None
    ) -> LoadProblem | None:
        line = _line_of(kind)
        try:
            mount = str(kind.mount)
            self._refuse_taken(mount, file, loaded)
            with anyio.fail_after(START_TIMEOUT_MS / 1000):
                await self._bus.replace(kind())
        except Exception as error:  # noqa: BLE001 - the author's code; what is wrong is told, the host goes on
            if before is not None and getattr(kind, "mount", None) in before.mounts:
                loaded.mounts.add(str(kind.mount))  # its running version stays
            return LoadProblem(str(file), line, _sentence(error, kind.__name__))
        loaded.mounts.add(mount)
        return None

    def _refuse_taken(self, mount: str, file: Path, loaded: _LoadedFile) -> None:
        owner = next((other for other, known in self._loaded.items() if mount in known.mounts and other != file), None)
        if mount in loaded.mounts:
            owner = file
        if owner is not None:
            raise MatrixError(
                "MX_AGENT_INVALID_ARGUMENTS", f"The mount {mount!r} of {str(file)!r} is in use by {str(owner)!r}."
            )

    async def _unload(self, file: Path) -> None:
        for mount in self._loaded.pop(file).mounts:
            await self._bus.unmount(mount)
        self._tried.pop(file, None)


class _LoadError(Exception):
    def __init__(self, problem: LoadProblem) -> None:
        self.problem = problem
        super().__init__(problem.message)


def _execute(file: Path) -> ModuleType:
    """Run the file as a new module, from its text and never from cached bytecode."""
    name = _MODULE_PREFIX + file.stem
    module = ModuleType(name)
    module.__file__ = str(file)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)  # noqa: S102 - loading actors is what a host is for
    except BaseException as error:  # noqa: BLE001 - SystemExit of the author's module too
        if before is not None:
            sys.modules[name] = before
        raise _LoadError(LoadProblem(str(file), _line_in(file, error), _sentence(error, file.name))) from None
    return module


def _actor_classes(module: ModuleType) -> Iterator[type[Actor]]:
    for value in list(vars(module).values()):
        own = isinstance(value, type) and issubclass(value, Actor) and value.__module__ == module.__name__
        if own and (hasattr(value, "mount") or not value.__subclasses__()):
            yield value


def _is_ours(module_name: str) -> bool:
    return module_name.startswith(("bridge.", _MODULE_PREFIX)) or module_name == "bridge"


def _line_of(kind: type[Actor]) -> int:
    lines = [member.__code__.co_firstlineno for member in vars(kind).values() if hasattr(member, "__code__")]
    return min(lines, default=0)


def _line_in(file: Path, error: BaseException) -> int:
    if isinstance(error, SyntaxError):
        return error.lineno or 0
    frames = [frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return frames[-1] if frames else 0


def _sentence(error: BaseException, what: str) -> str:
    """For the author, who owns the code: here the exception's own text is the mend."""
    if isinstance(error, MatrixError):
        return error.message
    return f"{what} does not load: {type(error).__name__}: {error}"
