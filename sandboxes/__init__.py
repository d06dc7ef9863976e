"""The walls: what a worker can touch and reach. Knows neither the bridge nor the supervisor.

The names below are what the supervisor uses; everything else in this package is its own affair.
"""

from sandboxes.docker_engine import DockerEngine
from sandboxes.docker_sandbox import DockerSandboxes
from sandboxes.engine import EngineFacts, check_engine, read_facts
from sandboxes.helper import helper_path
from sandboxes.memory_sandbox import MemoryProcess, MemorySandboxes
from sandboxes.reaper import OwnedContainer, owned_containers, reap
from sandboxes.sandbox import ExitReason, RunningSandbox, SandboxError, Sandboxes, SandboxExit
from sandboxes.sandbox_spec import ReadOnlyMount, SandboxLimits, SandboxSpec
from sandboxes.worker_image import has_image, prepare_worker_image, worker_image_tag

__all__ = [
    "DockerEngine",
    "DockerSandboxes",
    "EngineFacts",
    "ExitReason",
    "MemoryProcess",
    "MemorySandboxes",
    "OwnedContainer",
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
    "owned_containers",
    "prepare_worker_image",
    "read_facts",
    "reap",
    "worker_image_tag",
]
