import anyio
import pytest

from bridge.contract.errors import MatrixError
from supervisor.outbox import Outbox

pytestmark = pytest.mark.anyio


class Log:
    """A bridge that can be away."""

    def __init__(self):
        self.there = True
        self.records = []

    async def deliver(self, record):
        if not self.there:
            raise MatrixError("MX_AGENT_BRIDGE_UNAVAILABLE")
        self.records.append(record)
        return len(self.records)


async def test_a_record_is_delivered_at_once_and_answers_its_number(tmp_path):
    log = Log()
    outbox = Outbox(tmp_path, log.deliver)
    assert await outbox.append("gate", {"worker": "w"}) == 1
    assert outbox.waiting() == []
    assert log.records[0]["kind"] == "gate"


async def test_what_the_bridge_cannot_take_waits_on_disk_and_arrives_in_order(tmp_path):
    log = Log()
    log.there = False
    outbox = Outbox(tmp_path, log.deliver)
    for number in range(3):
        assert await outbox.append("worker.state", {"number": number}) is None
    assert len(outbox.waiting()) == 3

    log.there = True
    after_a_restart = Outbox(tmp_path, log.deliver)
    await after_a_restart.flush()
    assert [record["number"] for record in log.records] == [0, 1, 2]
    assert after_a_restart.waiting() == []


async def test_each_record_has_a_key_of_its_own_so_that_a_repeat_is_known(tmp_path):
    log = Log()
    outbox = Outbox(tmp_path, log.deliver)
    for _ in range(20):
        await outbox.append("commit", {})
    assert len({record["key"] for record in log.records}) == 20


async def test_a_record_that_is_refused_for_good_is_set_aside_and_holds_up_no_other(tmp_path):
    log = Log()

    async def deliver(record):
        if record["kind"] == "huge":
            raise MatrixError("MX_AGENT_TOO_LARGE")
        return await log.deliver(record)

    outbox = Outbox(tmp_path, deliver)
    assert await outbox.append("huge", {}) is None
    assert await outbox.append("gate", {}) == 1
    assert outbox.waiting() == []
    (kept,) = tmp_path.glob("*.refused")
    assert '"huge"' in kept.read_text()


async def test_half_a_file_of_an_earlier_crash_holds_up_nothing(tmp_path):
    (tmp_path / "00000000000000000001-aaaaaaaa.json").write_text('{"kind": "ga')
    log = Log()
    assert await Outbox(tmp_path, log.deliver).append("gate", {}) == 1


async def test_a_record_knows_its_number_also_when_another_one_delivered_it(tmp_path):
    log = Log()
    held = anyio.Event()

    async def deliver(record):
        await held.wait()
        return await log.deliver(record)

    outbox, numbers = Outbox(tmp_path, deliver), []

    async def append():
        numbers.append(await outbox.append("gate", {}))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(append)
            await anyio.wait_all_tasks_blocked()
            held.set()
    assert set(numbers) == {1, 2, 3}
