"""What is counted while a run goes on, and the result object it ends with (contracts.md, section 2). Pure."""

from dataclasses import dataclass, field

from bridge.contract.json_types import JsonObject
from supervisor.worker_spec import Status


@dataclass(frozen=True)
class Ending:
    """Why a run is over. `code` is a key of `MX_AGENT_ERRORS`, None for a completed run."""

    status: Status
    code: str | None = None
    message: str = ""

    def error(self) -> JsonObject | None:
        """The result's `error`."""
        return None if self.code is None else {"code": self.code, "message": self.message}


@dataclass
class RunTotals:
    """Counters fed by the bridge's call events and the gateway's figures."""

    allowed: int = 0
    denied: int = 0
    failed: int = 0
    inferences: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    first_record: int | None = None
    last_record: int | None = None
    bus_calls: set[str] = field(default_factory=set)  # the worker's own ids of the calls that reached the bus
    witnessed: dict[str, str] = field(
        default_factory=dict
    )  # id -> tool, as the gateway saw them in the model's answers

    def count_call(self, event: JsonObject) -> None:
        """Count one `call.event` of the bridge."""
        if event.get("type") == "call":
            if event.get("verdict") == "allow":
                self.allowed += 1
            else:
                self.denied += 1
        elif event.get("outcome") not in ("ok", "denied"):
            self.failed += 1

    def note_record(self, number: int | None) -> None:
        """Widen the run's span in the audit log by one of its own records."""
        if number is not None:
            self.first_record = number if self.first_record is None else self.first_record
            self.last_record = number

    def calls(self) -> JsonObject:
        """The result's `calls`."""
        return {
            "total": self.allowed + self.denied,
            "allowed": self.allowed,
            "denied": self.denied,
            "failed": self.failed,
        }
