"""The image that workers run in when none is named: built once, when the first run finds it missing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

    async def ready(self) -> str:
        """The tag of an image that is there. Raises `SandboxError`: no engine, or no way to build it.

        Cancelling it leaves a build to end by itself: it takes minutes, and the next run finds the image.
        """
        async with self._lock:
            if self._tag is None:
                self._tag = await anyio.to_thread.run_sync(self._prepare, abandon_on_cancel=True)
            return self._tag

    def _prepare(self) -> str:
        check_engine()  # before a build is thought of: without an engine there is nothing to build for
        tag = worker_image_tag()
        return tag if has_image(tag) else prepare_worker_image(_quiet_phase, self._log)


@contextmanager
def _quiet_phase(_: str) -> Iterator[None]:
    yield
