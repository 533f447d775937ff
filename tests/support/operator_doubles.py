"""A cluster, its pods and a tuner in memory, any call to which can be made to fail."""

import copy
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from leeway_core.decision import Decision
from leeway_core.knobs import Knobs
from leeway_core.pod_knobs import Ceilings, KnobsReply, PodKnobs
from leeway_core.record import Record
from leeway_core.snapshot import Snapshot
from leeway_operator.cluster import ApiError
from leeway_operator.keeper import Keeper
from leeway_operator.memory import Memory
from leeway_operator.pod_client import PushRefusedError
from leeway_operator.pods import Pod
from leeway_operator.profile import Profile
from leeway_operator.reconciler import Reconciler
from leeway_operator.records import Records
from leeway_operator.tuner_client import TunerError

NAMESPACE, NAME = "team", "chat"
PROFILE_PATH = f"/apis/leeway.dev/v1alpha1/namespaces/{NAMESPACE}/servingprofiles/{NAME}"
KNOBS_PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}-knobs"
CEILINGS = Ceilings(token_budget=256, chunk_size=256, running_sequences=32)


class Faults:
    """Counts calls of any kind, and fails the one with this number, before or after its effect."""

    def __init__(self) -> None:
        self.calls = 0
        self.fail_at = 0
        self.after_effect = False
        self.error: Callable[[], Exception] = lambda: ApiError(500, "injected")

    def begin(self) -> bool:
        """Count a call; raises now, or tells that it is to fail in the end."""
        self.calls += 1
        if self.calls != self.fail_at:
            return False
        if not self.after_effect:
            raise self.error()
        return True


class FakeCluster:
    """Objects by path; apply merges fields as a server does for a single writer."""

    def __init__(self, faults: Faults, profile: dict[str, Any]) -> None:
        self.faults = faults
        self.objects: dict[str, dict[str, Any]] = {PROFILE_PATH: profile}
        self.pods: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []

    async def get(self, path: str) -> dict[str, Any] | None:
        if self.faults.begin():
            raise self.faults.error()
        return copy.deepcopy(self.objects.get(path))

    async def items(self, path: str, *, labels: str = "", fields: str = "") -> list[dict[str, Any]]:
        if self.faults.begin():
            raise self.faults.error()
        return copy.deepcopy(self.pods if path.endswith("/pods") else self.events)

    async def apply(self, path: str, content: dict[str, Any]) -> None:
        failing = self.faults.begin()
        if path.endswith("/status"):
            self.objects[path.removesuffix("/status")]["status"] = content["status"]
        else:
            self.objects[path] = copy.deepcopy(content)
        if failing:
            raise self.faults.error()

    def data(self, path: str = KNOBS_PATH) -> dict[str, str]:
        """Return the data of a ConfigMap."""
        data: dict[str, str] = self.objects[path]["data"]
        return data

    @property
    def record(self) -> Record:
        """What is on record."""
        return Record.model_validate_json(self.data()["record"])


