"""`leeway explain`, against an API server on loopback."""

import asyncio
import io
import time
from pathlib import Path
from typing import Any

import pytest
from api_server import Answer, ApiServer, Asked, api_server, failure
from leeway_core.decision import Decided, Decision
from leeway_core.errors import UserError
from leeway_operator.explain import run
from leeway_operator.tuner_client import TunerClient
from operator_doubles import World
from rich.console import Console

PROFILE = "/apis/leeway.dev/v1alpha1/namespaces/team/servingprofiles/chat"
DECISIONS = "/api/v1/namespaces/leeway-system/services/leeway-tuner:http/proxy/v1/profiles/u/decisions"
KNOBS = {
    "generation": 3,
    "tokenBudget": 64,
    "prefillHeavyChunk": 64,
    "decodeHeavyChunk": 16,
    "prefillHeavyPercent": 50,
    "runningSequences": 8,
}
STATUS: dict[str, Any] = {
    "summary": "Serving on 2 of 2 pods; chat 99.4% met; mode Observe",
    "conditions": [
        {
            "type": "TelemetryHealthy",
            "status": "True",
            "reason": "ReadingsRecent",
            "message": "Readings are complete and recent",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ],
    "objectives": [
        {"name": "chat", "attainmentPercent": "99.4", "requests": 120, "ttftP95Ms": 312, "itlP95Ms": 48},
        {"name": "documents"},
    ],
    "tuner": "leeway-system/leeway-tuner",
    "knobs": {"desired": KNOBS, "enforced": KNOBS, "pods": 2, "acknowledgedPods": 2},
}


def explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decisions: tuple[int, Any] = (200, []), **status: Any
) -> tuple[ApiServer, str]:
    """Return what was asked and what is printed of a profile in mode Observe."""
    told = io.StringIO()
    with api_server(answers(decisions, {**STATUS, **status})) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / "kubeconfig")))
        try:
            run("chat", "team", 50, Console(file=told, soft_wrap=True))
        except UserError as error:
            print(f"error: {error}", file=told)
    return server, told.getvalue()


def answers(decisions: tuple[int, Any], status: dict[str, Any]) -> Answer:
    spec = {"model": "m", "objectives": [{"name": "chat", "ttftMs": 500}, {"name": "documents", "deadlineSeconds": 9}]}
    metadata = {"namespace": "team", "name": "chat", "uid": "u", "generation": 1}
    profile = {"metadata": metadata, "spec": spec, "status": status}

    def answer(asked: Asked) -> tuple[int, Any]:
        return {PROFILE: (200, profile), DECISIONS: decisions}.get(asked.path, failure(404, asked.path))

    return answer


def tried(world: World) -> Decided:
    """Return a decision as the tuner keeps it."""
    asyncio.run(world.settle(3))
    snapshot = world.tuner.asked[0]
    decision = Decision(sequence=1, action="Try", record=snapshot.record, reason="Candidate", message="Trying.")
    return Decided(snapshot=snapshot, decision=decision)


def test_in_mode_observe_all_that_the_status_tells_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, told = explained(tmp_path, monkeypatch)
    assert told.splitlines() == [
        "team/chat: Serving on 2 of 2 pods; chat 99.4% met; mode Observe",
        "telemetry: ReadingsRecent: Readings are complete and recent",
        "objectives: chat 99.4% met of 120 requests, TTFT 312 ms (p95), ITL 48 ms (p95); documents has no reading",
        "knobs: token_budget 64, prefill_heavy_chunk 64, decode_heavy_chunk 16, prefill_heavy_percent 50,"
        " running_sequences 8; enforced by 2 of 2 pods",
        "The tuner has decided nothing: mode is Observe.",
    ]


def test_decisions_from_before_mode_observe_are_dated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decided = tried(World())
    three_hours_ago = decided.snapshot.model_copy(update={"now_s": time.time() - 3 * 3600})
    old = decided.model_copy(update={"snapshot": three_hours_ago}).model_dump(mode="json", by_alias=True)
    _, told = explained(tmp_path, monkeypatch, (200, [old]))
    assert "The tuner last decided 3 h ago, and in mode Observe nobody asks it." in told
    assert "Candidate: Trying." in told
    assert time.strftime("%m-%d %H:", time.gmtime(three_hours_ago.now_s)) in told


def test_what_the_operator_took_back_by_itself_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    back = {"action": "RollBack", "message": "The incumbent is in force again: the tuner cannot be reached"}
    tried = {"action": "Try", "message": "Trying."}
    done = [
        {"sequence": 8, "time": "2026-01-01T00:00:09Z", **back},
        {"sequence": 7, "time": "2026-01-01T00:00:02Z", **tried},
    ]
    refusal = failure(503, "no endpoints available")
    with monkeypatch.context() as told_so:
        told_so.setitem(STATUS, "decisions", done)
        _, told = explained(tmp_path, monkeypatch, refusal)
    assert told.splitlines()[-3:-1] == [
        "done at 01-01 00:00:02: Try: Trying.",
        "done at 01-01 00:00:09: RollBack: The incumbent is in force again: the tuner cannot be reached",
    ]


def test_only_the_profile_and_the_tuners_own_service_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, _ = explained(tmp_path, monkeypatch)
    assert [(asked.method, asked.path) for asked in server.asked] == [("GET", PROFILE), ("GET", DECISIONS)]


def test_without_the_right_to_ask_the_tuner_the_right_is_named_after_the_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = failure(403, 'services "leeway-tuner:http" is forbidden: User "u" cannot get resource "services/proxy"')
    _, told = explained(tmp_path, monkeypatch, refusal)
    assert "chat 99.4% met of 120 requests" in told
    assert 'cannot get resource "services/proxy"' in told
    assert "Role leeway-explain in namespace leeway-system" in told


def test_a_tuner_that_is_down_or_unknown_is_told_after_the_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, told = explained(tmp_path, monkeypatch, failure(503, "no endpoints available"))
    assert "TTFT 312 ms" in told
    assert "error: The tuner cannot be asked what it decided: no endpoints available.\n" in told
    _, told = explained(tmp_path, monkeypatch, tuner=None)
    assert "TTFT 312 ms" in told
    assert "the operator has not visited it yet" in told


@pytest.mark.parametrize(
    ("url", "service"),
    [
        ("http://leeway-tuner.leeway-system.svc:8081", "leeway-system/leeway-tuner"),
        ("http://t.n.svc.cluster.local:1/", "n/t"),
        ("http://127.0.0.1:8081", ""),
        ("http://tuner.example.com", ""),
    ],
)
def test_the_status_names_the_tuner_where_it_has_a_service(url: str, service: str) -> None:
    assert TunerClient(None, url).service == service  # type: ignore[arg-type]  # asks nothing
