"""Which files of repositories a person has trusted, pinned by digest (as direnv and mise do).

A repository can bring an `mxs.toml` and a permission file that widen what runs: they count only as they were when a
person said `mxs trust`. A file named on the command line is trusted by being named.
"""

import hashlib
import json
from pathlib import Path
from typing import cast

from supervisor.configuration import FILE_NAME, Configuration, load
from supervisor.refusal import Refusal


class TrustStore:
    """The digests in `$MXS_HOME/trusted.json`, by absolute path of the `mxs.toml`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def trust(self, configuration_file: Path) -> None:
        """Pin the file and the permission file it names, as they are now. Raises `Refusal` when either is bad."""
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
    """SHA-256 over the file and the permission file it names, each with its length."""
    configuration = load(configuration_file)
    digest = hashlib.sha256()
    for path in (configuration_file, *([Path(configuration.policy)] if configuration.policy else [])):
        try:
            data = path.read_bytes()
        except OSError as fault:
            raise Refusal(f"{path}: cannot be read: {fault.strerror}.") from fault
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


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
