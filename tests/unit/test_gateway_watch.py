"""Following a Service's EndpointSlices on an API server that ends, refuses and expires watches."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from leeway_gateway.config import Service
from leeway_gateway.endpoint_slices import Cluster, EndpointSlices
from leeway_gateway.roster import Roster

HOST = "127.0.0.1"


def endpoint_slice(*addresses: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "web-1"},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8000}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
    }


class ApiServer:
    """Lists one slice and sends what the test puts into `events`; None ends the watch."""

    def __init__(self) -> None:
        self.slice = endpoint_slice("10.0.0.1")
        self.lists = 0
        self.refuse = 0
        self.tokens: list[str] = []
        self.queries: list[dict[str, str]] = []
        self.events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers["Authorization"])
        self.queries.append(dict(request.query))
        if self.refuse:
            self.refuse -= 1
            return web.Response(status=500)
        if "watch" not in request.query:
            self.lists += 1
            return web.json_response({"metadata": {"resourceVersion": str(self.lists)}, "items": [self.slice]})
        response = web.StreamResponse()
        await response.prepare(request)
        while event := await self.events.get():
            await response.write(json.dumps(event).encode() + b"\n")
        return response


@asynccontextmanager
async def following(tmp_path: Path, server: ApiServer) -> AsyncIterator[Roster]:
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_text("")
    app = web.Application()
    app.add_routes([web.get("/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices", server.answer)])
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    cluster = Cluster(f"http://{HOST}:{runner.addresses[0][1]}", tmp_path / "token", tmp_path / "ca.crt", "shop")
    roster, synced = Roster(), asyncio.Event()
    task = asyncio.create_task(EndpointSlices(cluster, Service("web"), roster, synced).follow())
    try:
        await asyncio.wait_for(synced.wait(), 20)
        yield roster
    finally:
        task.cancel()
        await runner.cleanup()


async def until(roster: Roster, *addresses: str) -> None:
    async with asyncio.timeout(20):
        while {pod.url for pod in roster.pods.values()} != {f"http://{address}:8000" for address in addresses}:
            await roster.wait_for_change(0.05)


@pytest.fixture(autouse=True)
def _no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssl, "create_default_context", lambda cafile: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


def test_pods_come_and_go_with_the_slices(tmp_path: Path) -> None:
    async def follow() -> None:
        server = ApiServer()
        async with following(tmp_path, server) as roster:
            await until(roster, "10.0.0.1")
            server.events.put_nowait({"type": "MODIFIED", "object": endpoint_slice("10.0.0.1", "10.0.0.2")})
            await until(roster, "10.0.0.1", "10.0.0.2")
            bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
            server.events.put_nowait(bookmark)
            server.events.put_nowait({"type": "DELETED", "object": endpoint_slice()})
            await until(roster)
        assert server.lists == 1
        assert server.queries[0] == {"labelSelector": "kubernetes.io/service-name=web"}
        assert server.queries[1]["resourceVersion"] == "1"

    asyncio.run(follow())


def test_after_an_end_an_expiry_and_a_failure_it_lists_anew_with_the_renewed_token(tmp_path: Path) -> None:
    async def follow() -> None:
        server = ApiServer()
        async with following(tmp_path, server) as roster:
            await until(roster, "10.0.0.1")
            server.slice = endpoint_slice("10.0.0.2")
            server.events.put_nowait({"type": "ERROR", "object": {"code": 410, "message": "too old"}})
            await until(roster, "10.0.0.2")
            server.slice = endpoint_slice("10.0.0.3")
            (tmp_path / "token").write_text("second")
            server.refuse = 1
            server.events.put_nowait(None)
            await until(roster, "10.0.0.3")
        assert server.lists == 3
        assert server.tokens[-1] == "Bearer second"

    asyncio.run(follow())


def test_while_the_api_server_is_away_the_pods_stay(tmp_path: Path) -> None:
    async def follow() -> None:
        server = ApiServer()
        async with following(tmp_path, server) as roster:
            await until(roster, "10.0.0.1")
            server.refuse = 1000
            server.events.put_nowait(None)
            await asyncio.sleep(0.3)
            await until(roster, "10.0.0.1")

    asyncio.run(follow())
