"""The user a worker runs as. Leaf; pure but for asking who we are."""

import os
from typing import Final

from supervisor.worker_spec import ID_ALPHABET

FIRST_UID: Final = 200_000
"""Above what distributions give to people and services."""


def worker_user(worker_id: str) -> tuple[int, int]:
    """uid and gid: as root one of the worker's own, made from the 30 bits of its id, so that no two share one; else
    the caller's, who cannot give files away."""
    if os.getuid() != 0:
        return os.getuid(), os.getgid()
    number = 0
    for letter in worker_id.rsplit("-", 1)[1]:
        number = number * len(ID_ALPHABET) + ID_ALPHABET.index(letter)
    return FIRST_UID + number, FIRST_UID + number
