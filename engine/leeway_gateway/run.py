"""Runs a gateway."""

import asyncio
import signal
from contextlib import AsyncExitStack

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler
from leeway_core.errors import UserError
from prometheus_client import CONTENT_TYPE_LATEST, disable_created_metrics, generate_latest

from leeway_gateway.config import GatewayConfig, Service
from leeway_gateway.endpoint_slices import Cluster, EndpointSlices
from leeway_gateway.errors import error
from leeway_gateway.metrics import GatewayMetrics
from leeway_gateway.objectives import Objectives
from leeway_gateway.proxy import Proxy
from leeway_gateway.roster import Pod, Roster

CONNECT_S = 2.0
"""How long a pod may take to accept a connection."""


def run(config: GatewayConfig) -> None:
    """Serve until SIGTERM or SIGINT, then let the answers in hand end."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # not typed there
    asyncio.run(_serve(config))


async def _serve(config: GatewayConfig) -> None:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    metrics = GatewayMetrics()
    objectives = Objectives(config.objectives_file, metrics.expect)
    metrics.objectives_stale.set_function(lambda: objectives.stale)
    roster, ready = Roster(), asyncio.Event()
    metrics.ready_pods.set_function(lambda: len(roster.pods))
    work = [objectives.follow()]
    if isinstance(config.pods, Service):
        work.append(EndpointSlices(Cluster.of_pod(), config.pods, roster, ready).follow())
    else:
        roster.replace(Pod(url, url.rstrip("/")) for url in config.pods)
        ready.set()
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(_session(config))
        await _listen(stack, _probes(ready, metrics), config.host, config.metrics_port, 0)
        app = routes(Proxy(config, roster, objectives, metrics, session), metrics, config)
        await _listen(stack, app, config.host, config.port, config.drain_s)
        tasks = [asyncio.create_task(coroutine) for coroutine in (*work, told.wait())]
        for task in tasks:
            stack.callback(task.cancel)
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        ready.clear()
        await asyncio.sleep(config.leave_s)


def _session(config: GatewayConfig) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=config.silence_s),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


def routes(proxy: Proxy, metrics: GatewayMetrics, config: GatewayConfig) -> web.Application:
    """Return the application that clients talk to."""

    @web.middleware
    async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
        status = 499
        try:
            response = await handler(request)
            status = response.status
        except web.HTTPException as exception:
            status = exception.status
            return error(status, exception.reason)
        finally:
            metrics.responses.labels(status).inc()
        return response

    app = web.Application(middlewares=[count], client_max_size=config.max_body_bytes)
    app.add_routes(
        [
            web.post("/v1/completions", proxy.generation),
            web.post("/v1/chat/completions", proxy.generation),
            web.get("/v1/models", proxy.other),
            web.get("/v1/models/{model:.+}", proxy.other),
        ]
    )
    return app


def _probes(ready: asyncio.Event, metrics: GatewayMetrics) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        return web.Response()

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(status=200 if ready.is_set() else 503)

    async def scrape(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", scrape)])
    return app


async def _listen(stack: AsyncExitStack, app: web.Application, host: str, port: int, drain_s: float) -> None:
    # A client that goes away cancels its handler, and with it the request to the pod.
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=drain_s)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise UserError(f"the gateway cannot listen on {host}:{port}: {error.strerror}") from error
