"""The image that workers run in when none is named: built once, when the first run finds it missing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from sandboxes import check_engine, has_image, worker_image_tag
from sandboxes.worker_image import prepare_worker_image


class WorkerImage:
    """Runs that start together wait for one build."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._lock = anyio.Lock()
        self._tag: str | None = None

    async def ready(self, tell: Callable[[str], None]) -> str:
        """The tag of an image that is there. Raises `SandboxError`: no engine, or no way to build it.

        `tell` hears that it has to be built. Cancelling leaves a build to end by itself: it takes minutes, and the
        next run finds the image.
        """
        async with self._lock:
            if self._tag is None:
                tag = worker_image_tag()
                if not await _in_thread(_is_there, tag):
                    tell(f"building the worker image {tag}, once; its log is {self._log}")
                    await _in_thread(prepare_worker_image, _quiet_phase, self._log)
                self._tag = tag
            return self._tag


def _is_there(tag: str) -> bool:
    check_engine()  # before a build is thought of: without an engine there is nothing to build for
    return has_image(tag)


_in_thread = partial(anyio.to_thread.run_sync, abandon_on_cancel=True)


@contextmanager
def _quiet_phase(_: str) -> Iterator[None]:
    yield
