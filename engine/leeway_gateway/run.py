"""Runs a gateway."""

import asyncio
import signal
from contextlib import AsyncExitStack

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler
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
    disable_created_metrics()  # type: ignore[no-untyped-call]
    asyncio.run(_serve(config))


async def _serve(config: GatewayConfig) -> None:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    metrics = GatewayMetrics()
    objectives = Objectives(config.objectives_file, metrics.expect)
    metrics.objectives_stale.set_function(lambda: objectives.stale)
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group, AsyncExitStack() as stack:
        followers = [group.create_task(objectives.follow())]
        roster = Roster()
        if isinstance(config.pods, Service):
            slices = EndpointSlices(Cluster.of_pod(), config.pods, roster, ready)
            followers.append(group.create_task(slices.follow()))
        else:
            roster.replace(Pod(url, url.rstrip("/")) for url in config.pods)
            ready.set()
        metrics.ready_pods.set_function(lambda: len(roster.pods))
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=config.silence_s)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=timeout,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        )
        await _listen(stack, _probes(ready, metrics), config.host, config.metrics_port, 0)
        proxy = Proxy(config, roster, objectives, metrics, session)
        await _listen(stack, routes(proxy, metrics, config), config.host, config.port, config.drain_s)
        await told.wait()
        ready.clear()
        await asyncio.sleep(config.leave_s)
        await stack.aclose()
        for follower in followers:
            follower.cancel()


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
    await web.TCPSite(runner, host, port).start()
