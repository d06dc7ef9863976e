"""From what went wrong in a run to the ending that a person reads. Above: `run`."""

import logging
from typing import Final

import anyio

from bridge.contract.errors import MatrixError
from sandboxes.sandbox import RunningSandbox, SandboxError
from supervisor.first_cause import first_cause
from supervisor.repo import RepositoryError
from supervisor.run_totals import Ending

EXIT_WAIT_S: Final = 2.0
"""A worker whose channel has ended is gone within milliseconds."""

LONGEST_LAST_WORDS: Final = 500

_log = logging.getLogger(__name__)


def ending_of(fault: BaseException) -> Ending:
    """The ending that a failure stands for."""
    fault = first_cause(fault)
    if isinstance(fault, MatrixError):
        refused = fault.code == "MX_AGENT_GATE_REFUSED"
        return Ending("refused" if refused else "failed", fault.code, fault.message)
    if isinstance(fault, SandboxError):
        return Ending("failed", "MX_AGENT_SANDBOX_UNAVAILABLE", f"{fault.message} {fault.mend}")
    if isinstance(fault, RepositoryError):
        return Ending("failed", "MX_AGENT_WORKER_EXITED", f"{fault.message} {fault.mend}")
    _log.error("a run failed", exc_info=fault)
    return Ending("failed", "MX_AGENT_WORKER_EXITED", f"The supervisor failed: {type(fault).__name__}; see its log.")


async def true_cause(ending: Ending, sandbox: RunningSandbox) -> Ending:
    """Why a worker's channel ended: out of memory is told apart, and the worker's last words are added."""
    if ending.code != "MX_AGENT_WORKER_EXITED":
        return ending
    with anyio.move_on_after(EXIT_WAIT_S):
        ended = await sandbox.wait()
        if ended.reason == "oom":
            text = "The worker's container ran out of memory: raise [limits] memory in mxs.toml."
            return Ending("failed", "MX_AGENT_SANDBOX_OOM", text)
        words = (await sandbox.stderr_tail()).strip()[-LONGEST_LAST_WORDS:]
        said = f" Its last words: {words}" if words else ""
        return Ending("failed", ending.code, f"{ending.message} Its exit code is {ended.code}.{said}")
    return ending
