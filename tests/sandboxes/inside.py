"""Runs inside a container (`inside.py HOST_PORT BRIDGE_ADDRESS CANARY_NAME`) and prints what it could do, as JSON.

Standard library only. Nothing here judges: the tests compare.
"""

# ruff: noqa: PTH109, PTH114, PTH118, PTH123, PTH208
# it asks the kernel with the very calls, not with a library's idea of them

import ctypes
import json
import os
import socket
import stat
import sys
from collections.abc import Callable

CALLS: dict[
    str, tuple[int | bytes, ...]
] = {  # x86-64: number and arguments that would succeed, or fail otherwise than by EPERM, without a filter
    "unshare": (272, 0x10000000),
    "mount": (165, 0, b"/tmp", b"tmpfs", 0, 0),
    "umount2": (166, b"/tmp", 0),
    "fsopen": (430, b"tmpfs", 0),
    "open_tree": (428, -100, b"/", 1),
    "move_mount": (429, -1, b"", -1, b"", 0),
    "mount_setattr": (442, -100, b"/", 0, 0, 0),
    "pivot_root": (155, b"/", b"/"),
    "chroot": (161, b"/"),
    "mknod_char": (133, b"/tmp/char", stat.S_IFCHR | 0o666, 0x103),
    "mknod_block": (133, b"/tmp/block", stat.S_IFBLK | 0o666, 0x800),
    "mknodat_char": (259, -100, b"/tmp/char", stat.S_IFCHR | 0o666, 0x103),
    "bpf": (321, 0, 0, 0),
    "perf_event_open": (298, 0, 0, -1, -1, 0),
    "keyctl": (250, 0, -3, 0),
    "add_key": (248, b"user", b"x", b"y", 1, -3),
    "request_key": (249, b"user", b"x", 0, -3),
    "userfaultfd": (323, 1),
    "open_by_handle_at": (304, -1, 0, 0),
    "name_to_handle_at": (303, -100, b"/", 0, 0, 0),
    "io_uring_setup": (425, 1, 0),
    "io_uring_enter": (426, -1, 0, 0, 0, 0),
    "io_uring_register": (427, -1, 0, 0, 0),
    "ptrace": (101, 0, 0, 0, 0),
    "process_vm_readv": (310, 1, 0, 0, 0, 0, 0),
    "setns": (308, -1, 0),
    "kexec_load": (246, 0, 0, 0, 0),
    "init_module": (175, 0, 0, b""),
    "finit_module": (313, -1, b"", 0),
    "syslog": (103, 3, 0, 0),
    "reboot": (169, 0, 0, 0, 0),
    "swapon": (167, b"/x", 0),
    "quotactl": (179, 0, 0, 0, 0),
    "personality": (135, 0x0040000),
    "clone_newuser": (56, 0x10000000 | 17, 0, 0, 0, 0),
    "clone_newnet": (56, 0x40000000 | 17, 0, 0, 0, 0),
    "clone3": (435, 0, 0),
}
FAMILIES = {
    "AF_ALG": (38, socket.SOCK_SEQPACKET, 0),
    "AF_VSOCK": (40, socket.SOCK_STREAM, 0),
    "AF_PACKET": (17, socket.SOCK_RAW, 0),
    "AF_KEY": (15, socket.SOCK_RAW, 2),
    "AF_CAN": (29, socket.SOCK_RAW, 1),
    "AF_BLUETOOTH": (31, socket.SOCK_RAW, 1),
    "AF_XDP": (44, socket.SOCK_RAW, 0),
    "NETLINK_NETFILTER": (16, socket.SOCK_RAW, 12),
    "NETLINK_AUDIT": (16, socket.SOCK_RAW, 9),
}
UNWALKED = ("/proc", "/sys")


def call_errno(*words: int | bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    result = libc.syscall(*(ctypes.c_long(word) if isinstance(word, int) else word for word in words))
    if result == 0 and words[0] == CALLS["clone_newuser"][0]:
        os._exit(0)  # the child of a clone that was let through
    return 0 if result >= 0 else ctypes.get_errno()


def attempt(function: Callable[..., object], *arguments: object) -> int | str:
    """The errno of what it raises, 0 when it works."""
    try:
        function(*arguments)
    except OSError as error:
        return error.errno or str(error)
    return 0


def fields() -> dict[str, str]:
    with open("/proc/self/status", encoding="ascii") as status:
        return dict(line.rstrip("\n").split(":\t", 1) for line in status)


def writable_paths() -> list[str]:
    """Everything outside /proc and /sys that this user may write, not looking below what is writable."""
    found = []
    for folder, folders, files in os.walk("/"):
        if folder == "/":
            folders[:] = [name for name in folders if f"/{name}" not in UNWALKED]
        if os.access(folder, os.W_OK):
            found.append(folder)
            folders.clear()
            continue
        paths = [os.path.join(folder, name) for name in files]
        found += [path for path in paths if not os.path.islink(path) and os.access(path, os.W_OK)]
    return sorted(found)


def writable_below(top: str) -> list[str]:
    found = []
    for folder, _, files in os.walk(top):
        found += [os.path.join(folder, name) for name in files if os.access(os.path.join(folder, name), os.W_OK)]
    return sorted(path for path in found if "/self/" not in path and not path.split("/")[2].isdigit())


def names_found(name: str) -> list[str]:
    return [os.path.join(folder, name) for folder, folders, files in os.walk("/") if name in files or name in folders]


def head(path: str) -> str | int | None:
    try:
        with open(path, "rb") as file:
            return file.read(16).hex()
    except OSError as error:
        return error.errno


def reached(family: int, address: object) -> int | str:
    with socket.socket(family) as client:
        client.settimeout(2)
        return attempt(client.connect, address)


def routes() -> list[str]:
    with open("/proc/net/route", encoding="ascii") as table:
        return table.read().splitlines()[1:]


def create_queue() -> None:
    os.close(os.open("/dev/mqueue/probe", os.O_CREAT | os.O_RDWR))


def main(port: str, bridge: str, canary: str) -> None:
    masked = ("kcore", "keys", "timer_list", "sched_debug", "interrupts", "latency_stats")
    print(
        json.dumps(
            {
                "status": fields(),
                "ids": [os.getuid(), os.geteuid(), os.getgid(), os.getgroups()],
                "cwd": os.getcwd(),
                "fds": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
                "writable": writable_paths(),
                "writable_proc": writable_below("/proc"),
                "writable_sys": writable_below("/sys"),
                "masked": {name: head(f"/proc/{name}") for name in masked},
                "firmware": os.listdir("/sys/firmware"),
                "calls": {name: call_errno(*words) for name, words in CALLS.items()},
                "families": {
                    name: attempt(lambda f=family: socket.socket(*f).close()) for name, family in FAMILIES.items()
                },
                "interfaces": sorted(os.listdir("/sys/class/net")),
                "reached": {
                    "loopback": reached(socket.AF_INET, ("127.0.0.1", int(port))),
                    "bridge": reached(socket.AF_INET, (bridge, int(port))),
                    "outside": reached(socket.AF_INET, ("192.0.2.1", 443)),
                    "abstract": reached(socket.AF_UNIX, f"\0{canary}"),
                },
                "routes": routes(),
                "canary": names_found(canary),
                "docker_sock": names_found("docker.sock"),
                "queue": attempt(create_queue),
                "environ": dict(os.environ),
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
