"""How many requests a pod holds: its places are taken before a request is read, and given back however it ends."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from byte_tokenizer import TOKENIZER
from leeway_engine.messages import TokenEvent
from leeway_engine.scheduling.request import FinishReason
from leeway_engine.server.api import Api
from leeway_engine.server.channel import Add, ToLoop
from leeway_engine.server.config import ServerConfig
from leeway_engine.server.engine_process import EngineProcess
from leeway_engine.server.metrics.server_metrics import ServerMetrics
from leeway_engine.server.tokenizer import TextModel

HOST = "127.0.0.1"
MODEL = "model"
BODY = {"model": MODEL, "prompt": "Hello", "max_tokens": 5}
ENDLESS = "a text that takes for ever to tokenize"


class SilentEngine(EngineProcess):
    """Takes requests and gives no tokens."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)
        self.context = self.kv_tokens = 1000
        self.came: asyncio.Queue[str] = asyncio.Queue()
        """Ids of the requests that it was given."""
        self.ready.set()

    def _send(self, message: ToLoop) -> None:
        if isinstance(message, Add):
            self.came.put_nowait(message.request.request_id)

    def answer(self, request_id: str) -> None:
        self._streams[request_id].put(TokenEvent(request_id, (65,), FinishReason.LENGTH, 5, 1))


class SlowText(TextModel):
    """Does not get to the end of one prompt."""

    async def encode(self, text: str, *, special: bool) -> list[int]:
        if text == ENDLESS:
            await asyncio.sleep(600)
        return await super().encode(text, special=special)


class Pod:
    """The API of a pod with few places."""

    def __init__(self, session: aiohttp.ClientSession, url: str, engine: SilentEngine) -> None:
        self._session = session
        self._url = url
        self.engine = engine

    async def ask(self, body: Any) -> tuple[int, Any]:
        """Send a request, an object as JSON or bytes in pieces, and return status and answer."""
        sent: dict[str, Any] = {"json": body} if isinstance(body, dict) else {"data": body}
        async with self._session.post(self._url, **sent) as response:
            return response.status, await response.json()

    async def leave(self, body: Any) -> None:
        """Send a request and go away after a while."""
        call = asyncio.ensure_future(self.ask(body))
        await asyncio.sleep(0.05)
        assert not call.done()
        call.cancel()
        await asyncio.wait([call])

    async def takes_another(self) -> bool:
        """Whether a place becomes free."""
        came = asyncio.ensure_future(self.engine.came.get())
        for _ in range(200):
            call = asyncio.ensure_future(self.ask(BODY))
            await asyncio.wait((came, call), return_when=asyncio.FIRST_COMPLETED)
            if came.done():
                call.cancel()
                return True
            assert (await call)[1]["error"]["code"] == "queue_full"
            await asyncio.sleep(0.01)
        came.cancel()
        return False


@asynccontextmanager
async def serving(places: int, stalled_client_s: float = 60.0) -> AsyncIterator[Pod]:
    engine = SilentEngine()
    config = ServerConfig(MODEL, Path(), max_requests=places, stalled_client_s=stalled_client_s)
    api = Api(config, SlowText(TOKENIZER, frozenset(), None, {}), engine, ServerMetrics())
    runner = web.AppRunner(api.application(), handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, 0).start()
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            yield Pod(session, f"http://{HOST}:{runner.addresses[0][1]}/v1/completions", engine)
    finally:
        await runner.cleanup()
        engine.accepted_knobs.close()
        engine.enforced_knobs.close()


async def half_a_body(go_on: asyncio.Event) -> AsyncIterator[bytes]:
    yield b'{"model": "model", '
    await go_on.wait()
    yield b'"prompt": "Hello"}'


def test_a_burst_gets_no_more_places_than_there_are_though_none_was_read_yet() -> None:
    async def run() -> None:
        async with serving(places=3) as pod:
            go_on = asyncio.Event()
            calls = [asyncio.ensure_future(pod.ask(half_a_body(go_on))) for _ in range(20)]
            await asyncio.sleep(0.1)
            go_on.set()
            for _ in range(3):
                await pod.engine.came.get()
            for refused in islice(asyncio.as_completed(calls), 17):
                status, told = await refused
                assert (status, told["error"]["code"]) == (503, "queue_full")
            assert pod.engine.came.empty()
            for call in calls:
                call.cancel()

    asyncio.run(asyncio.wait_for(run(), 20))


async def is_malformed(pod: Pod) -> None:
    assert (await pod.ask({**BODY, "max_tokens": 0}))[0] == 400


async def is_too_long(pod: Pod) -> None:
    assert (await pod.ask({**BODY, "max_tokens": 5000}))[0] == 400


async def names_no_model_here(pod: Pod) -> None:
    assert (await pod.ask({**BODY, "model": "other"}))[0] == 404


async def leaves_in_its_body(pod: Pod) -> None:
    await pod.leave(half_a_body(asyncio.Event()))


async def leaves_while_it_is_tokenized(pod: Pod) -> None:
    await pod.leave({**BODY, "prompt": ENDLESS})


async def leaves_before_its_answer(pod: Pod) -> None:
    await pod.leave(BODY)
    pod.engine.came.get_nowait()


async def is_answered(pod: Pod) -> None:
    call = asyncio.ensure_future(pod.ask(BODY))
    pod.engine.answer(await pod.engine.came.get())
    assert (await call)[0] == 200


@pytest.mark.parametrize(
    "ends",
    [
        is_malformed,
        is_too_long,
        names_no_model_here,
        leaves_in_its_body,
        leaves_while_it_is_tokenized,
        leaves_before_its_answer,
        is_answered,
    ],
)
def test_a_request_gives_its_place_back_however_it_ends(ends: Callable[[Pod], Awaitable[None]]) -> None:
    async def run() -> None:
        async with serving(places=1) as pod:
            await ends(pod)
            assert await pod.takes_another()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_request_whose_body_does_not_come_keeps_its_place_for_no_longer_than_a_client_may_stall() -> None:
    async def run() -> None:
        async with serving(places=1, stalled_client_s=0.2) as pod:
            status, told = await pod.ask(half_a_body(asyncio.Event()))
            assert (status, told["error"]["code"]) == (408, "body_late")
            assert await pod.takes_another()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_place_is_taken_while_a_prompt_is_tokenized() -> None:
    async def run() -> None:
        async with serving(places=1) as pod:
            call = asyncio.ensure_future(pod.ask({**BODY, "prompt": ENDLESS}))
            await asyncio.sleep(0.05)
            assert (await pod.ask(BODY))[0] == 503
            call.cancel()

    asyncio.run(asyncio.wait_for(run(), 20))
