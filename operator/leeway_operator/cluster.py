"""The API server as the operator needs it: read, server-side apply, nothing else."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

import aiohttp
import kopf

from leeway_operator.metrics import API_CALLS

FIELD_MANAGER = "leeway-operator"
CONNECT_S = 5.0
REQUEST_S = 15.0

Object = dict[str, Any]


class ApiError(Exception):
    """A call that the API server refused, or that did not reach it (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        """Say what the server said."""
        super().__init__(message)
        self.status = status


class Cluster:
    """One session with the API server."""

    def __init__(self, log_in: Callable[[], kopf.ConnectionInfo], session: aiohttp.ClientSession) -> None:
        """Talk to the server that `log_in` names, which is asked again when the credentials are refused."""
        self._log_in = log_in
        self._session = session
        self._use(log_in())

    @classmethod
    @asynccontextmanager
    async def session(cls, log_in: Callable[[], kopf.ConnectionInfo]) -> AsyncIterator[Self]:
        """Open a session, and close it in the end."""
        timeout = aiohttp.ClientTimeout(total=REQUEST_S, sock_connect=CONNECT_S)
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
            yield cls(log_in, session)

    async def get(self, path: str) -> Object | None:
        """Return an object, or None if there is none."""
        try:
            found: Object = await self._call("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return found

    async def ask(self, path: str, query: Mapping[str, str]) -> Any:
        """Return what a Service behind the API server answers."""
        return await self._call("GET", path, query)

    async def items(self, path: str, *, labels: str = "", fields: str = "") -> list[Object]:
        """Return the objects of a collection that have these labels and fields."""
        query = {"labelSelector": labels, "fieldSelector": fields}
        listed: list[Object] = (await self._call("GET", path, query))["items"]
        return listed

    async def apply(self, path: str, content: Object) -> None:
        """Make the object's fields those of `content`, and leave the fields that it does not name."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        await self._call("PATCH", path, query, content, "application/apply-patch+yaml")

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        content: Object | None = None,
        kind: str = "application/json",
    ) -> Any:
        for last in (False, True):
            API_CALLS.labels(method).inc()
            headers = {**self._headers, "Accept": "application/json", "Content-Type": kind}
            try:
                async with self._session.request(
                    method, self._server + path, params=query, json=content, headers=headers, ssl=self._ssl
                ) as response:
                    if response.status == 401 and not last:
                        self._use(self._log_in())  # the kubelet renews the token
                        continue
                    if response.status >= 400:
                        raise ApiError(response.status, _complaint(await response.text()))
                    return await response.json()
            except (TimeoutError, aiohttp.ClientError, ValueError) as error:
                raise ApiError(0, f"{method} {path}: {str(error) or type(error).__name__}") from error
        raise AssertionError("the second try returns or raises")

    def _use(self, server: kopf.ConnectionInfo) -> None:
        self._server = server.server.rstrip("/")
        self._headers = server.as_http_headers()
        self._ssl = server.as_ssl_context()


def _complaint(text: str) -> str:
    """Return what a Status object says, or what else the server answered."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip()
