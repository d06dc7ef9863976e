"""The drivers by kind, each imported when it is first wanted: the SDK of one of them takes a second to import."""

from functools import cache

from supervisor.workers.worker import WorkerDriver, WorkerKind


@cache
def driver_of(kind: WorkerKind) -> WorkerDriver:
    """The driver of this kind; one object serves all its workers."""
    if kind == "claude":
        from supervisor.workers.claude_code import ClaudeCodeDriver

        return ClaudeCodeDriver()
    from supervisor.workers.codex import CodexDriver

    return CodexDriver()


def import_all() -> None:
    """Import every driver now; for a thread of a supervisor that has nothing else to do yet."""
    driver_of("claude")
    driver_of("codex")
