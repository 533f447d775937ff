"""What the operator makes of the API server's answers, by a real one over HTTP."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import kopf
import pytest
from api_server import Answer, ApiServer, api_server, failure
from leeway_operator import cluster as module
from leeway_operator.cluster import ApiError, Cluster

PATH = "/api/v1/namespaces/team/configmaps/chat"
Call = Callable[[Cluster], Awaitable[Any]]


def call(url: str, make: Call, tokens: list[str] | None = None) -> Any:
    """Make a call, logging in with each of `tokens` in turn."""
    left = iter(tokens or ["t"])

    async def go() -> Any:
        async with Cluster.session(lambda: kopf.ConnectionInfo(server=url, token=next(left))) as cluster:
            return await make(cluster)

    return asyncio.run(go())


def asked_once(answer: Answer, make: Call, tokens: list[str] | None = None) -> tuple[ApiServer, Any]:
    with api_server(answer) as server:
        return server, call(server.url, make, tokens)


@pytest.mark.parametrize("status", [400, 403, 409, 410, 422, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("make", [lambda c: c.get(PATH), lambda c: c.items(PATH), lambda c: c.apply(PATH, {})])
def test_a_refusal_keeps_its_status_and_what_the_server_says(status: int, make: Call) -> None:
    with pytest.raises(ApiError, match=r"^because$") as refused:
        asked_once(lambda _: failure(status, "because"), make)
    assert refused.value.status == status


def test_what_is_not_there_is_none_to_get_and_an_error_to_all_else() -> None:
    missing = failure(404, "not found")
    assert asked_once(lambda _: missing, lambda c: c.get(PATH))[1] is None
    for make in (lambda c: c.ask(PATH, {}), lambda c: c.items(PATH), lambda c: c.apply(PATH, {})):
        with pytest.raises(ApiError, match="not found") as refused:
            asked_once(lambda _: missing, make)
        assert refused.value.status == 404


def test_a_refusal_in_plain_text_is_told_as_it_is() -> None:
    with pytest.raises(ApiError, match=r"^upstream is down$"):
        asked_once(lambda _: (503, "upstream is down\n"), lambda c: c.get(PATH))


def test_a_token_that_has_run_out_is_renewed_once() -> None:
    def answer(asked: Any) -> tuple[int, Any]:
        good = asked.headers["Authorization"] == "Bearer new"
        return (200, {"kind": "ConfigMap"}) if good else failure(401, "Unauthorized")

    server, found = asked_once(answer, lambda c: c.get(PATH), ["old", "new"])
    assert found == {"kind": "ConfigMap"}
    assert len(server.asked) == 2
    with pytest.raises(ApiError, match="Unauthorized") as refused:
        asked_once(answer, lambda c: c.get(PATH), ["old", "older", "oldest"])
    assert refused.value.status == 401


def test_a_server_that_does_not_answer_in_time_is_a_failure_of_status_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_S", 0.2)
    released = threading.Event()

    def hang(_: Any) -> tuple[int, Any]:
        released.wait(30)
        return 200, {}

    try:
        with pytest.raises(ApiError, match=f"^GET {PATH}: .*[Tt]imeout") as failed:
            asked_once(hang, lambda c: c.get(PATH))
    finally:
        released.set()
    assert failed.value.status == 0


def test_a_server_that_is_not_there_is_a_failure_of_status_0() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ApiError, match=f"^GET {PATH}: ") as failed:
        call(f"http://127.0.0.1:{port}", lambda c: c.get(PATH))
    assert failed.value.status == 0


@pytest.mark.parametrize("content", ["<html>", ""])
def test_an_answer_that_is_no_object_is_a_failure_of_status_0(content: str) -> None:
    with pytest.raises(ApiError) as failed:
        asked_once(lambda _: (200, content), lambda c: c.get(PATH))
    assert failed.value.status == 0


def test_an_apply_is_forced_under_the_operators_own_name() -> None:
    server, _ = asked_once(lambda _: (200, {}), lambda c: c.apply(PATH, {"data": {"a": "b"}}))
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.content) == ("PATCH", PATH, {"data": {"a": "b"}})
    assert asked.query == {"fieldManager": "leeway-operator", "force": "true"}
    assert asked.headers["Content-Type"] == "application/apply-patch+yaml"
