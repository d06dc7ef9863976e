"""Plays a script to one worker: which step is next, what its results were, whether they are as expected.

Above: `scripted_provider`, which writes what the player decides. Below: a `Voice`, the worker's own terms. Each agent
of the worker has a track of its own. What it refuses to know: wires and clocks.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sandboxes.gateway.model_request import ModelRequest
from sandboxes.gateway.script.model_turn import ModelTurn, WireCall
from sandboxes.gateway.script.script_model import Script, ScriptCall, ScriptError, Step, WireFault
from sandboxes.gateway.script.voice import Voice

ENDED: Final = ModelTurn("(the script has ended)")
AUXILIARY: Final = ModelTurn("Scripted run")
MAX_SHOWN: Final = 2_000
"""Characters of a result that a failed expectation shows."""

_CHANGING: Final = frozenset({"write", "edit"})
_FILE_TOOLS: Final = _CHANGING | {"read"}


@dataclass(frozen=True)
class Played:
    """What to answer, after a pause."""

    answer: ModelTurn | WireFault
    delay_ms: int = 0


@dataclass
class _Track:
    """Where one agent stands in its steps. `waiting` holds the ids of calls whose results have to come next."""

    steps: Sequence[Step]
    next_step: int = 0
    waiting: tuple[str, ...] = ()
    asked: Sequence[ScriptCall] = ()  # what they are calls of
    made: int = 0  # how many of this step's calls were asked for and answered
    results: list[str] = field(default_factory=list)  # of those that were carried out
    remedies: dict[ScriptCall, ScriptCall] = field(
        default_factory=dict
    )  # a call to make once more -> what comes before
    prepared: dict[ScriptCall, str] = field(default_factory=dict)  # what this step's preparations gave
    preparing: ScriptCall | None = None
    last: Played | None = None
    read_paths: set[str] = field(default_factory=set)


class ScriptPlayer:
    """One script for one worker."""

    def __init__(self, script: Script, voice: Voice) -> None:
        self._script = script
        self._voice = voice
        self._main = _Track(script.steps)
        self._agents: dict[str, _Track] = {}
        self._spawned: list[tuple[str, str]] = []  # (prompt, agent) not yet met
        self.error: ScriptError | None = None

    @property
    def finished(self) -> bool:
        """Whether the main script was played to its end, expectations included."""
        return self.error is None and self._main.next_step >= len(self._script.steps)

    def play(self, request: ModelRequest) -> Played:
        """The answer to `request`. Raises `ScriptError`, now and ever after, once the script cannot go on."""
        if request.auxiliary:
            return Played(AUXILIARY)
        if self.error is not None:
            raise self.error
        try:
            return self._advance(self._track(request), request)
        except ScriptError as error:
            self.error = error
            raise

    def _track(self, request: ModelRequest) -> _Track:
        if request.agent is None:
            return self._main
        if request.agent not in self._agents:
            self._agents[request.agent] = _Track(self._steps_for(request))
        return self._agents[request.agent]

    def _steps_for(self, request: ModelRequest) -> Sequence[Step]:
        """The script of the agent that was started with this request's prompt."""
        for spawned in self._spawned:
            prompt, agent = spawned
            if prompt in request.opening:
                self._spawned.remove(spawned)
                return self._script.agents[agent]
        return ()

    def _advance(self, track: _Track, request: ModelRequest) -> Played:
        if track.waiting:
            if not request.results.keys() >= set(track.waiting) and track.last is not None:
                return track.last  # the worker asks again: its results are not there yet
            results = [request.results[identifier] for identifier in track.waiting]
            if track.preparing is not None:
                track.prepared[track.preparing] = "\n".join(results)
            else:
                self._take(track, results)
        track.waiting, track.preparing = (), None
        track.last = self._next(track, request)
        return track.last

    def _take(self, track: _Track, results: list[str]) -> None:
        """Take the results of calls: the step is done, or more of its calls follow, or some are made once more."""
        is_first_try = not track.remedies
        track.remedies = self._remedies(track.asked, results) if is_first_try else {}
        track.made += len(track.asked) if is_first_try else 0
        track.results += [text for call, text in zip(track.asked, results, strict=False) if call not in track.remedies]
        track.prepared.clear()
        step = track.steps[track.next_step]
        if not track.remedies and track.made == len(step.calls):
            _check(step, track.next_step, track.results)
            track.next_step += 1
            track.made, track.results = 0, []

    def _remedies(self, asked: Sequence[ScriptCall], results: list[str]) -> dict[ScriptCall, ScriptCall]:
        if len(asked) != len(results):
            return {}  # the calls were gathered in one
        wanted = {call: self._voice.remedy(call, result) for call, result in zip(asked, results, strict=True)}
        return {call: remedy for call, remedy in wanted.items() if remedy is not None}

    def _next(self, track: _Track, request: ModelRequest) -> Played:
        if track.next_step >= len(track.steps):
            return Played(ENDED)
        step = track.steps[track.next_step]
        if step.fault is not None or not step.calls:
            track.next_step += 1
            return Played(step.fault or ModelTurn(step.say), step.delay_ms)
        say = "" if track.prepared or track.remedies or track.made else step.say
        calls = tuple(track.remedies) or _side_by_side(step.calls[track.made :])
        track.preparing = self._preparation(track, calls, request)
        calls = calls if track.preparing is None else (track.preparing,)
        return Played(ModelTurn(say, self._phrased(track, request, calls)), step.delay_ms)

    def _preparation(self, track: _Track, calls: Sequence[ScriptCall], request: ModelRequest) -> ScriptCall | None:
        """The first preparation that these calls still need: one at a time, so that each has a result of its own."""
        known = frozenset(track.read_paths)
        wanted = (track.remedies.get(call) or self._voice.preparation(call, request, known) for call in calls)
        return next((call for call in wanted if call is not None and call not in track.prepared), None)

    def _phrased(self, track: _Track, request: ModelRequest, calls: Sequence[ScriptCall]) -> tuple[WireCall, ...]:
        known = frozenset(track.read_paths)
        phrased = []
        for call in calls:
            preparation = self._voice.preparation(call, request, known)
            prepared = track.prepared.get(preparation) if preparation is not None else None
            phrased.append(self._voice.phrase(call, request, secrets.token_hex(8), prepared))
        gathered = tuple(self._voice.gather(phrased, request, secrets.token_hex(8)))
        track.waiting, track.asked = tuple(call.id for call in gathered), tuple(calls)
        track.read_paths |= {call.text("path") for call in calls if call.tool in _FILE_TOOLS}
        self._spawned += [(call.text("prompt"), call.text("agent")) for call in calls if call.tool == "spawn"]
        return gathered


def _side_by_side(calls: tuple[ScriptCall, ...]) -> tuple[ScriptCall, ...]:
    """The first of `calls` that may be made in one turn: what touches a changed file waits for the change's result."""
    changed: set[str] = set()
    for place, call in enumerate(calls):
        if call.tool in _FILE_TOOLS and call.text("path") in changed:
            return calls[:place]
        if call.tool in _CHANGING:
            changed.add(call.text("path"))
    return calls


def _check(step: Step, place: int, results: list[str]) -> None:
    got = "\n".join(results)
    if step.expect is not None and not re.search(step.expect, got):
        shown = got if len(got) <= MAX_SHOWN else f"{got[:MAX_SHOWN]} … ({len(got)} characters)"
        raise ScriptError(
            "MX_SCRIPT_EXPECTATION",
            f"Step {place + 1} expected a result that matches {step.expect!r} and got: {shown!r}",
        )
