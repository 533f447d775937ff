"""The load generator against a real HTTP server that streams as OpenAI's does, with delays that the test chooses."""

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer
from aiohttp import web
from leeway_cli.load import load
from leeway_core.errors import UserError
from leeway_load import Report, Target, TrafficClass, Workload, run, run_ramp
from typer.testing import CliRunner

command = typer.Typer()
command.command()(load)

Handler = Callable[["Server", web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]
CHAT = TrafficClass.parse("chat:ttftMs=250,itlMs=200,targetPercent=90")


@dataclass
class Server:
    """What the server saw, and how it answers."""

    handler: Handler
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    disconnects: int = 0

    async def models(self, _request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "tiny"}]})

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        try:
            return await self.handler(self, request, body)
        except (ConnectionError, asyncio.CancelledError):
            self.disconnects += 1
            raise


@contextmanager
def serving(handler: Handler) -> Iterator[Server]:
    server = Server(handler)
    ready, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        application = web.Application(client_max_size=2**24)
        application.router.add_get("/v1/models", server.models)
        application.router.add_post("/v1/completions", server.completions)
        runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        server.url = f"http://{host}:{port}"
        ready.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


async def stream(request: web.Request, ttft_s: float, itl_s: float, tokens: int) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for number in range(tokens):
        await asyncio.sleep(itl_s if number else ttft_s)
        last = number == tokens - 1
        await send(response, {"choices": [{"text": " a", "finish_reason": "length" if last else None}]})
    await send(response, {"choices": [], "usage": {"completion_tokens": tokens}})
    await response.write(b"data: [DONE]\n\n")
    return response


