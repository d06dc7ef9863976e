"""An actor that does everything wrong, one op a fault. Loaded by an actor host of the product, not by the tests."""

import asyncio
import os

from bridge import Actor, ActorError

NUMBER = {"n": {"type": "integer", "description": "A number"}}


PAD = {"pad": {"type": "string", "description": "Makes the call longer", "optional": True}}


def _op(description, returns, schema=None):
    return {"description": description, "schema": schema or {}, "returns": returns}


class Faulty(Actor):
    """Raises, hangs, lies, floods and dies; `faulty.count` is the one that works and tells that it was executed."""

    mount = "demo.faulty"
    description = "Fails in every way that there is."
    accepts = {  # noqa: RUF012 - declarations are data
        "faulty.count": _op("Counts its calls.", NUMBER, PAD),
        "faulty.raise": _op("Raises what nobody expects.", NUMBER),
        "faulty.refuse": _op("Fails on purpose.", NUMBER),
        "faulty.hang": _op("Never answers.", NUMBER),
        "faulty.lie": _op("Answers against its own declaration.", NUMBER),
        "faulty.flood": _op("Answers with 50 MB.", {"text": {"type": "string", "description": "Very long"}}),
        "faulty.die": _op("Ends its own process.", NUMBER),
    }
    state = {"count": {"type": "integer", "description": "Calls counted", "default": 0}}  # noqa: RUF012

    async def faulty_count(self, pad=""):
        """The next number."""
        self.state["count"] += 1
        return {"n": self.state["count"]}

    async def faulty_raise(self):
        """A fault whose text nobody outside the actor's host may see."""
        raise RuntimeError("a secret of the actor")

    async def faulty_refuse(self):
        """A typed failure."""
        raise ActorError("NOT_TODAY", "come back tomorrow")

    async def faulty_hang(self):
        """Wait for what never comes."""
        await asyncio.Event().wait()

    async def faulty_lie(self):
        """A text where a number was promised."""
        return {"n": "many"}

    async def faulty_flood(self):
        """More than any limit."""
        return {"text": "x" * 50_000_000}

    async def faulty_die(self):
        """As a segmentation fault would."""
        os._exit(7)
