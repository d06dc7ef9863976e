"""The engine's words for a spec: no setting of a spec can widen what a container may do (threats.md, C7)."""

from pathlib import Path, PurePosixPath
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sandboxes import ReadOnlyMount, SandboxLimits, SandboxSpec
from sandboxes.docker_options import container_config
from sandboxes.sandbox_spec import GATEWAY_SOCKET, HELPER, WORKSPACE

HELPER_ON_HOST = Path("/somewhere/mxs-helper")
words = st.text(max_size=30) | st.sampled_from(["--privileged", "host", "unconfined", "ALL", "SYS_ADMIN", "/dev/kvm"])
sizes = st.integers(1, 2**40)
limits = st.builds(
    SandboxLimits,
    memory_bytes=sizes,
    cpus=st.floats(0.01, 512),
    pids=st.integers(1, 10**6),
    tmp_bytes=sizes,
    home_bytes=sizes,
    shm_bytes=sizes,
    open_files=st.integers(16, 10**6),
)
mounts = st.builds(
    ReadOnlyMount,
    source=words.map(lambda word: Path("/source") / word),
    target=words.map(lambda word: PurePosixPath("/target") / word),
)
specs = st.builds(
    SandboxSpec,
    worker_id=words,
    owner=words,
    image=words,
    argv=st.lists(words, min_size=1, max_size=4).map(tuple),
    uid=st.integers(1, 2**31),
    gid=st.integers(1, 2**31),
    workspace=st.just(Path("/state/workspace")),
    gateway_socket=st.just(Path("/state/gateway.sock")),
    env=st.dictionaries(words, words, max_size=4),
    mounts=st.lists(mounts, max_size=4).map(tuple),
    limits=limits,
    runtime=st.none() | words,
)
image_envs = st.lists(words.map(lambda word: f"NAME{word}=value"), max_size=4).map(tuple)


def host_config(config: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = config["HostConfig"]
    return found


@given(specs, image_envs)
def test_no_setting_widens_a_privilege(spec: SandboxSpec, image_env: tuple[str, ...]) -> None:
    config: dict[str, Any] = container_config(spec, HELPER_ON_HOST, image_env)
    host = host_config(config)
    assert host["Privileged"] is False
    assert (host["CapAdd"], host["CapDrop"], host["Devices"]) == ([], ["ALL"], [])
    assert host["NetworkMode"] == "none"
    assert host["IpcMode"] == host["CgroupnsMode"] == "private"
    assert host["PidMode"] == host["UTSMode"] == host["UsernsMode"] == ""
    assert host["ReadonlyRootfs"] is True
    no_new_privileges, seccomp = host["SecurityOpt"]
    assert no_new_privileges == "no-new-privileges"
    assert seccomp.startswith('seccomp={"defaultAction":"SCMP_ACT_ERRNO"')
    assert "/proc/kcore" in host["MaskedPaths"]
    assert "/proc/sys" in host["ReadonlyPaths"]
    assert (host["AutoRemove"], host["Init"], config["Tty"]) == (False, False, False)
    assert config["User"] == f"{spec.uid}:{spec.gid}"


KEYS = {
    "AutoRemove", "CapAdd", "CapDrop", "CgroupnsMode", "CpuShares", "Devices", "Init", "IpcMode", "LogConfig",
    "MaskedPaths", "Memory", "MemorySwap", "Mounts", "NanoCpus", "NetworkMode", "OomKillDisable", "OomScoreAdj",
    "PidMode", "PidsLimit", "Privileged", "ReadonlyPaths", "ReadonlyRootfs", "RestartPolicy", "Runtime", "SecurityOpt",
    "ShmSize", "Tmpfs", "UTSMode", "Ulimits", "UsernsMode",
}  # fmt: skip


@given(specs)
def test_no_other_option_of_the_engine_is_ever_used(spec: SandboxSpec) -> None:
    assert set(host_config(container_config(spec, HELPER_ON_HOST))) == KEYS


@given(specs)
def test_the_workspace_is_the_only_writable_mount_and_nothing_propagates(spec: SandboxSpec) -> None:
    made = host_config(container_config(spec, HELPER_ON_HOST))["Mounts"]
    assert [mount["Target"] for mount in made if not mount["ReadOnly"]] == [str(WORKSPACE)]
    assert {mount["BindOptions"]["Propagation"] for mount in made} == {"rprivate"}
    assert [mount["Target"] for mount in made[:3]] == [str(WORKSPACE), str(GATEWAY_SOCKET), str(HELPER)]


@given(specs)
def test_every_limit_is_set_and_core_dumps_are_off(spec: SandboxSpec) -> None:
    host = host_config(container_config(spec, HELPER_ON_HOST))
    assert host["Memory"] == host["MemorySwap"] == spec.limits.memory_bytes
    assert (host["PidsLimit"], host["ShmSize"]) == (spec.limits.pids, spec.limits.shm_bytes)
    assert host["NanoCpus"] > 0
    ulimits = {limit["Name"]: (limit["Soft"], limit["Hard"]) for limit in host["Ulimits"]}
    assert ulimits["core"] == (0, 0)
    assert ulimits["nofile"] == (spec.limits.open_files, spec.limits.open_files)
    for text in host["Tmpfs"].values():
        assert f"uid={spec.uid},gid={spec.gid},size=" in text
        assert "nosuid,nodev" in text


@given(specs, st.lists(st.sampled_from(["/data", "/workspace", "/var/lib/x", "/workspace/"]), unique=True))
def test_a_volume_of_the_image_is_closed_unless_a_mount_of_ours_is_there(spec: SandboxSpec, volumes: list[str]) -> None:
    made = host_config(container_config(spec, HELPER_ON_HOST, image_volumes=tuple(volumes)))["Mounts"]
    closed = [mount for mount in made if mount["Type"] == "tmpfs"]
    assert {mount["Target"] for mount in closed} == {path for path in volumes if not path.startswith("/workspace")}
    assert all(mount["ReadOnly"] for mount in closed)


def test_an_image_keeps_its_tool_chain_variables_and_loses_the_rest() -> None:
    image_env = (
        "PATH=/opt/bin",
        "CLAUDE_CODE_SIMPLE=1",
        "LD_PRELOAD=/x.so",
        "ANTHROPIC_BASE_URL=http://x",
        "FOO=image",
    )
    spec = SandboxSpec(
        "w", "o", "i", ("true",), 1, 1, Path("/workspace-of-host"), Path("/s.sock"), env={"FOO": "ours", "HOME": "/h"}
    )
    config: dict[str, Any] = container_config(spec, HELPER_ON_HOST, image_env)
    assert config["Env"] == ["HOME=/h", "FOO=ours", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_SIMPLE", "LD_PRELOAD"]
