"""What the gateway makes of pods that answer, refuse, break off or fall silent."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from leeway_core.openai_error import openai_error
from leeway_gateway.config import GatewayConfig
from leeway_gateway.events import EventReader
from leeway_gateway.metrics import GatewayMetrics
from leeway_gateway.objectives import Objectives
from leeway_gateway.proxy import Proxy
from leeway_gateway.roster import Pod, Roster
from leeway_gateway.run import routes
from prometheus_client.samples import Sample

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


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of one request."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    asked_s: list[list[float]]
    """When each pod was asked."""
    samples: list[Sample]
    """All metrics of the gateway."""

    @property
    def error(self) -> Any:
        return json.loads(self.body)["error"]

    @property
    def asked(self) -> list[int]:
        return [len(times_s) for times_s in self.asked_s]

    def value(self, name: str, **labels: str) -> float:
        (value,) = (
            sample.value
            for sample in self.samples
            if sample.name == f"leeway_gateway_{name}" and labels.items() <= sample.labels.items()
        )
        return value


def send(
    tmp_path: Path,
    *scripts: Script,
    wait_s: float = 0.3,
    objective: str | None = "only",
    body: bytes = b"{}",
    headers: Mapping[str, str] = MappingProxyType({}),
    objectives: str = '[{"name": "only", "ttftMs": 60000, "itlMs": 60000}]',
    method: str = "POST",
) -> Seen:
    """Send one request to a gateway before pods of these scripts."""
    file = tmp_path / "objectives.json"
    file.write_text(objectives)
    asked_s: list[list[float]] = [[] for _ in scripts]

    def pod_app(number: int, script: Script) -> web.Application:
        async def answer(request: web.Request) -> web.StreamResponse:
            asked_s[number].append(time.monotonic())
            return await script(request)

        app = web.Application()
        app.add_routes([web.post("/v1/completions", answer)])
        return app

    async def run() -> Seen:
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
            url = f"{front}/v1/completions"
            async with client.request(method, url, data=body, headers={**own, **headers}) as response:
                answer = await response.read()
            samples = [sample for metric in metrics.registry.collect() for sample in metric.samples]
            return Seen(response.status, answer, response.headers, asked_s, samples)

    return asyncio.run(run())


def through_gateway(
    tmp_path: Path, *scripts: Script, **options: Any
) -> tuple[int, bytes, dict[tuple[str, str], float], list[int]]:
    """Send one request before pods of these scripts: status, body, verdicts, and how often each pod was asked."""
    seen = send(tmp_path, *scripts, **options)
    verdicts = {
        (sample.labels["result"], sample.labels["reason"]): sample.value
        for sample in seen.samples
        if sample.name == "leeway_gateway_verdicts_total" and sample.value
    }
    return seen.status, seen.body, verdicts, seen.asked


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


def test_what_a_request_waits_here_is_off_its_time_out_and_the_gateway_ends_it_too(tmp_path: Path) -> None:
    seen: list[Mapping[str, str]] = []
    ended = send(tmp_path, noting(seen, refuses), headers={"x-leeway-timeout-s": "0.5"}, wait_s=300)
    left_s = [float(headers["x-leeway-timeout-s"]) for headers in seen]
    assert 0.4 < left_s[0] <= 0.5
    assert left_s == sorted(left_s, reverse=True)
    assert left_s[-1] < left_s[0] - 0.2
    assert (ended.status, ended.error["code"], ended.headers["x-should-retry"]) == (408, "timed_out", "false")
    assert ended.value("verdicts_total", result="missed", reason="timed_out") == 1


@pytest.mark.parametrize(
    ("code", "status", "result", "reason"),
    [("timed_out", 408, "missed", "timed_out"), ("aborted", 499, "cancelled", "")],
)
def test_what_a_pod_ended_early_counts_as_such_before_and_in_mid_stream(
    tmp_path: Path, code: str, status: int, result: str, reason: str
) -> None:
    event = b"data: " + json.dumps(openai_error("it is over", "timeout_error", code=code)).encode() + b"\n\n"
    for script in (declines(code, status=status), streams(chunk("a"), event)):
        ended = send(tmp_path, script, whole, headers={"x-leeway-timeout-s": "60"})
        assert ended.asked == [1, 0]
        assert ended.value("verdicts_total", result=result, reason=reason) == 1


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


def declines(code: str, retry_after_s: int = 0, status: int = 503) -> Script:
    """A pod that refuses with its reason."""

    async def script(_: web.Request) -> web.StreamResponse:
        body = openai_error(f"because of {code}", "overloaded_error", code=code)
        return web.json_response(body, status=status, headers={"Retry-After": str(retry_after_s)})

    return script


def in_turn(*scripts: Script) -> Script:
    """A pod that follows another script each time, and the last one from then on."""
    left = list(scripts)

    async def script(request: web.Request) -> web.StreamResponse:
        return await (left.pop(0) if len(left) > 1 else left[0])(request)

    return script


@pytest.mark.parametrize("code", ["queue_upstream", "queue_full", "kv_headroom", "not_ready"])
def test_a_refused_request_is_held_and_sent_again_when_its_pod_says(tmp_path: Path, code: str) -> None:
    pod = in_turn(declines(code, 1), whole)
    seen = send(tmp_path, pod, wait_s=30)
    assert (seen.status, seen.asked) == (200, [2])
    first_s, second_s = seen.asked_s[0]
    assert second_s - first_s >= 1
    assert seen.value("retries_total", reason="refused") == 1
    assert seen.value("responses_total", status="200") == 1


def test_another_pod_is_asked_before_one_that_refused(tmp_path: Path) -> None:
    seen = send(tmp_path, declines("queue_upstream", 9), whole, wait_s=30)
    assert (seen.status, seen.asked) == (200, [1, 1])


@pytest.mark.parametrize("code", ["queue_upstream", "queue_full", "kv_headroom"])
def test_when_the_wait_is_over_the_client_gets_the_refusal_of_the_last_pod(tmp_path: Path, code: str) -> None:
    status, body, verdicts, asked = through_gateway(tmp_path, declines("not_ready", 5), declines(code, 7))
    assert (status, json.loads(body)["error"]["code"], asked) == (503, code, [1, 1])
    assert verdicts == {("missed", "rejected"): 1}
    seen = send(tmp_path, declines(code, 7))
    assert (seen.status, seen.error["message"], seen.headers["Retry-After"]) == (503, f"because of {code}", "7")
    assert seen.value("retries_total", reason="refused") == 0
    assert seen.value("responses_total", status="503") == 1


LATE = declines("deadline_unreachable", 3)


@pytest.mark.parametrize(
    "pods", [[LATE], [LATE, declines("queue_upstream", 9)], [declines("queue_full", 9), LATE], [LATE, refuses, LATE]]
)
def test_a_deadline_that_no_pod_can_meet_is_told_at_once(tmp_path: Path, pods: list[Script]) -> None:
    began_s = time.monotonic()
    seen = send(tmp_path, *pods, wait_s=300)
    assert time.monotonic() - began_s < 100
    assert (seen.status, seen.error["code"], seen.headers["Retry-After"]) == (503, "deadline_unreachable", "3")
    assert seen.asked == [1] * len(pods)


def test_a_deadline_out_of_reach_in_one_pod_may_be_met_in_another(tmp_path: Path) -> None:
    seen = send(tmp_path, declines("deadline_unreachable"), whole, wait_s=300)
    assert (seen.status, seen.asked) == (200, [1, 1])


def test_who_sends_too_much_is_told_so_at_once_and_it_is_no_output(tmp_path: Path) -> None:
    seen = send(tmp_path, declines("tenant_requests", 4, status=429), whole, wait_s=300)
    assert (seen.status, seen.error["code"], seen.headers["Retry-After"]) == (429, "tenant_requests", "4")
    assert seen.asked == [1, 0]
    assert seen.value("ttft_seconds_count", objective="only") == 0
    assert seen.value("verdicts_total", result="missed", reason="rejected") == 1
    assert seen.value("bounds_total", bound="ttft", result="missed") == 1
    assert seen.value("responses_total", status="429") == 1


def test_an_answer_in_one_piece_is_output(tmp_path: Path) -> None:
    assert send(tmp_path, whole).value("ttft_seconds_count", objective="only") == 1


def test_every_answer_of_gateway_and_pods_has_a_series_from_the_start(tmp_path: Path) -> None:
    counted = {
        sample.labels["status"]
        for metric in GatewayMetrics().registry.collect()
        for sample in metric.samples
        if sample.name == "leeway_gateway_responses_total"
    }
    answers = {
        "200": send(tmp_path, whole),
        "400": send(tmp_path, finds_fault),
        "405": send(tmp_path, whole, method="PUT"),
        "413": send(tmp_path, whole, body=b"x" * 20_000),
        "429": send(tmp_path, declines("queue_delay", 1, status=429)),
        "502": send(tmp_path, *[dies] * 3),
        "503": send(tmp_path),
        "504": send(tmp_path, streams(then=hang)),
    }
    for status, seen in answers.items():
        assert (str(seen.status), seen.value("responses_total", status=status)) == (status, 1)
    assert set(answers) < counted
    assert answers["502"].value("retries_total", reason="broken") == 2


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
    assert (reader.usage, reader.failure, reader.done) == (7, "", False)
