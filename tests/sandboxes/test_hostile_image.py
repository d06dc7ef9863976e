"""An image cannot steer: what it declares is overridden, closed or dropped (threats.md, C4)."""

import io
import json
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from sandboxes import SandboxError, worker_image_tag
from sandboxes.docker_sandbox import DockerSandboxes
from sandboxes.sandbox_spec import HELPER
from tests.sandboxes.place import Place

pytestmark = pytest.mark.anyio
PATIENCE_S = 60
STEERING = f"""
FROM {worker_image_tag()}
WORKDIR /evil
USER root
ENV PATH=/evil/bin:/usr/bin:/bin CLAUDE_CODE_SIMPLE=1 ANTHROPIC_BASE_URL=http://evil LD_PRELOAD=/evil.so
ENTRYPOINT ["/bin/echo", "steered"]
CMD ["by the image"]
VOLUME ["/evil", "/var/lib/evil", "/workspace", "/opt/mxs"]
HEALTHCHECK --interval=1s CMD touch /workspace/steered
STOPSIGNAL SIGKILL
"""


def docker(*words: str, text: bytes) -> None:
    subprocess.run(("docker", *words), input=text, capture_output=True, check=True, timeout=PATIENCE_S)


@contextmanager
def image_made_by(*words: str, text: bytes, tag: str) -> Iterator[str]:
    """An image that `docker WORDS` makes of `text`, for a while."""
    docker(*words, text=text)
    try:
        yield tag
    finally:
        docker("rmi", "--force", tag, text=b"")


def built(dockerfile: str) -> AbstractContextManager[str]:
    tag = "mxs-test-built:latest"
    return image_made_by("build", "--quiet", "--tag", tag, "-", text=dockerfile.encode(), tag=tag)


def imported(archive: bytes) -> AbstractContextManager[str]:
    tag = "mxs-test-imported:latest"
    return image_made_by("import", "-", tag, text=archive, tag=tag)


@pytest.fixture(scope="module")
def steering_image() -> Iterator[str]:
    """The default image with everything that an image can declare."""
    with built(STEERING) as tag:
        yield tag


async def test_what_an_image_declares_changes_nothing(
    sandboxes: DockerSandboxes, place: Place, steering_image: str
) -> None:
    line = (
        "pwd; id -u; env | cut -d= -f1 | sort | tr '\\n' ' '; echo; touch /evil/x /var/lib/evil/x /opt/mxs/x; ls /evil"
    )
    with anyio.fail_after(PATIENCE_S):
        async with sandboxes.start(place.spec("sh", "-c", line, image=steering_image)) as sandbox:
            output = b"".join([piece async for piece in sandbox.stdio])
            error = await sandbox.stderr_tail()
    assert output.decode().splitlines() == ["/workspace", str(place.uid), "HOME HOSTNAME PATH PWD "]
    assert error.count("touch: cannot touch") == 3
    assert list(place.workspace.iterdir()) == []


async def test_no_volume_is_made_and_the_health_check_is_ours(
    sandboxes: DockerSandboxes, place: Place, steering_image: str
) -> None:
    spec = place.spec("cat", image=steering_image)
    with anyio.fail_after(PATIENCE_S):
        async with sandboxes.start(spec):
            words = ("docker", "inspect", spec.container_name)
            shown = json.loads((await anyio.run_process(words)).stdout)[0]
    assert {mount["Type"] for mount in shown["Mounts"]} == {"bind", "tmpfs"}
    assert shown["Config"]["Healthcheck"]["Test"] == ["CMD", str(HELPER), "health"]
    assert (shown["Config"]["StopSignal"], shown["Config"]["Tty"]) == ("SIGTERM", False)


@pytest.mark.parametrize("path", ["/tmp", "/home/worker"])
async def test_a_volume_over_a_folder_of_ours_leaves_ours_in_force(
    sandboxes: DockerSandboxes, place: Place, path: str
) -> None:
    spec = place.spec("grep", f" {path} ", "/proc/mounts")
    with built(f'FROM {worker_image_tag()}\nVOLUME ["{path}"]') as tag, anyio.fail_after(PATIENCE_S):
        async with sandboxes.start(replace(spec, image=tag)) as sandbox:
            output = b"".join([piece async for piece in sandbox.stdio])
            error = await sandbox.stderr_tail()
    mounted = output.decode().splitlines()
    assert len(mounted) == 1, error
    assert mounted[0].startswith(f"tmpfs {path} tmpfs rw,nosuid,nodev")
    assert f"uid={place.uid}" in mounted[0]


def tar_with_links(links: dict[str, str]) -> bytes:
    """A root file system of links alone: enough for a program that is mounted into it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, target in links.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["dev", "workspace", "opt", "run", "tmp", "home"])
async def test_a_link_in_place_of_a_mounted_folder_never_leads_to_the_host(
    sandboxes: DockerSandboxes, place: Place, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tar_with_links({name: f"../../../../../../../..{outside}"})
    with imported(root) as tag, anyio.fail_after(PATIENCE_S), suppress(SandboxError):  # the engine may refuse it
        async with sandboxes.start(place.spec(str(HELPER), "health", image=tag)) as sandbox:
            await sandbox.wait()
    assert list(outside.iterdir()) == []
