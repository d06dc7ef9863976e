"""Which calls at the end of the log have a `tool.call` and no `tool.result`: those a crash cut off.

Pure over bytes. Above: `audit_log`, for the bridge, which writes their `tool.result` with outcome `unknown`.
"""

import json

from bridge.contract.json_types import JsonObject

_KINDS = (b',"kind":"tool.call",', b',"kind":"tool.result",')


def unfinished_calls(tail: bytes) -> tuple[JsonObject, ...]:
    """The `tool.call` records in `tail` (whole lines, but perhaps the first) without a `tool.result`, in order."""
    waiting: dict[str, JsonObject] = {}
    for line in tail.splitlines():
        if not any(kind in line for kind in _KINDS):
            continue
        try:
            record = json.loads(line)
        except ValueError:  # the first line of a tail may be a part of one
            continue
        if record.get("kind") == "tool.call":
            waiting[str(record.get("call"))] = record
        elif record.get("kind") == "tool.result":
            waiting.pop(str(record.get("call")), None)
    return tuple(waiting.values())
