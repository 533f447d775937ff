"""Sends planned requests at their times, whatever becomes of the earlier ones.

aiohttp rather than httpx: its parser is compiled, so the sender takes a third of the CPU time, and at 50 requests a
second its send lag stayed within 6 ms where httpx's reached 64 ms.
"""

import asyncio
import json
from collections.abc import Callable, Sequence

import aiohttp
from leeway_core.errors import UserError
from leeway_core.headers import OBJECTIVE_HEADER, TENANT_HEADER
from leeway_core.verdict import Outcome, Timeline

from leeway_load.exchange import Exchange
from leeway_load.prompt import PromptWriter
from leeway_load.schedule import Departure, PlannedRequest
from leeway_load.stream import error_message, read_event
from leeway_load.target import Target

START_DELAY_S = 0.1
"""Time between setting the clock and the first request."""

SURE_SHARE = 0.8
"""A sleep's lateness grows with its length (timer slack, over 1 % on some virtual machines), so a wait is slept in
parts, each this share of what is left."""
SPIN_S = 0.002
"""The last part of a wait, in which the processor is kept: a sleep would be late by its clock's tick."""

Watch = Callable[[int, int], None]
"""Told how many requests were sent and how many are over, whenever that changes."""


async def replay(requests: Sequence[PlannedRequest], target: Target, salt: str, watch: Watch) -> list[Exchange]:
    """Send all requests and wait until each is over."""
    # A connection for each request, as of clients that know nothing of each other. A kept connection that the server
    # closes at the wrong moment would also look like a lost request.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=target.headers) as session:
        model = target.model or await _first_model(session, target)
        return await _Replay(session, target, model, watch).run(requests, PromptWriter(salt, target.token_ids))


async def _first_model(session: aiohttp.ClientSession, target: Target) -> str:
    url = target.endpoint("models")
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=30)) as response:
            response.raise_for_status()
            return str((await response.json())["data"][0]["id"])
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UserError(f"can't ask {url} for its models: {error or 'no answer within 30 s'}") from error
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(f"{url} lists no models; name the model") from error


class _Replay:
    def __init__(self, session: aiohttp.ClientSession, target: Target, model: str, watch: Watch) -> None:
        self._session = session
        self._target = target
        self._model = model
        self._watch = watch
        self._clock = asyncio.get_running_loop().time
        self._start_s = 0.0
        self._sent = 0
        self._exchanges: list[Exchange] = []

    async def run(self, requests: Sequence[PlannedRequest], writer: PromptWriter) -> list[Exchange]:
        self._start_s = self._clock() + START_DELAY_S
        async with asyncio.TaskGroup() as group:
            for request in requests:
                body = self._body(request, writer)
                await self._until(request.send_s)
                group.create_task(self._send(request, body))
                await asyncio.sleep(0)  # else the next body would be written before this request leaves
        return self._exchanges

    async def _until(self, due_s: float) -> None:
        while (left_s := due_s - self._now_s()) > 0:  # noqa: ASYNC110 - time itself is waited for
            await asyncio.sleep(SURE_SHARE * left_s if left_s > SPIN_S else 0)

    def _now_s(self) -> float:
        return self._clock() - self._start_s

    def _body(self, request: PlannedRequest, writer: PromptWriter) -> bytes:
        options = {
            "model": self._model,
            "max_tokens": request.output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._target.ignore_eos:
            options["ignore_eos"] = True
        return json.dumps(options)[:-1].encode() + b', "prompt": ' + writer.write(request.prompt) + b"}"

    async def _send(self, request: PlannedRequest, body: bytes) -> None:
        answer = _Answer(self._now_s)
        self._sent += 1
        self._watch(self._sent, len(self._exchanges))
        headers = {TENANT_HEADER: request.tenant}
        if request.class_name:
            headers[OBJECTIVE_HEADER] = request.class_name
        try:
            async with (
                asyncio.timeout(request.patience_s),
                self._session.post(self._target.endpoint("completions"), data=body, headers=headers) as response,
            ):
                await answer.read(response)
        except TimeoutError:
            answer.outcome = "cancelled" if request.departure is Departure.CANCEL else "timed_out"
        except aiohttp.ClientConnectorError as error:
            answer.lost = True
            answer.error = f"no connection: {error}"
        except (aiohttp.ClientError, ConnectionError) as error:
            answer.lost = True
            answer.error = f"connection broke: {error}"
        except ValueError as error:
            answer.error = f"not an OpenAI stream: {error}"
        self._exchanges.append(answer.exchange(request))
        self._watch(self._sent, len(self._exchanges))


class _Answer:
    """The answer to one request, as far as it has come."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.outcome: Outcome = "failed"
        self.error = ""
        self.lost = False
        self._now_s = now_s
        self._sent_s = now_s()
        self._output_s: list[float] = []
        self._tokens: int | None = None

    async def read(self, response: aiohttp.ClientResponse) -> None:
        if response.status != 200:
            self.outcome = "rejected" if response.status in (429, 503) else "failed"
            self.error = f"HTTP {response.status}: {error_message(await response.read())}"
            return
        finished = False
        async for line in response.content:
            event = read_event(line)
            if event is None:
                continue
            if event.error:
                self.lost = True
                self.error = event.error
                return
            if event.has_text:
                self._output_s.append(self._now_s())
            finished = finished or event.finished
            self._tokens = event.output_tokens or self._tokens
        if finished:
            self.outcome = "finished"
        else:
            self.lost = True
            self.error = "the stream ended without a finish"

    def exchange(self, request: PlannedRequest) -> Exchange:
        timeline = Timeline(self._sent_s, self._output_s, self._now_s(), self.outcome, self._tokens)
        return Exchange(request, timeline, self.error, self.lost)
