"""Requests and answers of both protocols, for tests."""

from sandboxes.gateway.json_types import JsonObject, JsonValue


def messages_body(**fields: JsonValue) -> JsonObject:
    """A Messages request as Claude Code sends it, in small."""
    body: JsonObject = {
        "model": "claude-test",
        "max_tokens": 1000,
        "stream": True,
        "messages": [{"role": "user", "content": "Say something."}],
        "tools": [{"name": "Bash", "description": "Runs a command", "input_schema": {"type": "object"}}],
    }
    return {**body, **fields}


def responses_body(**fields: JsonValue) -> JsonObject:
    """A Responses request as Codex sends it, in small."""
    body: JsonObject = {
        "model": "gpt-test",
        "stream": True,
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Say something."}]}],
        "tools": [{"type": "function", "name": "exec_command", "parameters": {"type": "object"}}],
    }
    return {**body, **fields}
