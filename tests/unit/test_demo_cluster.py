"""The demonstration goes on after a call that failed once, and waits for nothing once it has failed itself."""

import io
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from leeway_core.errors import UserError
from leeway_demo import cluster, demonstration
from leeway_demo.cluster import Cluster
from leeway_standalone.state import Launch, Ports

VECTOR = b'{"data": {"result": [{"metric": {"objective": "chat"}, "value": [1, "0.5"]}]}}'


@pytest.fixture
def demonstrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster whose kubectl fails until it has been called as often as a file says."""
    monkeypatch.setattr(cluster, "LOOK_EVERY_S", 0.0)
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(
        f"#!/bin/sh\necho >> {tmp_path}/calls\n"
        f"[ $(wc -l < {tmp_path}/calls) -gt $(cat {tmp_path}/failures) ] || {{ echo slow >&2; exit 1; }}\n"
        "echo '{}'\n"
    )
    kubectl.chmod(0o755)
    return Cluster(Launch(pid=1, started_at_s=0.0, ports=Ports()), tmp_path / "kubeconfig", kubectl)


def test_one_kubectl_that_fails_is_no_end_and_one_that_always_does_is(demonstrated: Cluster, tmp_path: Path) -> None:
    (tmp_path / "failures").write_text("1")
    assert demonstrated.profile() == {}
    (tmp_path / "failures").write_text("99")
    with pytest.raises(UserError, match="kubectl get failed: slow"):
        demonstrated.profile()


def test_one_answer_of_prometheus_that_takes_too_long_is_no_end(
    demonstrated: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = [TimeoutError("timed out"), io.BytesIO(VECTOR), *[TimeoutError("timed out")] * cluster.TRIES]

    def answer(*_: Any, **__: Any) -> Any:
        given = answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    assert demonstrated.query("up") == [({"objective": "chat"}, 0.5)]
    with pytest.raises(UserError, match="Prometheus does not answer: timed out"):
        demonstrated.query("up")


def test_what_is_yet_to_be_sent_holds_up_no_failure() -> None:
    def demonstrate() -> None:
        with demonstration._sender() as sender:
            sender.submit(time.sleep, 60)
            raise UserError("broken")

    began_s = time.monotonic()
    with pytest.raises(UserError, match="broken"):
        demonstrate()
    assert time.monotonic() - began_s < 30
