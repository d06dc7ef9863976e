"""Files of a worker's configuration that it sees read-only, kept outside its workspace (threats.md, P19)."""

from pathlib import Path, PurePosixPath
from typing import Final

from sandboxes.sandbox_spec import ReadOnlyMount

_FILE: Final = 0o644
_PROGRAM: Final = 0o755


class PinnedFiles:
    """Implements `PinnedFolder` in a folder on the host."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def write(self, name: str, content: str, *, executable: bool = False) -> ReadOnlyMount:
        """Write `content` and return the mount whose target is the absolute path `name` in the container."""
        target = PurePosixPath(name)
        if not target.is_absolute() or ".." in target.parts:
            raise ValueError(f"{name!r} is not an absolute path in the container")
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._count += 1
        source = self._folder / f"{self._count:02d}-{target.name}"
        source.write_text(content)
        source.chmod(_PROGRAM if executable else _FILE)
        return ReadOnlyMount(source, target)
