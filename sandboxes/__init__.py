"""The walls: what a worker can touch and reach. Knows neither the bridge nor the supervisor.

The names below are what others use of it, with `docker_engine`, `docker_sandbox`, `memory_sandbox` and `reaper`, which
are imported by name: the gateway, a process of its own, must not pay for the engine's client.
"""

from sandboxes.engine import EngineFacts, check_engine, read_facts
from sandboxes.helper import helper_path
from sandboxes.sandbox import ExitReason, RunningSandbox, SandboxError, Sandboxes, SandboxExit
from sandboxes.sandbox_spec import ReadOnlyMount, SandboxLimits, SandboxSpec
from sandboxes.worker_image import has_image, prepare_worker_image, worker_image_tag

__all__ = [
    "EngineFacts",
    "ExitReason",
    "ReadOnlyMount",
    "RunningSandbox",
    "SandboxError",
    "SandboxExit",
    "SandboxLimits",
    "SandboxSpec",
    "Sandboxes",
    "check_engine",
    "has_image",
    "helper_path",
    "prepare_worker_image",
    "read_facts",
    "worker_image_tag",
]
