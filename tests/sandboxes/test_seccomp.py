"""The seccomp profile as text; what it does to a process is in `test_hardening`."""

import json
from typing import Any

from sandboxes.seccomp import seccomp_profile

NEVER = {
    "acct", "add_key", "bpf", "chroot", "clock_settime", "delete_module", "fanotify_init", "finit_module",
    "fsconfig", "fsmount", "fsopen", "init_module", "io_uring_enter", "io_uring_register", "io_uring_setup",
    "ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie", "mount",
    "mount_setattr", "move_mount", "name_to_handle_at", "open_by_handle_at", "open_tree", "perf_event_open",
    "pivot_root", "process_vm_readv", "process_vm_writev", "ptrace", "quotactl", "reboot", "request_key",
    "setns", "settimeofday", "swapon", "syslog", "umount2", "unshare", "userfaultfd", "vmsplice",
}  # fmt: skip
WITH_CONDITIONS = {"clone", "mknod", "mknodat", "personality", "socket", "socketpair"}


def rules() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(seccomp_profile())["syscalls"]
    return found


def test_the_dangerous_calls_are_not_on_the_list() -> None:
    allowed = {name for rule in rules() if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}
    assert not NEVER & allowed


def test_calls_that_a_flag_makes_dangerous_are_never_allowed_without_a_condition() -> None:
    unconditional = {name for rule in rules() if not rule["args"] for name in rule["names"]}
    assert not WITH_CONDITIONS & unconditional


def test_what_is_not_named_is_refused_with_eperm() -> None:
    profile = json.loads(seccomp_profile())
    assert (profile["defaultAction"], profile["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 1)
    assert all(machine["subArchitectures"] == [] for machine in profile["archMap"])
