"""The text of an actor module whose ops behave in every way that an actor can."""

SHOP = '''
import os
from bridge import Actor, ActorError

print("this must not reach the stream")


def field(kind, text, **more):
    return {"type": kind, "description": text, **more}


class Shop(Actor):
    """A shop that can do everything wrong."""

    mount = "demo.shop"
    description = "A shop."
    accepts = {
        "shop.check": {
            "description": "How many.",
            "schema": {"sku": field("string", "Which"), "house": field("string", "Where", default="east")},
            "returns": {"available": field("integer", "How many"), "house": field("string", "Where")},
        },
        "shop.reserve": {"description": "Keep one.", "schema": {"sku": field("string", "Which")}},
        "shop.delete": {"description": "Remove.", "schema": {}},
        "shop.who": {"description": "Who asks.", "schema": {}},
        "shop.raise": {"description": "Fails.", "schema": {}},
        "shop.refuse": {"description": "Fails on purpose.", "schema": {}},
        "shop.forge": {"description": "Fails with a code of the bridge.", "schema": {}},
        "shop.hang": {"description": "Never answers.", "schema": {"mark": field("string", "A file", optional=True)}},
        "shop.block": {"description": "Blocks its host.", "schema": {}},
        "shop.crash": {"description": "Ends its host.", "schema": {}},
        "shop.lie": {
            "description": "Answers against its returns.",
            "schema": {},
            "returns": {"available": field("integer", "How many")},
        },
        "shop.huge": {"description": "Answers at length.", "schema": {"bytes": field("integer", "How many")}},
        "shop.odd": {"description": "Answers with what is no JSON.", "schema": {}},
        "shop.count": {"description": "Counts.", "schema": {}},
        "shop.touch": {"description": "Writes a file.", "schema": {"path": field("string", "Which")}},
        "shop.progress": {"description": "Tells how far it is.", "schema": {}},
    }
    state = {"count": field("integer", "Calls of shop.count", default=0)}
    blackboard = {"lowStock": field("array", "Which", items=field("string", "SKU"))}
    emits = {"shop.changed": {"description": "Changed.", "schema": {"sku": field("string", "Which")}}}

    async def shop_check(self, sku, house):
        return {"available": 147, "house": house}

    async def shop_reserve(self, sku):
        return {"kept": sku}

    async def shop_delete(self):
        return {}

    async def shop_who(self):
        caller = self.ctx.caller
        return {"kind": caller.kind, "worker": caller.worker, "call": self.ctx.call, "left": self.ctx.remaining_ms}

    async def shop_raise(self):
        raise RuntimeError("the password is hunter2")

    async def shop_refuse(self):
        raise ActorError("SOLD_OUT", "Nothing is left.", sku="A")

    async def shop_forge(self):
        from bridge.contract.errors import MatrixError
        raise MatrixError("MX_AGENT_OUT_OF_SUBTREE", "forged")

    async def shop_hang(self, mark=None):
        import anyio
        try:
            await anyio.sleep_forever()
        finally:
            if mark:
                open(mark, "w").close()

    async def shop_block(self):
        while True:
            pass

    async def shop_crash(self):
        os._exit(1)

    async def shop_lie(self):
        return {"available": "many"}

    async def shop_huge(self, bytes):
        return {"text": "x" * bytes}

    async def shop_odd(self):
        return {"value": {1, 2}}

    async def shop_count(self):
        self.state["count"] += 1
        self.blackboard["lowStock"] = ["A"]
        await self.emit("shop.changed", {"sku": "A"})
        return {"count": self.state["count"]}

    async def shop_touch(self, path):
        open(path, "w").close()
        return {}

    async def shop_progress(self):
        await self.ctx.progress(1, 2, "half")
        return {}
'''
