"""Clients that leave a real pod, or the gateway before it, in every way that clients leave, or whose time is up."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from cancel_tally import Tally
from leeway_core.headers import TIMEOUT_HEADER
from serving import MODEL, Running

PROMPTS = ("Hello", "Hello, world", "A lighthouse keeper", "x" * 100, "y" * 40)
SURVIVOR_TOKENS, DOOMED_TOKENS = 60, 3000
AT_A_TIME = 8
REFUSED_PAUSE_S = (0.15, 1.3)
"""From well after the gateway has the request to more than the second after which a full pod may be asked again."""
IDLE_TIMEOUT_S = 60.0
_ENDED = 'leeway_engine_requests_total{{finish_reason="{}"}}'
_LENGTH = _ENDED.format("length")
_BILLED = "leeway_engine_output_tokens_sum"
_CANCELLED_TOKENS = "leeway_engine_cancelled_tokens_total"
_CANCELLED_DECODING = 'leeway_engine_cancels_total{phase="decoding"}'
_SCHEDULED = tuple(f'leeway_engine_scheduled_tokens_total{{phase="{phase}"}}' for phase in ("prefill", "decode"))
_HELD = (
    "leeway_engine_running_requests",
    "leeway_engine_waiting_requests",
    "leeway_engine_waiting_tokens",
    'leeway_engine_kv_blocks{state="used"}',
    "leeway_engine_swap_blocks",
)

Leave = Callable[[aiohttp.ClientSession, str, random.Random], Awaitable[None]]


def _body(prompt: str, tokens: int, *, stream: bool) -> dict[str, Any]:
    fields = {"max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": stream}
    return {"model": MODEL, "prompt": prompt, **fields}


async def _mid_stream(session: aiohttp.ClientSession, url: str, draw: random.Random) -> None:
    async with session.post(f"{url}/v1/completions", json=_body("Hello", DOOMED_TOKENS, stream=True)) as response:
        for _ in range(draw.randint(2, 12)):
            await response.content.readline()
        response.close()


async def _unstreamed(session: aiohttp.ClientSession, url: str, draw: random.Random) -> None:
    call = session.post(f"{url}/v1/completions", json=_body("Hello", DOOMED_TOKENS, stream=False))
    task = asyncio.ensure_future(call)
    await asyncio.sleep(draw.uniform(0.1, 0.2))
    assert not task.done(), "the answer was there before its client left"
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def _timed_out(session: aiohttp.ClientSession, url: str, draw: random.Random) -> None:
    timeout = aiohttp.ClientTimeout(total=draw.uniform(0.1, 0.3))
    with suppress(TimeoutError):
        async with session.post(
            f"{url}/v1/completions", json=_body("Hello", DOOMED_TOKENS, stream=True), timeout=timeout
        ) as response:
            await response.read()
            raise AssertionError("the answer was there before its client's patience ended")


async def _before_first_byte(session: aiohttp.ClientSession, url: str, draw: random.Random) -> None:
    await _raw(url, 1.0)


async def _in_the_body(session: aiohttp.ClientSession, url: str, draw: random.Random) -> None:
    await _raw(url, draw.uniform(0.1, 0.9))


async def _raw(url: str, share: float) -> None:
    """Send that share of a request's body and hang up at once."""
    address = urlsplit(url)
    body = json.dumps(_body("Hello", DOOMED_TOKENS, stream=True)).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: pod\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(head + body[: round(share * len(body))])
    await writer.drain()
    # Time for the server to have taken up the request, as it must to have something to give up.
    await asyncio.sleep(0.02)
    writer.close()
    await writer.wait_closed()


async def _header_time_out(session: aiohttp.ClientSession, url: str, draw: random.Random) -> None:
    headers = {TIMEOUT_HEADER: f"{draw.uniform(0.3, 0.6):.3f}"}
    body = _body("Hello", DOOMED_TOKENS, stream=True)
    async with session.post(f"{url}/v1/completions", json=body, headers=headers) as response:
        chunks = await _chunks(response)
        assert len(chunks) > 1 or response.status == 408, "there was a 200 and no text"
        assert chunks[-1]["error"]["code"] == "timed_out", chunks[-1]


