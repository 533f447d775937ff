"""What the gateway makes of pods that answer, refuse, break off or fall silent."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import MappingProxyType

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from leeway_gateway.config import GatewayConfig
from leeway_gateway.events import EventReader
from leeway_gateway.metrics import GatewayMetrics
from leeway_gateway.objectives import Objectives
from leeway_gateway.proxy import Proxy
from leeway_gateway.roster import Pod, Roster
from leeway_gateway.run import routes

Script = Callable[[web.Request], Awaitable[web.StreamResponse]]
HOST = "127.0.0.1"


def chunk(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"text": text, "finish_reason": None}]}).encode() + b"\n\n"


STREAM = chunk("a") + chunk("b") + b"data: [DONE]\n\n"


def streams(*parts: bytes, then: Callable[[web.Request], Awaitable[None]] | None = None) -> Script:
    async def script(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        if then is not None:
            await then(request)
        return response

    return script


async def dies(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    await asyncio.sleep(60)
    raise AssertionError


async def drop(request: web.Request) -> None:
    await asyncio.sleep(0.05)
    await dies(request)


async def hang(_: web.Request) -> None:
    await asyncio.sleep(60)


async def refuses(_: web.Request) -> web.StreamResponse:
    return web.Response(status=503)


async def fails(_: web.Request) -> web.StreamResponse:
    return web.Response(status=500)


async def whole(_: web.Request) -> web.StreamResponse:
    return web.json_response({"choices": [{"text": "ab"}], "usage": {"completion_tokens": 2}})


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0)
    await site.start()
    try:
        yield f"http://{HOST}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def through_gateway(
    tmp_path: Path,
    *scripts: Script,
    wait_s: float = 0.3,
    objective: str | None = "only",
    body: bytes = b"{}",
    headers: Mapping[str, str] = MappingProxyType({}),
    objectives: str = '[{"name": "only", "ttftMs": 60000, "itlMs": 60000}]',
) -> tuple[int, bytes, dict[tuple[str, str], float], list[int]]:
    """Send one request before pods of these scripts: status, body, verdicts, and how often each pod was asked."""
    file = tmp_path / "objectives.json"
    file.write_text(objectives)
    asked = [0] * len(scripts)

    def pod_app(number: int, script: Script) -> web.Application:
        async def answer(request: web.Request) -> web.StreamResponse:
            asked[number] += 1
            return await script(request)

        app = web.Application()
        app.add_routes([web.post("/v1/completions", answer)])
        return app

    async def send() -> tuple[int, bytes, dict[tuple[str, str], float], list[int]]:
        async with AsyncExitStack() as stack:
            urls = [await stack.enter_async_context(serving(pod_app(i, s))) for i, s in enumerate(scripts)]
            metrics = GatewayMetrics()
            config = GatewayConfig(tuple(urls), file, wait_s=wait_s, max_body_bytes=10_000)
            timeout = aiohttp.ClientTimeout(total=None, sock_read=0.5)
            session = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
            roster = Roster(Pod(str(i), url) for i, url in enumerate(urls))
            proxy = Proxy(config, roster, Objectives(file, metrics.expect), metrics, session)
            front = await stack.enter_async_context(serving(routes(proxy, metrics, config)))
            client = await stack.enter_async_context(aiohttp.ClientSession())
            own = {} if objective is None else {"X-Leeway-Objective": objective}
            async with client.post(f"{front}/v1/completions", data=body, headers={**own, **headers}) as response:
                answer = await response.read()
            verdicts = {
                (sample.labels["result"], sample.labels["reason"]): sample.value
                for metric in metrics.registry.collect()
                for sample in metric.samples
                if sample.name == "leeway_gateway_verdicts_total" and sample.value
            }
            return response.status, answer, verdicts, asked

    return asyncio.run(send())


def noting(seen: list[Mapping[str, str]], then: Script = whole) -> Script:
    """A pod that keeps the headers it gets."""

    async def script(request: web.Request) -> web.StreamResponse:
        assert len(request.headers) == len(set(request.headers)), "none comes twice"
        seen.append(request.headers.copy())
        return await then(request)

    return script


def test_what_a_client_asks_for_in_headers_reaches_the_pod(tmp_path: Path) -> None:
    seen: list[Mapping[str, str]] = []
    asked = {"x-leeway-tenant": "paying", "x-leeway-priority": "7", "x-leeway-tool-wait": "30"}
    through_gateway(tmp_path, noting(seen), headers=asked)
    assert {name: seen[0][name] for name in asked} == asked
    assert seen[0]["x-leeway-objective"] == "only"
    assert "x-leeway-budget" not in seen[0]


@pytest.mark.parametrize(("objective", "told"), [(None, "chat"), ("chat", "chat"), ("batch", "batch")])
def test_the_pod_is_told_the_class_that_the_request_is_counted_for(
    tmp_path: Path, objective: str | None, told: str
) -> None:
    seen: list[Mapping[str, str]] = []
    classes = '[{"name": "chat", "ttftMs": 500}, {"name": "batch", "ttftMs": 900}]'
    through_gateway(tmp_path, noting(seen), objective=objective, objectives=classes)
    assert seen[0]["x-leeway-objective"] == told


@pytest.mark.parametrize(
    ("budget", "deadline", "least", "most"),
    [("500", None, 400, 500), ("5000", 1000, 900, 1000), (None, 1000, 900, 1000), ("200", 1000, 100, 200)],
)
def test_the_pod_is_told_the_time_that_is_left(
    tmp_path: Path, budget: str | None, deadline: int | None, least: float, most: float
) -> None:
    seen: list[Mapping[str, str]] = []
    bound = '"ttftMs": 60000' if deadline is None else f'"deadlineSeconds": {deadline}'
    headers = {} if budget is None else {"X-Leeway-Budget": budget}
    classes = f'[{{"name": "only", {bound}}}]'
    through_gateway(tmp_path, noting(seen), headers=headers, objectives=classes)
    assert least < float(seen[0]["x-leeway-budget"]) <= most


def test_what_a_request_waits_here_is_off_the_time_that_is_left(tmp_path: Path) -> None:
    seen: list[Mapping[str, str]] = []
    through_gateway(tmp_path, noting(seen, refuses), headers={"x-leeway-budget": "100"}, wait_s=0.6)
    left_s = [float(headers["x-leeway-budget"]) for headers in seen]
    assert left_s[0] - left_s[-1] > 0.2, "it was asked again after a pause"


def test_what_is_overdue_has_no_time_left(tmp_path: Path) -> None:
    seen: list[Mapping[str, str]] = []
    through_gateway(tmp_path, noting(seen), headers={"x-leeway-budget": "0"})
    assert float(seen[0]["x-leeway-budget"]) == 0


@pytest.mark.parametrize("header", ["x-leeway-priority", "x-leeway-budget", "x-leeway-tool-wait"])
def test_a_header_without_meaning_is_refused_by_its_name_and_reaches_no_pod(tmp_path: Path, header: str) -> None:
    status, body, verdicts, asked = through_gateway(tmp_path, whole, headers={header: "soon"})
    error = json.loads(body)["error"]
    assert (status, error["type"], error["param"]) == (400, "invalid_request_error", header)
    assert (verdicts, asked) == ({}, [0])


def test_a_stream_passes_through_byte_by_byte(tmp_path: Path) -> None:
    status, body, verdicts, _ = through_gateway(tmp_path, streams(*(bytes([byte]) for byte in STREAM)))
    assert (status, body, verdicts) == (200, STREAM, {("met", ""): 1})


def test_a_whole_answer_passes_through(tmp_path: Path) -> None:
    status, body, verdicts, _ = through_gateway(tmp_path, whole)
    assert (status, json.loads(body)["usage"], verdicts) == (200, {"completion_tokens": 2}, {("met", ""): 1})


@pytest.mark.parametrize("first", [refuses, dies, fails, streams(b"data: {", then=drop), streams()])
def test_while_nothing_went_to_the_client_another_pod_is_tried(tmp_path: Path, first: Script) -> None:
    status, body, verdicts, asked = through_gateway(tmp_path, first, streams(STREAM))
    assert (status, body, verdicts, asked) == (200, STREAM, {("met", ""): 1}, [1, 1])


@pytest.mark.parametrize("end", [streams(chunk("a"), then=drop), streams(chunk("a")), streams(chunk("a"), b"dat")])
def test_once_something_went_out_a_broken_stream_ends_with_an_error_and_is_not_tried_again(
    tmp_path: Path, end: Script
) -> None:
    status, body, verdicts, asked = through_gateway(tmp_path, end, streams(STREAM))
    assert status == 200
    first, last = body.removesuffix(b"\n\n").split(b"\n\n")
    assert first + b"\n\n" == chunk("a")
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "pod_lost"
    assert (verdicts, asked) == ({("missed", "failed"): 1}, [1, 0])


def test_a_pod_that_falls_silent_times_the_request_out(tmp_path: Path) -> None:
    assert through_gateway(tmp_path, streams(then=hang), streams(STREAM))[::2] == (504, {("missed", "timed_out"): 1})
    status, body, verdicts, _ = through_gateway(tmp_path, streams(chunk("a"), then=hang))
    assert (status, b"error" in body, verdicts) == (200, True, {("missed", "timed_out"): 1})


def test_a_request_that_breaks_pods_does_not_break_them_all(tmp_path: Path) -> None:
    status, _, verdicts, asked = through_gateway(tmp_path, *[dies] * 5)
    assert (status, sum(asked), verdicts) == (502, 3, {("missed", "failed"): 1})


def test_pods_that_refuse_are_asked_again_until_the_wait_is_over(tmp_path: Path) -> None:
    status, body, verdicts, asked = through_gateway(tmp_path, refuses, wait_s=0.4)
    assert (status, json.loads(body)["error"]["type"]) == (503, "overloaded_error")
    assert verdicts == {("missed", "rejected"): 1}
    assert asked[0] >= 2


@pytest.mark.parametrize(("body", "objective", "status"), [(b"x" * 20_000, "only", 413), (b"{}", "unheard-of", 400)])
def test_a_request_at_fault_itself_reaches_no_pod_and_is_not_counted(
    tmp_path: Path, body: bytes, objective: str, status: int
) -> None:
    got = through_gateway(tmp_path, whole, body=body, objective=objective)
    assert (got[0], json.loads(got[1])["error"]["type"]) == (status, "invalid_request_error")
    assert got[2:] == ({}, [0])


async def finds_fault(_: web.Request) -> web.StreamResponse:
    return web.json_response({"error": {"message": "bad"}}, status=400)


def test_a_fault_that_the_pod_finds_is_passed_on_and_not_counted(tmp_path: Path) -> None:
    status, body, verdicts, asked = through_gateway(tmp_path, finds_fault, whole)
    assert (status, json.loads(body), verdicts, asked) == (400, {"error": {"message": "bad"}}, {}, [1, 0])


def test_a_client_that_takes_nothing_is_cut_off_and_its_pod_freed(tmp_path: Path) -> None:
    file = tmp_path / "objectives.json"
    file.write_text('[{"name": "only", "ttftMs": 60000}]')

    async def connect() -> None:
        freed = asyncio.Event()

        async def endless(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            try:
                while True:
                    await response.write(chunk("a" * 10_000))
            finally:
                freed.set()

        app = web.Application()
        app.add_routes([web.post("/v1/completions", endless)])
        async with serving(app) as url, aiohttp.ClientSession() as session:
            metrics = GatewayMetrics()
            config = GatewayConfig((url,), file, stalled_client_s=0.2)
            proxy = Proxy(config, Roster([Pod("pod", url)]), Objectives(file, metrics.expect), metrics, session)
            async with serving(routes(proxy, metrics, config)) as front:
                _, writer = await asyncio.open_connection(HOST, int(front.rpartition(":")[2]), limit=1024)
                writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: gateway\r\nContent-Length: 2\r\n\r\n{}")
                await asyncio.wait_for(freed.wait(), 30)
                writer.transport.abort()

    asyncio.run(connect())


@given(st.data())
def test_events_leave_whole_and_at_once_however_they_arrive(data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(STREAM)), max_size=8)))
    reader = EventReader()
    sent = b""
    for start, end in zip([0, *cuts], [*cuts, len(STREAM)], strict=True):
        sent += reader.feed(STREAM[start:end])
        assert sent == STREAM[:end][: STREAM[:end].rfind(b"\n\n") + 2 if b"\n\n" in STREAM[:end] else 0]
    assert reader.done


@pytest.mark.parametrize(
    ("data", "output"),
    [
        ('{"choices": [{"text": "a"}]}', True),
        ('{"choices": [{"text": "", "finish_reason": "stop"}]}', False),
        ('{"choices": [{"delta": {"role": "assistant", "content": ""}}]}', False),
        ('{"choices": [{"delta": {"content": "a"}}]}', True),
        ('{"choices": [{"delta": {"content": null, "tool_calls": [{}]}}]}', True),
        ('{"choices": [], "usage": {"completion_tokens": 7}}', False),
        ("not json", False),
    ],
)
def test_a_chunk_counts_as_output_if_it_carries_any(data: str, output: bool) -> None:
    reader = EventReader()
    reader.feed(f"data: {data}\n\n".encode())
    assert reader.output == output


def test_usage_and_errors_are_noted() -> None:
    reader = EventReader()
    reader.feed(b'data: {"choices": [], "usage": {"completion_tokens": 7}}\n\ndata: {"error": {"message": "x"}}\n\n')
    assert (reader.usage, reader.failed, reader.done) == (7, True, False)
