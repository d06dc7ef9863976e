"""The seccomp profile in the engine's words. Pure but for reading the list beside it, once.

`seccomp.json` is a list of system calls that a compiler, an interpreter, a data base or a worker needs; everything else
is refused with EPERM. What a flag makes dangerous is spelled out here: clone with new namespaces, device nodes, socket
families. 32-bit and x32 calls are not in the profile at all, so their processes are ended.
"""

import json
import socket
from functools import cache
from pathlib import Path

Words = dict[str, object]  # one JSON object of the engine

NAMESPACE_FLAGS = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
FILE_TYPE_MASK = 0xF000
FILE_TYPES = (0, 0x8000, 0x1000, 0xC000)  # regular (also as 0), FIFO, socket; devices are left out
NETLINK_ROUTE = 0  # the list of interfaces, which run-times read at their start
PERSONALITIES = (0, 0xFFFFFFFF)  # Linux, and the question which one it is
ENOSYS = 38
EPERM = 1


def _allow(names: list[str], *conditions: Words) -> Words:
    return {"names": names, "action": "SCMP_ACT_ALLOW", "args": list(conditions)}


def _equals(index: int, value: int) -> Words:
    return {"index": index, "value": value, "op": "SCMP_CMP_EQ"}


def _masked(index: int, mask: int, value: int) -> Words:
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}


def _conditional_rules() -> list[Words]:
    return [
        _allow(["clone"], _masked(0, NAMESPACE_FLAGS, 0)),
        # its flags lie in memory, where a filter cannot look: libc falls back to clone
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS, "args": []},
        *(_allow(["mknod"], _masked(1, FILE_TYPE_MASK, kind)) for kind in FILE_TYPES),
        *(_allow(["mknodat"], _masked(2, FILE_TYPE_MASK, kind)) for kind in FILE_TYPES),
        *(_allow(["personality"], _equals(0, value)) for value in PERSONALITIES),
        *(_allow(["socket"], _equals(0, family)) for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)),
        _allow(["socket"], _equals(0, 16), _equals(2, NETLINK_ROUTE)),
        _allow(["socketpair"], _equals(0, socket.AF_UNIX)),
    ]


@cache
def seccomp_profile() -> str:
    """The profile as the JSON text that the engine's `seccomp=` option takes."""
    groups: dict[str, list[str]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    names = sorted({name for group in groups.values() for name in group})
    machines = ("SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64")
    profile: Words = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": EPERM,
        "archMap": [{"architecture": machine, "subArchitectures": []} for machine in machines],
        "syscalls": [_allow(names), *_conditional_rules()],
    }
    return json.dumps(profile, separators=(",", ":"))
