"""What the operator is started with, and what makes a profile due."""

import asyncio
import socket
from typing import Any

import kopf
import pytest
from leeway_core.errors import UserError
from leeway_operator import main, rounds
from leeway_operator.cluster import ApiError
from leeway_operator.login import by_address
from leeway_operator.memory import Memory
from leeway_operator.profile import Profile
from leeway_operator.rounds import Rounds


class Visitor:
    """Counts visits by profile and generation."""

    def __init__(self, failures: int = 0) -> None:
        self.visits: list[tuple[str, int]] = []
        self.memories: list[Memory] = []
        self.failures = failures
        self.done = asyncio.Event()

    async def visit(self, profile: Profile, memory: Memory) -> None:
        self.visits.append((profile.name, profile.generation))
        self.memories.append(memory)
        if len(self.visits) <= self.failures:
            raise ApiError(500, "injected")
        self.done.set()


def body(name: str = "chat", generation: int = 1, uid: str = "u", **metadata: Any) -> dict[str, Any]:
    named = {"namespace": "team", "name": name, "uid": uid, "generation": generation, **metadata}
    return {"metadata": named, "spec": {"model": "m", "objectives": [{"name": "chat", "ttftMs": 500}]}}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "TICK_S", 60.0)
    monkeypatch.setattr(rounds, "SOON_S", 0.0)


async def turn() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def run(visitor: Visitor, *events: Any) -> list[tuple[str, int]]:
    async def go() -> None:
        made = Rounds(visitor)  # type: ignore[arg-type]  # a double
        for event in events:
            event(made)
            await turn()
        await made.stop()

    asyncio.run(go())
    return visitor.visits


def test_a_profile_is_visited_when_it_comes_and_when_its_spec_changes_but_not_for_its_status() -> None:
    visits = run(
        Visitor(),
        lambda made: made.see(body()),
        lambda made: made.see({**body(), "status": {"summary": "x"}}),
        lambda made: made.see(body(generation=2)),
    )
    assert visits == [("chat", 1), ("chat", 2)]


def test_a_changed_child_makes_its_own_profile_due_with_all_children() -> None:
    visitor = Visitor()
    visits = run(
        visitor,
        lambda made: made.see(body()),
        lambda made: made.see(body("other")),
        lambda made: made.disturb("team", "chat", child=True),
        lambda made: made.disturb("team", "unknown", child=True),
    )
    assert visits == [("chat", 1), ("other", 1), ("chat", 1)]


def test_a_deleted_profile_is_visited_no_more_and_one_that_leaves_is_left_alone() -> None:
    visits = run(
        Visitor(),
        lambda made: made.see(body()),
        lambda made: made.see(body(generation=2, deletionTimestamp="2026-01-01T00:00:00Z")),
        lambda made: made.forget(body()),
        lambda made: made.disturb("team", "chat", child=False),
    )
    assert visits == [("chat", 1)]


def test_a_profile_made_anew_under_the_old_name_is_not_taken_for_the_old_one() -> None:
    visitor = Visitor()
    run(visitor, lambda made: made.see(body()), lambda made: made.see(body(uid="v")))
    assert visitor.memories[0] is not visitor.memories[1]


def test_a_visit_that_fails_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "TICK_S", 0.0)

    async def go() -> None:
        visitor = Visitor(failures=2)
        made = Rounds(visitor)  # type: ignore[arg-type]  # a double
        made.see(body())
        await visitor.done.wait()
        await made.stop()
        assert len(visitor.visits) >= 3

    asyncio.run(asyncio.wait_for(go(), 5))


def test_in_a_pod_the_api_server_is_reached_by_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    in_pod = kopf.ConnectionInfo(server="https://kubernetes.default.svc")
    assert by_address(in_pod).server == "https://[fd00::1]:443"
    elsewhere = kopf.ConnectionInfo(server="https://example.com")
    assert by_address(elsewhere).server == "https://example.com"


def test_without_kubernetes_the_operator_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.setattr(main, "serve_metrics", lambda *_, **__: None)
    with pytest.raises(UserError, match="set KUBECONFIG"):
        main.run(liveness_port=0)


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"127.0.0.1:{port}: Address already in use"):
            main.run(metrics_port=port)
