"""A model provider that plays a script: the twin of the real upstream, behind the same gateway and the same wires."""

import secrets
from collections.abc import Mapping
from typing import Final

import anyio

from sandboxes.gateway.json_types import JsonObject
from sandboxes.gateway.model_request import ModelRequest
from sandboxes.gateway.provider_answer import ProviderAnswer, in_pieces
from sandboxes.gateway.refusal import WorkerKind, error_body
from sandboxes.gateway.script.claude_voice import ClaudeVoice
from sandboxes.gateway.script.codex_voice import CodexVoice
from sandboxes.gateway.script.script_model import Script, ScriptError, WireFault
from sandboxes.gateway.script.script_player import ScriptPlayer
from sandboxes.gateway.script.voice import Voice

CODEX_MODELS: Final = {"plain": "scripted-model", "patch": "gpt-5.5", "code": "gpt-5.5"}
"""The model names whose metadata inside Codex gives each surface; code mode needs `features.code_mode` too."""

_STREAM: Final = (("content-type", "text/event-stream"),)
_JSON: Final = (("content-type", "application/json"),)


class ScriptedProvider:
    """One worker's scripted model."""

    def __init__(self, script: Script, kind: WorkerKind, tool_names: Mapping[str, str]) -> None:
        self._kind: WorkerKind = kind
        self._voice: Voice = ClaudeVoice(tool_names) if kind == "claude" else CodexVoice(tool_names)
        self._player = ScriptPlayer(script, self._voice)

    @property
    def finished(self) -> bool:
        """Whether the script was played to its end."""
        return self._player.finished

    @property
    def error(self) -> ScriptError | None:
        """Why the script cannot go on."""
        return self._player.error

    async def answer(self, request: ModelRequest) -> ProviderAnswer:
        """What the provider answers. Raises `ScriptError` when the run has to end."""
        played = self._player.play(request)
        if played.delay_ms:
            await anyio.sleep(played.delay_ms / 1000)
        if isinstance(played.answer, WireFault):
            return self._fault(played.answer)
        identifier = secrets.token_hex(8)
        if request.stream:
            return ProviderAnswer(200, _STREAM, in_pieces(self._voice.stream(played.answer, request.model, identifier)))
        whole = self._voice.whole(played.answer, request.model, identifier)
        return ProviderAnswer.of_json(200, whole)

    def count_tokens(self) -> JsonObject:
        """The answer to a question about tokens: never a step."""
        return {"input_tokens": 10}

    def models(self) -> JsonObject:
        """The answer to a question about models: never a step."""
        return {"object": "list", "data": [], "models": [], "has_more": False, "first_id": None, "last_id": None}

    def _fault(self, fault: WireFault) -> ProviderAnswer:
        if fault.raw is not None:
            return ProviderAnswer(fault.status, fault.headers, in_pieces(iter([fault.raw.encode()])))
        body = error_body(self._kind, fault.status, fault.message)
        return ProviderAnswer(fault.status, (*_JSON, *fault.headers), in_pieces(iter([body])))
