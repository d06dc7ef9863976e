"""Runs inside a worker's container (`key_search.py SECRET PRESENT`): where each is found, in whatever form, as JSON.

Takes both reversed, so that the search does not find its own arguments. PRESENT is something that processes do have,
so that a search which finds nothing is seen. Used on the host too. Standard library only.
"""

import base64
import hashlib
import json
import os
import sys
from pathlib import Path

CHUNK_BYTES = 16 * 1024 * 1024
LONGEST_FORM = 256
KERNEL = {"/proc", "/sys", "/dev"}


def forms(secret):
    """The secret as it is, and encoded or digested in the usual ways."""
    raw = secret.encode()
    digest = hashlib.sha256(raw)
    inner = {base64.b64encode(b"\0" * shift + raw)[4 if shift else 0 : -4] for shift in range(3)}
    return {raw, raw.hex().encode(), raw.hex().upper().encode(), digest.hexdigest().encode(), digest.digest(), *inner}


def holds(secret, data):
    """Whether bytes hold the secret in any form."""
    return any(form in data for form in forms(secret))


def file_holds(secret, path):
    """Whether a file does, read piece by piece with an overlap."""
    rest = b""
    with path.open("rb") as file:
        while data := file.read(CHUNK_BYTES):
            if holds(secret, rest + data):
                return True
            rest = data[-LONGEST_FORM:]
    return False


def searched_files(top):
    """Every regular file below `top` but the kernel's own."""
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in KERNEL]  # noqa: PTH118
        yield from (path for path in (Path(folder, name) for name in names) if path.is_file() and not path.is_symlink())


def found(secret, top="/"):
    """The files below `top` that hold the secret."""
    return holding(secret, searched_files(top))


def found_in_processes(secret):
    """The files of /proc that show it as a variable or a word of a process."""
    return holding(secret, (path for name in ("environ", "cmdline") for path in Path("/proc").glob(f"[0-9]*/{name}")))


def holding(secret, paths):
    """Those of the paths that can be read and hold it."""
    places = []
    for path in paths:
        try:
            if file_holds(secret, path):
                places.append(str(path))
        except OSError:
            continue
    return places


if __name__ == "__main__":
    secret, present = (word[::-1] for word in sys.argv[1:])
    print(json.dumps([found(secret) + found_in_processes(secret), found_in_processes(present)]))
