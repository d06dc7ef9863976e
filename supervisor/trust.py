"""Which files of repositories a person has trusted, pinned by digest (as direnv and mise do).

A repository can bring an `mxs.toml`, and with it a permission file, a script and actors, which run on this machine:
they count only as they were when a person said `mxs trust`. A file named on the command line is trusted by being named.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

from supervisor.configuration import FILE_NAME, Configuration, load
from supervisor.refusal import Refusal

MAX_FILES: Final = 1000
MAX_BYTES: Final = 16 * 1024 * 1024
"""Of everything that one configuration names: what is larger has to be named on the command line."""
_BYTECODE: Final = "__pycache__"  # an actor host never reads it


class TrustStore:
    """The digests in `$MXS_HOME/trusted.json`, by absolute path of the `mxs.toml`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def trust(self, configuration_file: Path) -> None:
        """Pin the file and all that it names, as they are now. Raises `Refusal` when any of it is bad."""
        digests = self._read()
        digests[str(configuration_file.absolute())] = _digest(configuration_file)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps(digests, indent=1))
        draft.replace(self._path)

    def is_trusted(self, configuration_file: Path) -> bool:
        """Whether the file and what it names are exactly what was trusted."""
        pinned = self._read().get(str(configuration_file.absolute()))
        try:
            return pinned is not None and pinned == _digest(configuration_file)
        except Refusal:
            return False

    def _read(self) -> dict[str, str]:
        try:
            return cast("dict[str, str]", json.loads(self._path.read_bytes()))
        except (OSError, ValueError):
            return {}


def _digest(configuration_file: Path) -> str:
    """SHA-256 over the file and every file it names, each with its path and its length."""
    configuration = load(configuration_file)
    script = (configuration.model or "").removeprefix("script:")
    named = [configuration.policy, script if script != configuration.model else None, *configuration.actors]
    digest, left = hashlib.sha256(), MAX_BYTES
    files = [configuration_file, *(file for name in named if name for file in _files_of(Path(name)))]
    if len(files) > MAX_FILES:
        raise Refusal(f"{configuration_file} names more than {MAX_FILES} files.", _NAME_THEM)
    for path in files:
        data = _read_at_most(path, left)
        left -= len(data)
        for part in (bytes(path), data):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


_NAME_THEM: Final = "Name what it needs on the command line instead (--policy, --actors, --model)."


def _files_of(named: Path) -> Iterator[Path]:
    """The file, or the files of the folder in order. A link inside to another folder is refused: it is not followed
    here, and would be by whoever imports from it."""
    if not named.is_dir():
        yield named
        return
    for path in sorted(named.iterdir()):
        if path.is_symlink() and path.is_dir():
            raise Refusal(f"{path} is a link to a folder, whose files cannot be pinned.", _NAME_THEM)
        if path.name != _BYTECODE:
            yield from _files_of(path)


def _read_at_most(path: Path, limit: int) -> bytes:
    if path.exists() and not path.is_file():
        raise Refusal(f"{path} is neither a file nor a folder.", _NAME_THEM)
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as fault:
        raise Refusal(f"{path}: cannot be read: {fault.strerror}.") from fault
    if len(data) > limit:
        raise Refusal(f"What the configuration names is over {MAX_BYTES} bytes.", _NAME_THEM)
    return data


def find_configuration(named: Path | None, repo: Path, home: Path, trusted: TrustStore) -> tuple[Configuration, str]:
    """The file that gives the defaults, and a sentence to show when a repository's file is ignored.

    In this order: the one named on the command line, the repository's when trusted, the one in `$MXS_HOME`, none.
    """
    if named is not None:
        return load(named), ""
    of_repo, notice = repo / FILE_NAME, ""
    if of_repo.is_file():
        if trusted.is_trusted(of_repo):
            return load(of_repo), ""
        notice = f"{of_repo} is ignored: it is not trusted as it is now. Read it, then run: mxs trust {repo}"
    of_home = home / FILE_NAME
    return (load(of_home) if of_home.is_file() else Configuration()), notice
