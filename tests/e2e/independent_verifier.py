"""Checks a log as contracts.md, section 7 describes it, with nothing of the product: hash and chain of each line."""

import hashlib
import json


def first_fault(lines):
    """The number (from 0) of the first line that breaks the chain, or None."""
    before = "0" * 64
    for number, line in enumerate(lines):
        body, mark, tail = line.rpartition(',"hash":"')
        record = json.loads(line)
        sound = (
            mark
            and line.isascii()
            and tail == record["hash"] + '"}'
            and record["prev"] == before
            and hashlib.sha256(body.encode("ascii")).hexdigest() == record["hash"]
            and record["seq"] == json.loads(lines[0])["seq"] + number
        )
        if not sound:
            return number
        before = record["hash"]
    return None