async def send(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(f"data: {json.dumps(event)}\n\n".encode())


async def steady(server: Server, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return await stream(request, 0.08, 0.02, body["max_tokens"])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """600 requests, ten a second, of 100 prompt tokens and 8 output tokens."""
    path = tmp_path / "even.jsonl"
    rows = ({"timestamp": 100 * index, "input_length": 100, "output_length": 8} for index in range(600))
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.fixture
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the sender be late, as it is where tests share the cores with much else."""
    monkeypatch.setattr("leeway_load.report.MOST_SEND_LAG_MS", 1000)


def replay(trace: Path, server: Server, **workload: Any) -> Report:
    return run(trace, Target(url=server.url), Workload(classes=(CHAT,), **workload))


def test_latencies_are_those_of_the_server(trace: Path) -> None:
    with serving(steady) as server:
        report = replay(trace, server, max_requests=40, rate=20)
    everyone = report.latencies["all"]
    assert everyone.ttft_s is not None
    assert everyone.itl_s is not None
    assert everyone.tpot_s is not None
    assert everyone.e2e_s is not None
    assert everyone.ttft_s.p50 == pytest.approx(0.08, abs=0.02)
    assert everyone.itl_s.p50 == pytest.approx(0.02, abs=0.01)
    assert everyone.tpot_s.p50 == pytest.approx(0.02, abs=0.01)
    assert everyone.e2e_s.p50 == pytest.approx(0.08 + 7 * 0.02, abs=0.06)
    assert everyone.itl_s.count == 40 * 7
    assert report.endings["finished"] == report.requests == 40
    assert report.endings["lost"] == 0
    assert report.output_tokens == 40 * 8
    assert report.sent_per_s == pytest.approx(20, rel=0.1)
    assert report.attainment[0].met == 40
    assert report.send_lag_ms is not None
    assert report.send_lag_ms.p50 < 10


def test_requests_carry_exact_prompts_and_who_they_are_for(trace: Path) -> None:
    with serving(steady) as server:
        replay(trace, server, max_requests=20, rate=50, tenants=3)
    for body in server.bodies:
        assert len(body["prompt"]) == 100
        assert (body["model"], body["max_tokens"], body["stream"]) == ("tiny", 8, True)
    assert len({tuple(body["prompt"]) for body in server.bodies}) == 20
    assert {headers["x-leeway-objective"] for headers in server.headers} == {"chat"}
    assert {headers["x-leeway-tenant"] for headers in server.headers} == {"tenant-1", "tenant-2", "tenant-3"}


def test_sending_waits_for_no_answer(trace: Path) -> None:
    async def slow(server: Server, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return await stream(request, 1.0, 0.0, 1)

    with serving(slow) as server:
        report = replay(trace, server, max_requests=50, rate=50)
    assert report.duration_s == pytest.approx(2, abs=0.3)
    assert report.breaches[-1].most_in_flight >= 32
    assert report.attainment[0].missed == {"ttft": 50}


def test_clients_that_leave_are_counted_apart_and_the_server_sees_them_go(trace: Path) -> None:
    async def stuck(server: Server, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return await stream(request, 0.01, 30, 2)

    with serving(stuck) as server:
        cancelled = replay(trace, server, max_requests=20, rate=100, cancel_share=1, cancel_within_s=0.15)
        assert cancelled.endings["cancelled"] == cancelled.attainment[0].cancelled == 20
        assert cancelled.attainment[0].missed == {}
        timed_out = replay(trace, server, max_requests=20, rate=100, hasty_share=1, hasty_timeout_s=0.2)
        assert timed_out.attainment[0].missed == {"timed_out": 20}
        deadline_s = time.monotonic() + 5
        while server.disconnects < len(server.bodies) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert server.disconnects == len(server.bodies)


async def refuse(server: Server, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return web.json_response({"error": {"message": "slow down"}}, status=429)


async def reject_prompt(server: Server, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return web.json_response({"error": {"message": "prompt too long"}}, status=400)


async def stop_silently(server: Server, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await send(response, {"choices": [{"text": " a", "finish_reason": None}]})
    return response


async def drop(server: Server, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    response = await stop_silently(server, request, body)
    assert request.transport is not None
    request.transport.abort()
    return response


async def fail_in_stream(server: Server, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    response = await stop_silently(server, request, body)
    await send(response, {"error": {"message": "the pod is gone"}})
    return response


async def babble(server: Server, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return web.Response(text="data: hello\n\n")


@pytest.mark.parametrize(
    ("handler", "ending", "message"),
    [
        (refuse, "rejected", "HTTP 429: slow down"),
        (reject_prompt, "failed", "HTTP 400: prompt too long"),
        (fail_in_stream, "lost", "the pod is gone"),
        (babble, "failed", "not an OpenAI stream"),
        (stop_silently, "lost", "without a finish"),
        (drop, "lost", "connection broke"),
    ],
)
def test_requests_without_a_whole_answer_are_misses_with_a_reason(
    trace: Path, handler: Handler, ending: str, message: str
) -> None:
    with serving(handler) as server:
        report = replay(trace, server, max_requests=5, rate=50)
    assert report.endings[ending] == 5
    assert message in next(iter(report.errors))
    assert report.attainment[0].met == 0
    assert sum(report.attainment[0].missed.values()) == 5


def test_a_server_that_is_not_there(trace: Path) -> None:
    with serving(steady) as server:
        pass
    with pytest.raises(UserError, match=r"can't ask .* for its models"):
        run(trace, Target(url=server.url), Workload(max_requests=1))
    report = run(trace, Target(url=server.url, model="tiny"), Workload(max_requests=1))
    assert report.endings["lost"] == 1
    assert "no connection" in next(iter(report.errors))


def test_a_sender_kept_from_its_work_voids_the_report(trace: Path) -> None:
    def hinder(_name: str, _requests: int) -> Callable[[int, int], None]:
        return lambda _sent, _over: time.sleep(0.03)

    with serving(steady) as server:
        report = run(trace, Target(url=server.url), Workload(max_requests=50, rate=100), hinder)
    assert report.void


@pytest.mark.usefixtures("busy_machine")
def test_a_ramp_finds_the_rate_that_the_server_can_take(trace: Path) -> None:
    slots = asyncio.Semaphore(2)

    async def limited(server: Server, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        async with slots:
            return await stream(request, 0.1, 0, 1)

    workload = Workload(classes=(CHAT,), rate=6, duration_s=3, max_output_tokens=1)
    with serving(limited) as server:
        ramp = run_ramp(trace, Target(url=server.url), workload, factor=2)
    assert ramp.highest_rate == 12
    assert "settled" in ramp.stopped
    assert [step.rate for step in ramp.steps][:3] == [6, 12, 24]
    prompts = [tuple(body["prompt"]) for body in server.bodies]
    assert len(set(prompts)) == len(prompts)


@pytest.mark.usefixtures("busy_machine")
def test_the_command_prints_json_and_tables(trace: Path) -> None:
    with serving(steady) as server:
        arguments = [str(trace), "--url", server.url, "--requests", "10", "--rate", "50", "--json"]
        result = CliRunner().invoke(command, [*arguments, "--objective", "chat:ttftMs=250,itlMs=200"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["endings"]["finished"] == 10
    assert report["latencies"]["all"]["ttft_s"]["p50"] == pytest.approx(0.08, abs=0.03)
    assert "Breaches against concurrency" in result.stderr
    assert "10/10" in result.stderr


RAMP = ["--url", "http://127.0.0.1:9", "--ramp", "--objective", "chat:ttftMs=250"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--url", "localhost"], "http://"),
        (["--url", "http://127.0.0.1:9", "--objective", "chat"], "NAME:KEY=VALUE"),
        (["--url", "http://127.0.0.1:9", "--ramp"], "a ramp needs"),
        ([*RAMP, "--rate", "10", "--duration-s", "61"], "more than the 600 requests"),
        ([*RAMP, "--rate", "10", "--duration-s", "6", "--requests", "50"], "more than the 50 requests"),
        (["--url", "http://127.0.0.1:9"], "can't ask"),
    ],
)
def test_the_command_says_what_is_wrong(trace: Path, arguments: list[str], complaint: str) -> None:
    result = CliRunner().invoke(command, [str(trace), *arguments])
    assert isinstance(result.exception, UserError)
    assert complaint in str(result.exception)
