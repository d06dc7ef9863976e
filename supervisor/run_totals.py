"""What is counted while a run goes on, and the result object it ends with (contracts.md, section 2). Pure."""

from dataclasses import dataclass, field
from typing import cast

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
    """Counters fed by the events of a run, live or as they are kept; in whatever order, and each as often as it comes.

    A call whose verdict is `ask` was allowed unless its outcome says that it was denied.
    """

    inferences: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    call_events: int = 0
    first_record: int | None = None
    last_record: int | None = None
    witnessed: dict[str, str] = field(default_factory=dict)
    """Id -> tool of each call that the gateway saw in the model's answers."""
    judged: set[str] = field(default_factory=set)
    """The worker's own ids of the calls that the bridge judged."""
    _verdicts: dict[str, str] = field(default_factory=dict)
    _outcomes: dict[str, str] = field(default_factory=dict)

    def count_call(self, event: JsonObject) -> None:
        """Take in one `call.event` of the bridge, or what was kept of it."""
        self.call_events += 1
        call = str(event.get("call"))
        self._verdicts[call] = str(event.get("verdict"))
        if isinstance(worker_call := event.get("workerCall"), str):
            self.judged.add(worker_call)
        if "outcome" in event:
            self._outcomes[call] = str(event["outcome"])

    def count_inference(self, event: JsonObject) -> None:
        """Take in one `inference`: it counts where the model answered."""
        used = event.get("tokens")
        tokens = cast("dict[str, int]", used) if isinstance(used, dict) else {}
        self.tokens_in += tokens.get("input", 0)
        self.tokens_out += tokens.get("output", 0)
        self.inferences += event.get("status") == 200 or any(tokens.values())

    def note_record(self, number: int | None) -> None:
        """Widen the run's span in the audit log by one of its own records."""
        if number is not None:
            self.first_record = number if self.first_record is None else min(number, self.first_record)
            self.last_record = max(number, self.last_record or 0)

    def calls(self) -> JsonObject:
        """The result's `calls`: a call that was allowed and has not ended well has failed, also one without an end."""
        outcomes = [(verdict, self._outcomes.get(call)) for call, verdict in self._verdicts.items()]
        allowed = [
            o for verdict, o in outcomes if verdict == "allow" or (verdict == "ask" and o not in (None, "denied"))
        ]
        return {
            "total": len(outcomes),
            "allowed": len(allowed),
            "denied": len(outcomes) - len(allowed),
            "failed": sum(outcome != "ok" for outcome in allowed),
        }
