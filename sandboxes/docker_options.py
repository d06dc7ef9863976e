"""`SandboxSpec` -> the words of the engine's create call. Pure: no engine, no clock, no file but the seccomp list.

The one place where a container's privileges are written down, and no setting of a spec reaches them: capabilities,
namespaces, devices, the security options and the masked paths are constants. Above: `docker_sandbox`.
"""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from sandboxes.sandbox_spec import GATEWAY_SOCKET, HELPER, HOME, MEBIBYTE, WORKSPACE, SandboxLimits, SandboxSpec
from sandboxes.seccomp import Words, seccomp_profile

OWNER_LABEL: Final = "mxs.owner"
WORKER_LABEL: Final = "mxs.worker"
TMP: Final = PurePosixPath("/tmp")  # noqa: S108 - the container's own, not the host's
LOCKED_MEMORY_BYTES: Final = 8 * MEBIBYTE
CPU_SHARES: Final = 512  # half of the default: a busy worker yields to everything else on the machine
OOM_SCORE: Final = 500  # when the whole machine runs out of memory, a worker goes before the host's processes
HEALTH_INTERVAL_S: Final = 60
NANOSECONDS: Final = 1_000_000_000

MASKED_PATHS: Final = (
    "/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
    "/proc/pressure", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
    "/sys/devices/virtual/powercap", "/sys/firmware",
)  # fmt: skip
READ_ONLY_PATHS: Final = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")

KEPT_IMAGE_VARIABLES: Final = frozenset(
    {
        "BUNDLE_APP_CONFIG", "CARGO_HOME", "COMPOSER_HOME", "GEM_HOME", "GOPATH", "GOROOT", "GOTOOLCHAIN",
        "GRADLE_HOME", "JAVA_HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "MAVEN_HOME", "NODE_VERSION",
        "NVM_DIR", "PATH", "PYTHON_VERSION", "RUSTUP_HOME", "TZ", "VIRTUAL_ENV",
    }
)  # fmt: skip
"""What tool chains need of an image's environment. The rest is dropped: it could point a worker elsewhere."""


def container_config(
    spec: SandboxSpec, helper: Path, image_env: tuple[str, ...] = (), image_volumes: tuple[str, ...] = ()
) -> Words:
    """The body of the engine's `POST /containers/create`.

    `helper` is the static helper on the host; `image_env` (`NAME=value`) and `image_volumes` (absolute paths) are what
    the image declares, so that it can be undone here.
    """
    helper_word = str(HELPER)
    return {
        "Image": spec.image,
        "Hostname": spec.container_name,
        "User": f"{spec.uid}:{spec.gid}",
        "WorkingDir": str(WORKSPACE),
        "Entrypoint": [helper_word, "init", "--"],
        "Cmd": list(spec.argv),
        "Env": _environment(spec.env, image_env),
        "Labels": {OWNER_LABEL: spec.owner, WORKER_LABEL: spec.worker_id},
        "Healthcheck": {
            "Test": ["CMD", helper_word, "health"],
            "Interval": HEALTH_INTERVAL_S * NANOSECONDS,
            "Timeout": 5 * NANOSECONDS,
            "Retries": 3,
        },
        "StopSignal": "SIGTERM",
        "Tty": False,
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": _host_config(spec, helper, image_volumes),
    }


def _environment(env: Mapping[str, str], image_env: tuple[str, ...]) -> list[str]:
    """The worker's variables; a name without `=` takes the image's variable away."""
    values = {"HOME": str(HOME), **env}
    declared = (entry.partition("=")[0] for entry in image_env)
    dropped = sorted(name for name in declared if name not in values and name not in KEPT_IMAGE_VARIABLES)
    return [f"{name}={value}" for name, value in values.items()] + dropped


def _host_config(spec: SandboxSpec, helper: Path, image_volumes: tuple[str, ...]) -> Words:
    return {
        "AutoRemove": False,
        "CapAdd": [],
        "CapDrop": ["ALL"],
        "CgroupnsMode": "private",
        "Devices": [],
        "Init": False,
        "IpcMode": "private",
        "LogConfig": {"Type": "none"},
        "MaskedPaths": list(MASKED_PATHS),
        "Mounts": _mounts(spec, helper, image_volumes),
        "NetworkMode": "none",
        "PidMode": "",
        "Privileged": False,
        "ReadonlyPaths": list(READ_ONLY_PATHS),
        "ReadonlyRootfs": True,
        "RestartPolicy": {"Name": "no"},
        "Runtime": spec.runtime or "",
        "SecurityOpt": ["no-new-privileges", f"seccomp={seccomp_profile()}"],
        "Tmpfs": {
            str(TMP): _tmpfs(spec, spec.limits.tmp_bytes),
            str(HOME): _tmpfs(spec, spec.limits.home_bytes),
        },
        "UTSMode": "",
        "UsernsMode": "",
        **_limits(spec.limits),
    }


def _tmpfs(spec: SandboxSpec, size_bytes: int) -> str:
    return f"rw,nosuid,nodev,exec,mode=0700,uid={spec.uid},gid={spec.gid},size={size_bytes}"


def _limits(limits: SandboxLimits) -> Words:
    return {
        "CpuShares": CPU_SHARES,
        "Memory": limits.memory_bytes,
        "MemorySwap": limits.memory_bytes,  # memory and swap together: no swap
        "NanoCpus": int(limits.cpus * NANOSECONDS),
        "OomKillDisable": False,
        "OomScoreAdj": OOM_SCORE,
        "PidsLimit": limits.pids,
        "ShmSize": limits.shm_bytes,
        "Ulimits": [
            _ulimit("core", 0),
            _ulimit("memlock", LOCKED_MEMORY_BYTES),
            _ulimit("msgqueue", 0),
            _ulimit("nofile", limits.open_files),
        ],
    }


def _ulimit(name: str, value: int) -> Words:
    return {"Name": name, "Soft": value, "Hard": value}


def _mounts(spec: SandboxSpec, helper: Path, image_volumes: tuple[str, ...]) -> list[Words]:
    ours = [
        _bind(spec.workspace, WORKSPACE, read_only=False),
        _bind(spec.gateway_socket, GATEWAY_SOCKET, read_only=True),
        _bind(helper, HELPER, read_only=True),
        *(_bind(mount.source, mount.target, read_only=True) for mount in spec.mounts),
    ]
    taken = {mount["Target"] for mount in ours} | {str(TMP), str(HOME)}
    return ours + [_closed(path) for path in image_volumes if str(PurePosixPath(path)) not in taken]


def _bind(source: Path, target: PurePosixPath, *, read_only: bool) -> Words:
    options = {"Propagation": "rprivate", "NonRecursive": True}  # what is mounted below the folder stays outside
    return {
        "Type": "bind",
        "Source": str(source),
        "Target": str(target),
        "ReadOnly": read_only,
        "BindOptions": options,
    }


def _closed(path: str) -> Words:
    """An empty read-only folder where the image declares a volume, so that the engine makes no writable one."""
    return {"Type": "tmpfs", "Target": path, "ReadOnly": True, "TmpfsOptions": {"SizeBytes": 4096, "Mode": 0o555}}
