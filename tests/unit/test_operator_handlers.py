"""What the operator writes to Kubernetes, and when."""

import asyncio
import socket
from typing import Any

import kopf
import pytest
from leeway_core.errors import UserError
from leeway_operator import main
from leeway_operator.generation import ObservedGeneration
from leeway_operator.handlers import visit_profile

SPEC = {"model": "m", "objectives": [{"name": "chat", "ttftMs": 500}]}


def visited(generation: int, status: dict[str, Any]) -> dict[str, Any]:
    patch = kopf.Patch()
    body = kopf.Body({"metadata": {"generation": generation}, "spec": SPEC, "status": status})
    asyncio.run(visit_profile(name="chat", meta=body.metadata, spec=body.spec, status=body.status, patch=patch))
    assert set(patch) <= {"status"}
    return dict(patch.get("status", {}))


def test_the_first_visit_writes_the_whole_status_as_the_schema_has_it() -> None:
    status = visited(1, {})
    assert status["observedGeneration"] == 1
    assert status["conditions"][0]["lastTransitionTime"].endswith("Z")
    assert status["knobs"]["desired"]["tokenBudget"] == 2048
    assert "enforced" not in status["knobs"]


def test_what_is_right_already_is_not_written_again() -> None:
    assert visited(1, visited(1, {})) == {}


def test_a_new_generation_is_written_without_what_stays() -> None:
    assert set(visited(2, visited(1, {}))) == {"observedGeneration", "conditions"}


def test_a_profile_is_new_unchanged_or_changed_by_its_generation() -> None:
    storage = ObservedGeneration()

    def body(generation: int, **status: int) -> kopf.Body:
        return kopf.Body({"metadata": {"generation": generation}, "status": status})

    assert storage.fetch(body=body(1)) is None
    handled = body(1, observedGeneration=1)
    assert storage.fetch(body=handled) == storage.build(body=handled)
    changed = body(2, observedGeneration=1)
    assert storage.fetch(body=changed) != storage.build(body=changed)


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
