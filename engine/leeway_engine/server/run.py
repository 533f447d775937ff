"""Runs a pod: its API, its knob endpoint and its engine loop."""

import asyncio
import logging
import resource
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress

from aiohttp import web
from leeway_core.errors import UserError
from prometheus_client import CONTENT_TYPE_LATEST, disable_created_metrics, generate_latest

from leeway_engine.decode_buckets import bucket_sizes
from leeway_engine.server.api import Api
from leeway_engine.server.channel import Stepped
from leeway_engine.server.config import EngineConfig, ServerConfig
from leeway_engine.server.engine_process import EngineProcess
from leeway_engine.server.event_log import EventLog
from leeway_engine.server.knobs_api import knobs_application, read_token
from leeway_engine.server.live_knobs import LiveKnobs
from leeway_engine.server.metrics.server_metrics import ServerMetrics
from leeway_engine.server.rotating_file import RotatingFile
from leeway_engine.server.tokenizer import TextModel

FLUSH_S = 5.0
"""How long answers that are already made may take to leave."""

logger = logging.getLogger(__name__)


def run(config: ServerConfig, engine_config: EngineConfig) -> None:
    """Serve until SIGTERM or SIGINT, then drain; raises SystemExit with 1 when the engine loop dies."""
    allow_connections()
    disable_created_metrics()  # type: ignore[no-untyped-call]  # not typed there
    if not asyncio.run(_serve(config, engine_config)):
        raise SystemExit(1)


def allow_connections() -> None:
    """Let this process hold as many files as the system allows it to: each request has a connection of its own."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _serve(config: ServerConfig, engine_config: EngineConfig) -> bool:
    """Return whether the pod ended because it was told to."""
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    read_token(config.knobs_token_file)
    text = TextModel.load(engine_config.model)
    graphs = bucket_sizes(engine_config.ceilings.running_sequences) if engine_config.device.startswith("cuda") else ()
    metrics = ServerMetrics(graphs)
    async with AsyncExitStack() as stack:
        engine = EngineProcess(_on_step(stack, config, metrics))
        await engine.start(engine_config.model_dump_json())
        stack.push_async_callback(engine.stop)
        api = Api(config, text, engine, metrics)
        stack.callback(asyncio.create_task(api.watch.run()).cancel)
        app = api.application()
        app.add_routes(_probes(api, engine, metrics))
        await _listen(stack, app, config.host, config.port)
        if await _first(engine.ready.wait(), engine.died.wait(), told.wait()) == 0:
            knobs = LiveKnobs(engine, engine_config.knobs)
            knobs_app = knobs_application(knobs, config.knobs_token_file, metrics)
            await _listen(stack, knobs_app, config.host, config.knobs_port)
            logger.info("serving %s on %s:%d", config.served_model, config.host, config.port)
            await _first(engine.died.wait(), told.wait())
        api.draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(config.drain_s):
                await _first(engine.died.wait(), engine.idle.wait())
        if engine.died.is_set():
            logger.error("the engine loop died")
            return False
    return True


def _on_step(stack: AsyncExitStack, config: ServerConfig, metrics: ServerMetrics) -> Callable[[Stepped], None]:
    """Return who is told of each iteration: the metrics, and the event log if there is to be one."""
    if config.event_log is None:
        return metrics.stepped
    file = RotatingFile(config.event_log, config.event_log_bytes, config.event_log_files)
    event_log = EventLog(file, metrics.event_log)
    stack.callback(event_log.close)

    def on_step(message: Stepped) -> None:
        metrics.stepped(message)
        event_log.write(message.log)

    return on_step


def _probes(api: Api, engine: EngineProcess, metrics: ServerMetrics) -> list[web.RouteDef]:
    async def healthz(_: web.Request) -> web.Response:
        return web.Response(status=503 if engine.died.is_set() else 200)

    async def readyz(_: web.Request) -> web.Response:
        reason = api.unready
        return web.json_response({"ready": reason is None, "reason": reason}, status=503 if reason else 200)

    async def scrape(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", scrape)]


async def _listen(stack: AsyncExitStack, app: web.Application, host: str, port: int) -> None:
    # A client that goes away cancels its handler, and with it the generation.
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=FLUSH_S)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise UserError(f"the pod cannot listen on {host}:{port}: {error.strerror}") from error


async def _first(*waits: Awaitable[object]) -> int:
    """Wait for the first of these and return its place in the list; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(place for place, task in enumerate(tasks) if task.done())
    finally:
        for task in tasks:
            task.cancel()
