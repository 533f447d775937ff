"""What knob endpoints may answer: whatever it is, it says no more than that the pod does not take the knobs."""

import asyncio

import aiohttp
import pytest
from aiohttp import web
from leeway_core.pod_knobs import KnobsReply, PodKnobs
from leeway_operator import pod_client
from leeway_operator.pod_client import PodClient, PushRefusedError
from leeway_operator.pods import Pod
from operator_doubles import pod_body

KNOBS = PodKnobs(generation=1, token_budget=64, chunk_size=64, running_sequences=8)


async def talk(status: int, text: str) -> tuple[KnobsReply | None, str]:
    """Read from a pod that answers so, and push to it; returns what was read, and what was refused."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=text, content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/v1/knobs", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        pod = Pod.read(pod_body("chat-engine-0", "engine", podIP="127.0.0.1"))
        async with aiohttp.ClientSession() as session:
            with pytest.MonkeyPatch.context() as ports:
                ports.setattr(pod_client, "KNOBS_PORT", runner.addresses[0][1])
                client = PodClient(session)
                read = await client.read(pod, "token")
                with pytest.raises(PushRefusedError) as refused:
                    await client.push(pod, KNOBS, "token")
                return read, str(refused.value)
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("text", ["[]", '"no"', "null", "7"])
@pytest.mark.parametrize("status", [200, 404])
def test_an_answer_that_is_no_object_is_a_refusal(status: int, text: str) -> None:
    read, refused = asyncio.run(talk(status, text))
    assert read is None
    assert refused.startswith("chat-engine-0: ")


def test_a_refusal_is_told_in_the_pods_words() -> None:
    assert asyncio.run(talk(409, '{"refusal": "generation 1 is not above 3"}')) == (
        None,
        "chat-engine-0: generation 1 is not above 3",
    )
