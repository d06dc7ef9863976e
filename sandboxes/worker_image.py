"""The default worker image: its name, whether it is there, how it is built.

The tag is a digest over the inputs (`images/`), so a changed package list is another image and an unchanged one is
never built twice. Worker programs are not in it: they come from Python packages and are mounted. Two ways lead to the
same packages: the Dockerfile where a registry answers, `mmdebstrap` and `docker import` where none does.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from sandboxes.engine import INSTALL_TIMEOUT_S, Phase
from sandboxes.sandbox import SandboxError
from sandboxes.set_up import SetUpError, run_logged

IMAGES: Final = Path(__file__).parent / "images"
REPOSITORY: Final = "mxs-worker"
TAG_DIGITS: Final = 12
SUITE: Final = "bookworm"
BASE_IMAGE: Final = "debian:bookworm-slim"
INSPECT_TIMEOUT_S: Final = 30
PULL_TIMEOUT_S: Final = 300
BUILD_TIMEOUT_S: Final = 900


def worker_image_tag() -> str:
    """`mxs-worker:<12 hex digits>`, from the content of the Dockerfile and the package list."""
    digest = hashlib.sha256()
    for name in ("Dockerfile", "packages.txt"):
        content = (IMAGES / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return f"{REPOSITORY}:{digest.hexdigest()[:TAG_DIGITS]}"


def packages() -> tuple[str, ...]:
    """The Debian packages in the image."""
    return tuple((IMAGES / "packages.txt").read_text(encoding="ascii").split())


def has_image(reference: str) -> bool:
    """Whether the engine has the image. Raises `SandboxError` where there is no `docker` command."""
    command = ("docker", "image", "inspect", "--format", "{{.Id}}", reference)
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=INSPECT_TIMEOUT_S).returncode == 0
    except FileNotFoundError as error:
        raise SandboxError("There is no `docker` command.", "Install Docker's command line (docker-cli).") from error
    except subprocess.TimeoutExpired as error:
        raise SandboxError("The container engine does not answer.", "Restart Docker.") from error


def prepare_worker_image(phase: Phase, log: Path) -> str:
    """Have the worker image, built where it is missing; returns its tag. Raises `SandboxError`."""
    tag = worker_image_tag()
    if has_image(tag):
        return tag
    try:
        with phase("worker image: from the registry"):
            _build(tag, log)
    except SetUpError as error:
        _bootstrap(tag, phase, log, str(error))
    return tag


def _build(tag: str, log: Path) -> None:
    run_logged(("docker", "pull", "--quiet", BASE_IMAGE), log, timeout_s=PULL_TIMEOUT_S)
    run_logged(("docker", "build", "--quiet", "--tag", tag, str(IMAGES)), log, timeout_s=BUILD_TIMEOUT_S)


def _bootstrap(tag: str, phase: Phase, log: Path, why: str) -> None:
    """Build the image from Debian packages, without a registry."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        mend = "Connect the machine to a registry, or run `make setup` as root on Debian, where the image can be built."
        raise SandboxError(f"The worker image could not be built: {why}", mend)
    try:
        with phase("worker image: from Debian packages"):
            _import_bootstrapped(tag, log)
    except SetUpError as error:
        mend = "Connect the machine to a registry or to a Debian mirror, and run `make setup` again."
        raise SandboxError(f"The worker image could not be built. {error}", mend) from error


def _import_bootstrapped(tag: str, log: Path) -> None:
    if shutil.which("mmdebstrap") is None:
        for words in (("update",), ("install", "-y", "--no-install-recommends", "mmdebstrap")):
            run_logged(("apt-get", *words), log, timeout_s=INSTALL_TIMEOUT_S)
    with tempfile.TemporaryDirectory(prefix="mxs-image-") as folder:
        archive = str(Path(folder) / "root.tar")
        include = f"--include={','.join(packages())}"
        no_more = '--aptopt=APT::Install-Recommends "false"'
        bootstrap = ("mmdebstrap", "--variant=minbase", no_more, include, SUITE, archive)
        run_logged(bootstrap, log, timeout_s=BUILD_TIMEOUT_S)
        run_logged(("docker", "import", "--change", 'CMD ["/bin/sh"]', archive, tag), log, timeout_s=BUILD_TIMEOUT_S)
