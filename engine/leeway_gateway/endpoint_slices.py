"""Follows a Service's EndpointSlices, so that the roster holds its ready pods."""

import asyncio
import json
import logging
import os
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from leeway_core.errors import UserError

from leeway_gateway.config import Service
from leeway_gateway.roster import Pod, Roster

logger = logging.getLogger(__name__)

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_WATCH_S = 300
_PAUSE_S = 1.0
_READ_BUFFER = 4 << 20
"""A watch event is one line, and must fit."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The API server, as a pod's ServiceAccount reaches it."""

    url: str
    token_file: Path
    ca_file: Path
    namespace: str

    @classmethod
    def of_pod(cls) -> "Cluster":
        """Return the cluster that this process runs in as a pod."""
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
        if not host or not port or not _ACCOUNT.is_dir():
            raise UserError("not in a pod with a ServiceAccount; name the engine pods' addresses instead")
        host = f"[{host}]" if ":" in host else host
        namespace = (_ACCOUNT / "namespace").read_text()
        return cls(f"https://{host}:{port}", _ACCOUNT / "token", _ACCOUNT / "ca.crt", namespace)


class EndpointSlices:
    """Lists and watches; while the API server is away, the roster stays as it was."""

    def __init__(self, cluster: Cluster, service: Service, roster: Roster, synced: asyncio.Event) -> None:
        """Follow the slices of this service; `synced` is set once they have been listed."""
        self._url = (
            f"{cluster.url}/apis/discovery.k8s.io/v1/namespaces/{service.namespace or cluster.namespace}/endpointslices"
        )
        self._cluster = cluster
        self._service = service
        self._roster = roster
        self._slices: dict[str, Any] = {}
        self._synced = synced

    async def follow(self) -> None:
        """Keep the roster up to date until cancelled."""
        context = ssl.create_default_context(cafile=self._cluster.ca_file)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=_WATCH_S + 30)
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=_READ_BUFFER) as session:
            while True:
                try:
                    await self._watch(session, await self._list(session))
                except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                    logger.warning("cannot follow EndpointSlices, trying again: %r", error)
                await asyncio.sleep(_PAUSE_S)

    async def _list(self, session: aiohttp.ClientSession) -> str:
        async with self._get(session) as response:
            listed = await response.json()
        self._slices = {item["metadata"]["name"]: item for item in listed["items"]}
        self._update()
        self._synced.set()
        version: str = listed["metadata"]["resourceVersion"]
        return version

    async def _watch(self, session: aiohttp.ClientSession, version: str) -> None:
        """Follow changes until the server ends the watch, as it does now and then, or asks for a new list."""
        async with self._get(
            session, watch="1", resourceVersion=version, allowWatchBookmarks="true", timeoutSeconds=str(_WATCH_S)
        ) as response:
            async for line in response.content:
                event = json.loads(line)
                match event["type"]:
                    case "ADDED" | "MODIFIED":
                        self._slices[event["object"]["metadata"]["name"]] = event["object"]
                    case "DELETED":
                        self._slices.pop(event["object"]["metadata"]["name"], None)
                    case "ERROR":
                        logger.info("listing EndpointSlices anew: %s", event["object"].get("message"))
                        return
                self._update()

    def _get(self, session: aiohttp.ClientSession, **query: str) -> Any:
        # Read each time: the kubelet renews the token.
        token = self._cluster.token_file.read_text().strip()
        query["labelSelector"] = f"kubernetes.io/service-name={self._service.name}"
        return session.get(self._url, params=query, headers={"Authorization": f"Bearer {token}"}, raise_for_status=True)

    def _update(self) -> None:
        self._roster.replace(ready_pods(self._slices.values(), self._service.port))


def ready_pods(slices: Iterable[Any], port_name: str) -> list[Pod]:
    """Return the pods that are ready, at the port of that name."""
    pods: dict[str, Pod] = {}
    for item in slices:
        port = next((port["port"] for port in item.get("ports") or () if port.get("name") == port_name), None)
        for endpoint in item.get("endpoints") or ():
            conditions = endpoint.get("conditions") or {}
            # An unknown condition counts as ready.
            if port is None or conditions.get("ready") is False:
                continue
            address = endpoint["addresses"][0]
            name = (endpoint.get("targetRef") or {}).get("name") or address
            host = f"[{address}]" if item["addressType"] == "IPv6" else address
            pods[name] = Pod(name, f"http://{host}:{port}")
    return list(pods.values())
