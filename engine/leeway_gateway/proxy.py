"""Passes requests to pods and their answers back, and notes how they went."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from math import isfinite

import aiohttp
from aiohttp import web
from leeway_core.headers import BUDGET_HEADER, OBJECTIVE_HEADER, TIMEOUT_HEADER
from leeway_core.objective import Objective
from leeway_core.stalled_client import send
from leeway_core.terms import HeaderError, Terms

from leeway_gateway.config import GatewayConfig
from leeway_gateway.errors import error, error_event, reason_of
from leeway_gateway.events import EventReader, tokens_of_response
from leeway_gateway.exchange import Exchange
from leeway_gateway.metrics import GatewayMetrics
from leeway_gateway.objectives import Objectives
from leeway_gateway.placement.refusal import DEADLINE_UNREACHABLE, Refusal, hold_s, passed_over, refusal
from leeway_gateway.roster import Pod, Roster
from leeway_gateway.tries import BrokenOffError, RefusedError

# Of one connection, or made anew for the next; compression would hide the events.
_NOT_PASSED_ON = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding"),
    *("upgrade", "host", "content-length", "accept-encoding", "expect", "date", "server"),
}


class Proxy:
    """Tries pods until one answers; from its first byte on, the answer is that pod's."""

    def __init__(
        self,
        config: GatewayConfig,
        roster: Roster,
        objectives: Objectives,
        metrics: GatewayMetrics,
        session: aiohttp.ClientSession,
    ) -> None:
        """Pass requests to the roster's pods."""
        self._config = config
        self._roster = roster
        self._objectives = objectives
        self._metrics = metrics
        self._session = session

    async def generation(self, request: web.Request) -> web.StreamResponse:
        """Answer a request that has an objective, and count it."""
        try:
            terms = Terms.of(request.headers)
        except HeaderError as wrong:
            return error(400, str(wrong), param=wrong.header)
        objective = self._objectives.of(terms.objective)
        if objective is None:
            known = ", ".join(self._objectives.names)
            return error(400, f"no objective {terms.objective!r}, only {known}", param=OBJECTIVE_HEADER)
        exchange = Exchange(objective=objective.name, budget_s=_budget_s(terms, objective))
        if terms.timeout_s is not None:
            exchange.timeout_s = terms.timeout_s
        try:
            with self._metrics.requests.track_inprogress():
                return await self._answer(request, exchange)
        finally:
            if timeline := exchange.timeline():
                self._metrics.count(objective, timeline)

    async def other(self, request: web.Request) -> web.StreamResponse:
        """Answer a request that no objective holds for."""
        return await self._answer(request, Exchange())

    async def _answer(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            exchange.outcome = None
            return error(413, f"a request's body may have {self._config.max_body_bytes} bytes")
        response: web.StreamResponse | None
        try:
            response = await self._try_pods(request, body, exchange)
        except RefusedError as refused:
            response = refused.answer
            if exchange.times_out_in_s() <= 0:
                message = f"no pod took the request within {exchange.timeout_s:g} s of its arrival"
                response = error(408, message, code="timed_out")
            elif response is None:
                response = error(503, "no pod takes requests now; send it again", retry_after_s=1)
        except BrokenOffError as broken:
            response = error(504 if broken.timed_out else 502, str(broken))
        if not response.prepared:
            exchange.ended(response.status)
        return response

    async def _try_pods(self, request: web.Request, body: bytes, exchange: Exchange) -> web.StreamResponse:
        refusals: dict[Pod, Refusal] = {}
        told = RefusedError()
        broken_tries, reason = 0, ""
        left_s = min(self._config.wait_s, exchange.times_out_in_s())
        while True:
            started_s = time.monotonic()
            pod = self._roster.choose(passed_over(refusals, started_s, left_s))
            if pod is not None:
                if reason:
                    self._metrics.retries.labels(reason).inc()
                try:
                    with self._roster.request_on(pod):
                        return await self._try(pod, request, body, exchange)
                except RefusedError as refused:
                    reason = "refused"
                    refusals[pod] = refusal(time.monotonic(), refused.code, refused.retry_after_s)
                    if refusals[pod].final or (refused.answer is not None and told.code != DEADLINE_UNREACHABLE):
                        told = refused
                except BrokenOffError as broken:
                    reason = "broken"
                    refusals[pod] = refusal(time.monotonic())
                    broken_tries += 1
                    if broken.timed_out or broken_tries == self._config.max_broken_tries:
                        raise
                    continue
            elif (longest_s := hold_s(refusals, started_s, left_s)) is not None:
                await self._roster.wait_for_change(longest_s)
            else:
                raise told
            left_s -= time.monotonic() - started_s

    async def _try(self, pod: Pod, request: web.Request, body: bytes, exchange: Exchange) -> web.StreamResponse:
        url, headers = pod.url + request.path_qs, _to_pod(request.headers, exchange)
        try:
            async with self._session.request(request.method, url, data=body, headers=headers) as answer:
                if answer.status == 503:
                    raise _refused(await answer.read(), answer.headers)
                if answer.status >= 500:
                    raise BrokenOffError(f"the pod failed with status {answer.status}")
                if answer.content_type == "text/event-stream":
                    return await self._stream(request, answer, exchange)
                payload = await answer.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as failure:
            raise RefusedError from failure
        except aiohttp.SocketTimeoutError as failure:
            raise BrokenOffError("the pod fell silent", timed_out=True) from failure
        except aiohttp.ClientError as failure:
            raise BrokenOffError("the pod broke the request off") from failure
        if answer.status < 400:
            exchange.saw_output()
            exchange.tokens = tokens_of_response(payload)
        return web.Response(body=payload, status=answer.status, headers=_passed_on(answer.headers))

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse, exchange: Exchange
    ) -> web.StreamResponse:
        reader = EventReader()
        response = web.StreamResponse(status=answer.status, headers=_passed_on(answer.headers))
        with suppress(ConnectionResetError):
            try:
                async for events in _events(answer, reader):
                    if not response.prepared:
                        await response.prepare(request)
                    if reader.output:
                        exchange.saw_output()
                    await self._send(request, response, events)
            except BrokenOffError as broken:
                if not response.prepared:
                    raise
                exchange.outcome = "timed_out" if broken.timed_out else "failed"
                await self._send(request, response, error_event(str(broken)))
            else:
                if reader.failure is None:
                    exchange.outcome = "finished"
                else:
                    exchange.ended_by(reader.failure)
            exchange.tokens = reader.usage or reader.chunks
            await response.write_eof()
        return response

    async def _send(self, request: web.Request, response: web.StreamResponse, data: bytes) -> None:
        await send(response, data, request.transport, self._config.stalled_client_s)


