"""A worker that is closed in the middle of an answer: all that happened is reported, and `closed` comes last."""

import anyio

from tests.sandboxes.gateway.answers import messages_body
from tests.sandboxes.gateway.conftest import STEP_S

SLOW = 'steps: [{delayMs: 60000, say: "Never."}]'


async def test_the_inference_that_is_cut_off_is_reported_before_the_last_event(client, events, open_worker) -> None:
    worker = await open_worker(script=SLOW)
    with anyio.fail_after(STEP_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.post, "/v1/messages", messages_body())
            await events.first("surface")
            await client.close_worker("worker-a")
    await events.first("closed")
    of_worker = [event["type"] for event in events.seen if event["worker"] == "worker-a"]
    assert of_worker == ["surface", "inference", "closed"]
    assert events.of("inference")[0]["error"]["code"] == "MX_AGENT_CANCELLED"