class FakePods:
    """Knob endpoints that hold to a pod's rules."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.knobs: dict[str, PodKnobs] = {}
        self.refusing: set[str] = set()
        self.pushed: list[tuple[str, PodKnobs]] = []

    async def read(self, pod: Pod, token: str) -> KnobsReply | None:
        assert token
        knobs = self.knobs.get(pod.name)
        return KnobsReply(accepted=knobs, enforced=knobs, ceilings=CEILINGS) if knobs else None

    async def push(self, pod: Pod, knobs: PodKnobs, token: str) -> KnobsReply:
        self.pushed.append((pod.name, knobs))
        try:
            failing = self.faults.begin()
        except ApiError as error:
            raise PushRefusedError(f"{pod.name}: {error}") from error
        had = self.knobs[pod.name]
        if pod.name in self.refusing or (knobs != had and knobs.generation <= had.generation):
            raise PushRefusedError(f"{pod.name}: refused")
        self.knobs[pod.name] = knobs
        if failing:
            raise PushRefusedError(f"{pod.name}: no answer")
        return KnobsReply(accepted=knobs, enforced=knobs, ceilings=CEILINGS)


class FakeTuner:
    """Tries a token budget of 128, and promotes it a visit later."""

    service = "leeway-system/leeway-tuner"

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.down = False
        self.budget = 128
        self.asked: list[Snapshot] = []

    async def decide(self, snapshot: Snapshot) -> Decision:
        try:
            failing = self.faults.begin()
        except ApiError as error:
            raise TunerError(str(error)) from error
        if self.down or failing:
            raise TunerError("the tuner is down")
        self.asked.append(snapshot)
        record, now_s = snapshot.record, snapshot.now_s
        if snapshot.disturbance in {"KnobsEdited", "ReplicasChanging", "PodsNotReady"}:
            return _decision(snapshot, "RollBack" if record.candidate else "Hold", record.back(now_s))
        if record.candidate is not None:
            promoted = record.candidate.model_copy(update={"generation": record.newest_generation})
            return _decision(snapshot, "Promote", record.only(promoted, now_s))
        if record.incumbent.token_budget == self.budget:
            return _decision(snapshot, "Hold", record)
        candidate = _with_budget(record.incumbent, self.budget)
        trial = record.model_copy(update={"candidate": candidate, "trying": True, "started_at_s": now_s})
        return _decision(snapshot, "Try", trial)


def _with_budget(knobs: Knobs, budget: int) -> Knobs:
    return knobs.model_copy(update={"token_budget": budget, "generation": knobs.generation + 1})


def _decision(snapshot: Snapshot, action: Any, record: Record) -> Decision:
    return Decision(sequence=snapshot.sequence, action=action, record=record, reason="Because", message="Because.")


class World:
    """A profile of two pods, and an operator for it."""

    def __init__(self, mode: str = "Auto", **tuning: Any) -> None:
        self.faults = Faults()
        spec = {
            "model": "/models/tiny",
            "replicas": 2,
            "engine": {"ceilings": {"tokenBudget": 256, "runningSequences": 32}},
            "objectives": [{"name": "chat", "ttftMs": 500}],
            "tuning": {"mode": mode, "knobs": {"tokenBudget": {"min": 32, "start": 64}}, **tuning},
        }
        body = {"metadata": {"namespace": NAMESPACE, "name": NAME, "uid": "u", "generation": 1}, "spec": spec}
        self.cluster = FakeCluster(self.faults, body)
        self.pods = FakePods(self.faults)
        self.tuner = FakeTuner(self.faults)
        self.now_s = 1_000_000.0
        self.restart_operator()

    def restart_operator(self) -> None:
        """Lose the operator's memory."""
        self.memory = Memory()
        self.reconciler = Reconciler(
            cluster=self.cluster,  # type: ignore[arg-type]  # a double
            keeper=Keeper(self.cluster, "leeway/leeway:1"),  # type: ignore[arg-type]  # a double
            records=Records(self.cluster),  # type: ignore[arg-type]  # a double
            pods=self.pods,  # type: ignore[arg-type]  # a double
            tuner=self.tuner,  # type: ignore[arg-type]  # a double
            clock=lambda: self.now_s,
        )

    @property
    def profile(self) -> Profile:
        """The profile as it is now."""
        return Profile.read(self.cluster.objects[PROFILE_PATH])

    @property
    def status(self) -> dict[str, Any]:
        """Its status."""
        status: dict[str, Any] = self.cluster.objects[PROFILE_PATH].get("status", {})
        return status

    def condition(self, kind: str) -> dict[str, Any]:
        """Return a condition of it."""
        return next(item for item in self.status["conditions"] if item["type"] == kind)

    def start_pods(self) -> None:
        """Do what Kubernetes does: pods as the StatefulSet asks for, which boot from the ConfigMap."""
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{NAME}-engine"
        wanted = self.cluster.objects.get(path)
        if wanted is None:
            return
        names = [f"{NAME}-engine-{ordinal}" for ordinal in range(wanted["spec"]["replicas"])]
        self.cluster.pods = [pod_body(name, "engine") for name in names] + [pod_body(f"{NAME}-gateway-x", "gateway")]
        for name in names:
            if name not in self.pods.knobs:
                self.boot(name)

    def boot(self, name: str) -> None:
        """Start a pod's container anew."""
        self.pods.knobs[name] = PodKnobs.model_validate_json(self.cluster.data()[f"{name}.json"])

    async def visit(self) -> None:
        """Visit once, five seconds after the last time."""
        self.now_s += 5
        await self.reconciler.visit(self.profile, self.memory)

    async def settle(self, visits: int = 6) -> None:
        """Visit some times, whatever fails."""
        for _ in range(visits):
            with suppress(ApiError):
                await self.visit()
            self.start_pods()

    def check_pods(self) -> None:
        """Check that every pod has the knobs in force, and would boot with the incumbent's."""
        record = self.cluster.record
        for name, knobs in self.pods.knobs.items():
            assert (knobs.token_budget, knobs.generation) == (record.in_force.token_budget, record.in_force.generation)
            booted = PodKnobs.model_validate_json(self.cluster.data()[f"{name}.json"])
            assert booted.token_budget == record.incumbent.token_budget
            assert knobs.policies == booted.policies == record.policies


def pod_body(name: str, component: str, **status: Any) -> dict[str, Any]:
    """Return a pod that runs and is ready, unless told otherwise."""
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-of-{name}",
            "labels": {"leeway.dev/component": component, "controller-revision-hash": component},
        },
        "status": {
            "podIP": "10.0.0.1",
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"restartCount": 0, "state": running}],
            **status,
        },
    }