async def _events(answer: aiohttp.ClientResponse, reader: EventReader) -> AsyncIterator[bytes]:
    """Yield whole events as they come; a stream that ends before its end raises BrokenOffError."""
    try:
        async for data in answer.content.iter_any():
            if events := reader.feed(data):
                yield events
    except aiohttp.SocketTimeoutError as failure:
        raise BrokenOffError("the pod fell silent in mid-stream", timed_out=True) from failure
    except aiohttp.ClientError as failure:
        raise BrokenOffError("the pod broke off in mid-stream") from failure
    if not reader.done and reader.failure is None:
        raise BrokenOffError("the pod ended the stream too early")


def _budget_s(terms: Terms, objective: Objective) -> float | None:
    """Return the seconds that the client has left, or that its class has for a whole answer, whichever are fewer."""
    given = [seconds for seconds in (terms.budget_s, objective.deadline_seconds) if seconds is not None]
    return min(given, default=None)


def _to_pod(headers: Mapping[str, str], exchange: Exchange) -> dict[str, str]:
    """Return a client's headers with its class, and with the time that is left by now."""
    own = {OBJECTIVE_HEADER: exchange.objective} if exchange.objective else {}
    left_s = exchange.left_s()
    if left_s is not None:
        own[BUDGET_HEADER] = f"{left_s:.3f}"
    if isfinite(exchange.timeout_s):
        own[TIMEOUT_HEADER] = f"{max(exchange.times_out_in_s(), 0.001):.3f}"
    passed_on = _passed_on(headers)
    return {name: value for name, value in passed_on.items() if name.lower() not in own} | own


def _refused(payload: bytes, headers: Mapping[str, str]) -> RefusedError:
    """Return the refusal of a pod that answered 503; without a reason of its own it is none for the client."""
    retry_after = headers.get("Retry-After", "")
    retry_after_s = float(retry_after) if retry_after.isdecimal() else None
    reason = reason_of(payload)
    if reason is None:
        return RefusedError(retry_after_s=retry_after_s)
    answer = web.Response(body=payload, status=503, headers=_passed_on(headers))
    return RefusedError(answer, reason, retry_after_s)


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _NOT_PASSED_ON}
