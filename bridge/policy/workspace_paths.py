"""Where a path that a worker shows really lies in its workspace, found out on the host by descriptor.

Leaf of `policy`; the bridge asks it before `security_delegate` judges. The workspace is a folder of the host that the
container sees at `/workspace`; the worker can make links and swap them at any time, so no path is ever handed to the
kernel whole: each segment is opened under the descriptor of its parent and never through a link; links are read and
followed by hand, as the container would, where absolute targets under `/workspace` are inside. What leaves the
workspace at any step, and what cannot be followed, is None. The answer is a snapshot: the container is the wall.
"""

import errno
import os
import posixpath
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import Final

MOUNT: Final = "workspace"
"""The container sees the workspace as `/workspace`."""

MAX_LINKS: Final = 40
MAX_SEGMENTS: Final = 128
MAX_PATH_BYTES: Final = 4096

_DIRECTORY: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


class WorkspacePaths:
    """Resolves the paths of one worker. `folder` is the workspace on the host, made by us; its own path has no say."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def resolve(self, shown: str, cwd: str | None = None) -> str | None:
        """The path relative to the workspace (`shop/cart.py`, `.`), links followed, or None.

        `shown` is absolute in the container or relative to `cwd`, which is likewise, or None for the workspace. What
        does not exist yet is taken as it is written. Tools disagree on whether `a/..` means the folder of the link `a`
        or of its target, so a path for which that matters is None, and so is one that is not UTF-8.
        """
        inside = _inside(shown, cwd)
        if inside is None:
            return None
        try:
            followed, plain = self._follow(inside), _without_dots(inside)
            if followed is None or plain is None or self._follow(plain) != followed:
                return None
            followed.encode("utf-8")
            return followed
        except (OSError, ValueError):
            return None

    def _follow(self, segments: list[str]) -> str | None:
        with ExitStack() as opened:
            root = os.open(self._folder, os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, root)
            walk = _Walk(root, opened)
            return walk.to(segments)


class _Walk:
    """One walk from the root of the workspace: where it is, as names and as open descriptors."""

    def __init__(self, root: int, opened: ExitStack) -> None:
        self._opened = opened
        self._folders = [root]
        self._names: list[str] = []
        self._links = 0
        self._steps = 0

    def to(self, segments: list[str]) -> str | None:
        pending = deque(segments)
        while pending:
            self._steps += 1
            if self._steps > MAX_SEGMENTS * 4 or len(self._names) > MAX_SEGMENTS or len(pending) > MAX_SEGMENTS * 2:
                return None
            if not self._step(pending.popleft(), pending):
                return None
        return "/".join(self._names) or "."

    def _step(self, segment: str, pending: deque[str]) -> bool:
        if segment in ("", "."):
            return True
        if segment == "..":
            return self._up()
        # Below something that does not exist there is nothing to follow.
        if len(self._names) >= len(self._folders):
            self._names.append(segment)
            return True
        return self._down(segment, pending)

    def _up(self) -> bool:
        if not self._names:
            return False
        self._names.pop()
        del self._folders[len(self._names) + 1 :]
        return True

    def _down(self, segment: str, pending: deque[str]) -> bool:
        parent = self._folders[-1]
        try:
            target = os.readlink(segment, dir_fd=parent)
        except FileNotFoundError:
            self._names.append(segment)
            return True
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return self._enter(segment, parent, last=not any(part not in ("", ".") for part in pending))
        return self._follow_link(target, pending)

    def _follow_link(self, target: str, pending: deque[str]) -> bool:
        self._links += 1
        if self._links > MAX_LINKS:
            return False
        segments = target.split("/")
        if target.startswith("/"):
            inside = _below_mount(segments)
            if inside is None:
                return False
            self._names.clear()
            del self._folders[1:]
            segments = inside
        pending.extendleft(reversed(segments))
        return True

    def _enter(self, segment: str, parent: int, *, last: bool) -> bool:
        try:
            folder = os.open(segment, _DIRECTORY, dir_fd=parent)
        except NotADirectoryError:
            self._names.append(segment)
            return last
        self._opened.callback(os.close, folder)
        self._names.append(segment)
        self._folders.append(folder)
        return True


def _inside(shown: str, cwd: str | None) -> list[str] | None:
    """The segments below the workspace, links not yet followed; None where the text alone leaves it."""
    if not shown or "\0" in shown or "\0" in (cwd or "") or shown.startswith("~"):
        return None
    whole = shown if cwd is None else posixpath.join(cwd, shown)
    if len(whole.encode("utf-8", "surrogatepass")) > MAX_PATH_BYTES:
        return None
    segments = whole.split("/")
    return _below_mount(segments) if whole.startswith("/") else segments


def _below_mount(segments: list[str]) -> list[str] | None:
    real = [segment for segment in segments if segment not in ("", ".")]
    return real[1:] if real and real[0] == MOUNT else None


def _without_dots(segments: list[str]) -> list[str] | None:
    plain: list[str] = []
    for segment in segments:
        if segment == "..":
            if not plain:
                return None
            plain.pop()
        elif segment not in ("", "."):
            plain.append(segment)
    return plain
