"""The inventory actor of the shop example: what an actor looks like, whole."""

from bridge import Actor, ActorError

STOCK = {"WIDGET-42": {"east": 100, "west": 47}, "GADGET-7": {"east": 3}}


class Inventory(Actor):
    """Stock of the demo shop."""

    mount = "demo.inventory"
    description = "Stock levels of the demo shop, by warehouse."
    version = "1"
    accepts = {
        "inventory.check": {
            "description": "How many items of a SKU are in stock, and where.",
            "schema": {
                "sku": {"type": "string", "description": "Stock keeping unit, e.g. WIDGET-42", "minLength": 1},
                "warehouse": {"type": "string", "description": "Only this warehouse", "optional": True},
            },
            "returns": {
                "available": {"type": "integer", "description": "Items in stock"},
                "warehouses": {
                    "type": "array",
                    "description": "Where they are",
                    "items": {"type": "string", "description": "Name of a warehouse"},
                },
            },
        },
        "inventory.reserve": {
            "description": "Reserve items of a SKU for an order.",
            "schema": {
                "sku": {"type": "string", "description": "Stock keeping unit, e.g. WIDGET-42"},
                "quantity": {"type": "integer", "description": "How many items", "minimum": 1},
            },
            "returns": {"reserved": {"type": "integer", "description": "Items reserved"}},
        },
        "inventory.delete": {
            "description": "Remove a SKU and its stock for ever.",
            "schema": {"sku": {"type": "string", "description": "Stock keeping unit, e.g. WIDGET-42"}},
            "returns": {"deleted": {"type": "boolean", "description": "Whether there was such a SKU"}},
        },
    }
    state = {"checks": {"type": "integer", "description": "Checks answered since the start", "default": 0}}
    blackboard = {
        "lowStock": {
            "type": "array",
            "description": "SKUs below their minimum",
            "items": {"type": "string", "description": "SKU"},
        }
    }
    emits = {
        "inventory.changed": {
            "description": "A stock level changed.",
            "schema": {"sku": {"type": "string", "description": "SKU whose level changed"}},
        }
    }

    async def start(self) -> None:
        """Start with fresh stock."""
        self.stock = {sku: dict(places) for sku, places in STOCK.items()}
        self.blackboard["lowStock"] = [sku for sku, places in self.stock.items() if sum(places.values()) < 10]

    async def inventory_check(self, sku: str, warehouse: str | None = None) -> dict:
        """Answer from the stock."""
        places = self._places(sku)
        self.state["checks"] += 1
        found = {place: count for place, count in places.items() if warehouse in (None, place)}
        return {"available": sum(found.values()), "warehouses": sorted(found)}

    async def inventory_reserve(self, sku: str, quantity: int) -> dict:
        """Take from the fullest warehouse first."""
        places = self._places(sku)
        if quantity > sum(places.values()):
            raise ActorError("OUT_OF_STOCK", f"only {sum(places.values())} of {sku!r} are left")
        open_quantity = quantity
        for place in sorted(places, key=lambda name: -places[name]):
            taken = min(places[place], open_quantity)
            places[place] -= taken
            open_quantity -= taken
        await self.emit("inventory.changed", {"sku": sku})
        return {"reserved": quantity}

    async def inventory_delete(self, sku: str) -> dict:
        """Forget the SKU."""
        return {"deleted": self.stock.pop(sku, None) is not None}

    def _places(self, sku: str) -> dict:
        if sku not in self.stock:
            raise ActorError("UNKNOWN_SKU", f"there is no SKU {sku!r}")
        return self.stock[sku]
