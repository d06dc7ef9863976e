"""Reads the parameters of an admin request: the wanted type, or a refusal that names the parameter. Leaf; pure."""

from pathlib import Path
from typing import NoReturn, get_args

from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.tool_invocation import Access, CallerKind, Outcome


class Parameters:
    """The parameters of one request. Every method raises `MX_AGENT_INVALID_ARGUMENTS` for a value of another type."""

    def __init__(self, given: JsonObject) -> None:
        self._given = given

    def any(self, name: str) -> JsonValue:
        """Whatever it is; None where it is not there."""
        return self._given.get(name)

    def text(self, name: str) -> str:
        """Text that has to be there."""
        value = self._given.get(name)
        return value if isinstance(value, str) else self._refuse(name, "text")

    def text_or_none(self, name: str) -> str | None:
        """Text, or None where it is null or not there."""
        return None if self._given.get(name) is None else self.text(name)

    def path_or_none(self, name: str) -> Path | None:
        """A path, likewise."""
        text = self.text_or_none(name)
        return None if text is None else Path(text)

    def flag(self, name: str) -> bool:
        """A boolean; false where it is not there."""
        value = self._given.get(name, False)
        return value if isinstance(value, bool) else self._refuse(name, "true or false")

    def number_or_none(self, name: str) -> float | None:
        """A number, or None."""
        value = self._given.get(name)
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            return value
        return self._refuse(name, "a number")

    def object(self, name: str) -> JsonObject:
        """An object; empty where it is not there."""
        value = self._given.get(name)
        if value is None:
            return {}
        return value if isinstance(value, dict) else self._refuse(name, "an object")

    def objects(self, name: str) -> list["Parameters"]:
        """A list of objects; empty where it is not there."""
        value = self._given.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            return self._refuse(name, "a list of objects")
        return [Parameters(entry) for entry in value if isinstance(entry, dict)]

    def caller_kind(self) -> CallerKind:
        """`kind`, one of the caller kinds."""
        found: CallerKind | None = next((kind for kind in get_args(CallerKind) if kind == self.any("kind")), None)
        return found if found is not None else self._refuse("kind", f"one of {', '.join(get_args(CallerKind))}")

    def outcome(self) -> Outcome:
        """`outcome`, one of the outcomes."""
        found: Outcome | None = next((known for known in get_args(Outcome) if known == self.any("outcome")), None)
        return found if found is not None else self._refuse("outcome", f"one of {', '.join(get_args(Outcome))}")

    def access(self) -> Access:
        """`access`, read or write."""
        found: Access | None = next((known for known in get_args(Access) if known == self.any("access")), None)
        return found if found is not None else self._refuse("access", "'read' or 'write'")

    def without(self, *names: str) -> JsonObject:
        """Everything but these."""
        return {name: value for name, value in self._given.items() if name not in names}

    def _refuse(self, name: str, wanted: str) -> NoReturn:
        raise MatrixError("MX_AGENT_INVALID_ARGUMENTS", f"The parameter {name!r} has to be {wanted}.")