async def _abort(session: aiohttp.ClientSession, url: str, draw: random.Random) -> None:
    body = _body("Hello", DOOMED_TOKENS, stream=True)
    async with session.post(f"{url}/v1/completions", json=body) as response:
        first = json.loads((await response.content.readline()).removeprefix(b"data: "))
        await asyncio.sleep(draw.uniform(0.0, 0.1))
        async with session.post(f"{url}/v1/requests/{first['id']}/abort") as told:
            assert told.status == 200, await told.text()
        chunks = await _chunks(response)
        assert chunks[-1]["error"]["code"] == "aborted", chunks[-1]


async def _chunks(response: aiohttp.ClientResponse) -> list[Any]:
    """Read the rest of an answer, be it a stream or an error."""
    text = await response.text()
    if response.content_type == "application/json":
        return [json.loads(text)]
    data = (line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {"))
    return [json.loads(chunk) for chunk in data]


async def _refused_by_pods(session: aiohttp.ClientSession, url: str, draw: random.Random) -> None:
    call = asyncio.ensure_future(session.post(f"{url}/v1/completions", json=_body("Hello", 5, stream=False)))
    await asyncio.sleep(draw.uniform(*REFUSED_PAUSE_S))
    assert not call.done(), "a full pod took the request"
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call


@dataclass(frozen=True, slots=True)
class ClientBorder:
    """A way to leave, and what the pod is to count of those who left so."""

    name: str
    leave: Leave
    reaches_engine: bool | None = True
    """None where that is a matter of moments."""
    gateway: bool = False
    full: bool = False
    """Whether the pod is full, so that requests wait in the gateway."""
    counted_as: str = "cancel"
    """The finish reason."""


CLIENT_BORDERS = (
    ClientBorder("client leaves a stream", _mid_stream),
    ClientBorder("client leaves before an answer in one piece", _unstreamed),
    ClientBorder("client times out", _timed_out),
    ClientBorder("client leaves before the first byte", _before_first_byte, reaches_engine=None),
    ClientBorder("client leaves in its request's body", _in_the_body, reaches_engine=False),
    ClientBorder("time-out of a stream", _header_time_out, counted_as="timeout"),
    ClientBorder("abort of a stream", _abort, counted_as="abort"),
    ClientBorder("client leaves a stream of the gateway", _mid_stream, gateway=True),
    ClientBorder("client leaves the gateway's queue", _refused_by_pods, reaches_engine=False, gateway=True, full=True),
)


class ClientStorm:
    """Sends a pod doomed requests and, beside them, others that are to be answered as if they were alone."""

    def __init__(self, pod: Running, front: Running, most_requests: int) -> None:
        """`front` is a gateway before the pod, which holds `most_requests` at most."""
        self._pod = pod
        self._front = front
        self._most_requests = most_requests
        self._survivors_scheduled = 0
        """Tokens that iterations computed for those that ended by themselves."""

    def run(self, border: ClientBorder, cancels: int) -> Tally:
        """Let so many clients leave in one way."""
        return asyncio.run(self._run(border, cancels))

    async def _run(self, border: ClientBorder, cancels: int) -> Tally:
        tally = Tally(border.name, cancels)
        draw = random.Random(border.name)
        url = self._front.url if border.gateway else self._pod.url
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session:
            alone = [await self._text(session, prompt) for prompt in PROMPTS]
            before = await self._when_idle()
            self._survivors_scheduled = 0
            async with self._filled(session) if border.full else _nothing():
                for _ in range(0, cancels, AT_A_TIME):
                    doomed = [border.leave(session, url, draw) for _ in range(AT_A_TIME)]
                    others = [] if border.full else [self._text(session, prompt) for prompt in PROMPTS]
                    *_, texts = await asyncio.gather(*doomed, asyncio.gather(*others))
                    tally.survivors += len(texts)
                    tally.faults += [
                        f"{text!r} is not {own!r}" for text, own in zip(texts, alone, strict=False) if text != own
                    ]
            tally.cancels = -(-cancels // AT_A_TIME) * AT_A_TIME
            after = await self._when_idle()
        tally.leaked_blocks = round(sum(after[series] for series in _HELD))
        series = _ENDED.format(border.counted_as)
        gone = after[series] - before[series] - (self._most_requests if border.full else 0)
        if border.reaches_engine is not None and gone != border.reaches_engine * tally.cancels:
            tally.faults.append(f"{gone:.0f} of {tally.cancels} cancels counted")
        if after[_LENGTH] - before[_LENGTH] != tally.survivors:
            tally.faults.append("other answers were counted than those that ended")
        if after[_BILLED] - before[_BILLED] != tally.survivors * SURVIVOR_TOKENS:
            tally.faults.append("other tokens are in a bill than the survivors'")
        zombies = self._zombie_tokens(before, after)
        tally.zombie_steps_max = max(0, zombies)
        if zombies < 0:
            tally.faults.append(f"{-zombies} tokens were counted that no iteration computed")
        return tally

    def _zombie_tokens(self, before: dict[str, float], after: dict[str, float]) -> int:
        """Tokens that iterations computed beyond those of the survivors and of the others up to their cancels.

        Of all requests together, so none was launched more often after the scheduler had heard of its end. An answer's
        first token comes with its prefill. Nobody is preempted here, so that comes once.
        """
        gained = {series: after[series] - before[series] for series in after if series in before}
        cancelled = gained[_CANCELLED_TOKENS] - gained[_CANCELLED_DECODING]
        return round(sum(gained[series] for series in _SCHEDULED) - cancelled) - self._survivors_scheduled

    async def _text(self, session: aiohttp.ClientSession, prompt: str) -> str:
        body = _body(prompt, SURVIVOR_TOKENS, stream=False)
        async with session.post(f"{self._pod.url}/v1/completions", json=body) as response:
            answer = await response.json()
            assert response.status == 200, answer
            usage = answer["usage"]
            assert usage["completion_tokens"] == SURVIVOR_TOKENS
            found = usage["prompt_tokens_details"]["cached_tokens"]
            self._survivors_scheduled += usage["prompt_tokens"] - found + SURVIVOR_TOKENS - 1
            return str(answer["choices"][0]["text"])

    @asynccontextmanager
    async def _filled(self, session: aiohttp.ClientSession) -> AsyncIterator[None]:
        """Hold as many streams as the pod takes."""
        body = _body("Hello", DOOMED_TOKENS, stream=True)
        calls = [session.post(f"{self._pod.url}/v1/completions", json=body) for _ in range(self._most_requests)]
        streams = await asyncio.gather(*calls)
        try:
            yield
        finally:
            for stream in streams:
                stream.close()

    async def _metrics(self) -> dict[str, float]:
        return await asyncio.to_thread(self._pod.metrics, self._pod.url)

    async def _when_idle(self) -> dict[str, float]:
        """Wait until the pod holds nothing, or for as long as it may take."""
        deadline_s = asyncio.get_running_loop().time() + IDLE_TIMEOUT_S
        now = await self._metrics()
        while any(now[series] for series in _HELD) and asyncio.get_running_loop().time() < deadline_s:
            await asyncio.sleep(0.05)
            now = await self._metrics()
        # A request may end in the API process a moment after its end in the engine.
        await asyncio.sleep(0.2)
        return await self._metrics()


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield


def faults_of_gateway(front: Running, streams: int) -> Sequence[str]:
    """What the gateway counted otherwise than as so many cancelled requests."""
    series = front.metrics(front.side_url)
    verdicts = {name: count for name, count in series.items() if name.startswith("leeway_gateway_verdicts_total")}
    cancelled = sum(count for name, count in verdicts.items() if 'result="cancelled"' in name)
    others = {name: count for name, count in verdicts.items() if count and 'result="cancelled"' not in name}
    return [*(f"{name} is {count:.0f}" for name, count in others.items()), *_unless(cancelled, streams)]


def _unless(cancelled: float, expected: int) -> Sequence[str]:
    return [] if cancelled == expected else [f"the gateway counted {cancelled:.0f} of {expected} cancelled requests"]
