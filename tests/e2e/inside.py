"""Runs inside a started worker's container, from its shell (`inside.py OUTPUT`): writes what it sees there, as JSON.

What one process may do is asked by tests/sandboxes/inside.py; this looks at the others, the worker's own program
among them, and at the mounts. Standard library only. Nothing here judges: the tests compare.
"""

import json
import sys
from pathlib import Path


def process(folder):
    """One process as /proc shows it."""
    status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines())
    return {
        "name": status["Name"],
        "status": status,
        "command": words(folder / "cmdline"),
        "environ": words(folder / "environ"),
        "files": sorted(target(link) for link in (folder / "fd").iterdir()),
    }


def words(path):
    """The NUL-ended words of a file, or the number of the error."""
    try:
        return path.read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError as error:
        return [f"errno {error.errno}"]


def target(link):
    """Where an open descriptor leads."""
    try:
        return str(link.readlink())
    except OSError as error:
        return f"errno {error.errno}"


def mounts():
    """Mount point -> [root inside its file system, options, type, source, options of the file system]."""
    found = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        head, _, tail = line.partition(" - ")
        fields = head.split()
        found[fields[4]] = [fields[3], fields[5], *tail.split()]
    return found


def processes():
    """Every process of the container but those that have ended meanwhile."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found.append(process(folder))
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError:
            found.append({"name": (folder / "comm").read_text().strip(), "closed": True})
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps({"processes": processes(), "mounts": mounts()}))
