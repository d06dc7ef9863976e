import anyio
import pytest

from bridge.contract.errors import MatrixError
from bridge.contract.tool_invocation import NativeCall
from supervisor import mediation as module
from supervisor.mediation import BridgeMediation

pytestmark = pytest.mark.anyio

WRITE = NativeCall("file.write", "Write", {"file_path": "a"})
READ = NativeCall("file.read", "Read", {"file_path": "a"})


class Link:
    """An admin channel that answers as it is told and keeps what was asked."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    async def request(self, method, params, timeout_ms=None):
        self.asked.append((method, params))
        if isinstance(self.answer, MatrixError):
            raise self.answer
        return self.answer


def mediation(link, ended=None):
    seen = [] if ended is None else ended

    async def on_ended(call):
        seen.append(call)

    return BridgeMediation(link, "capability", on_ended, 1000)


async def test_a_bridge_that_is_gone_refuses_the_call_with_its_code():
    asked = mediation(Link(MatrixError("MX_AGENT_BRIDGE_UNAVAILABLE")))
    verdict = await asked.decide(WRITE, "t1")
    assert not verdict.allowed
    assert "MX_AGENT_BRIDGE_UNAVAILABLE" in verdict.message


@pytest.mark.parametrize("answer", [{}, {"verdict": "allow"}, {"verdict": "ALLOW", "call": "c"}, {"verdict": True}])
async def test_an_answer_that_is_not_exactly_an_allowance_refuses(answer):
    assert not (await mediation(Link(answer)).decide(WRITE, "t1")).allowed


async def test_the_workspace_is_looked_at_after_a_call_that_may_have_changed_it_and_not_after_a_read():
    link, looked = Link({"verdict": "allow", "call": "c1"}), list[str]()
    asked = mediation(link, looked)
    for native, call in ((WRITE, "t1"), (READ, "t2")):
        await asked.decide(native, call)
        await asked.finish(call, "ok", "", 1.0)
    assert looked == ["c1"]


async def test_a_call_ends_once_and_one_that_was_never_allowed_not_at_all():
    link = Link({"verdict": "allow", "call": "c1"})
    asked = mediation(link)
    await asked.decide(READ, "t1")
    for call in ("t1", "t1", "never"):
        await asked.finish(call, "ok", "", 1.0)
    assert [method for method, _ in link.asked] == ["native.decide", "native.finish"]


async def test_what_a_lost_worker_left_open_ends_within_a_bound(monkeypatch):
    monkeypatch.setattr(module, "FINISH_ALL_S", 0.05)
    link = Link({"verdict": "allow", "call": "c1"})
    asked = mediation(link)
    for number in range(1000):
        await asked.decide(READ, f"t{number}")

    async def hang(method, params, timeout_ms=None):
        await anyio.sleep_forever()

    monkeypatch.setattr(link, "request", hang)
    with anyio.fail_after(5):
        await asked.finish_all("unknown")
