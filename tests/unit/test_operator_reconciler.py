"""A profile's visits end in the same place, whatever fails on the way and whoever interferes."""

import asyncio
from typing import Any

import pytest
from leeway_core.decision import Decision
from leeway_core.pod_knobs import KnobsReply, PodKnobs
from leeway_core.policies import AdaptiveChunk, Policies, Protection, Slack
from leeway_core.snapshot import Snapshot, Telemetry
from leeway_operator import metrics, reconciler
from leeway_operator.cluster import ApiError
from leeway_operator.observation import Observation, PodObserved
from leeway_operator.pod_settings import pod_settings
from leeway_operator.pods import Pod
from leeway_operator.snapshot import no_telemetry
from leeway_operator.telemetry import Scope
from operator_doubles import CEILINGS, KNOBS_PATH, NAME, NAMESPACE, PROFILE_PATH, World, pod_body

TOKEN_PATH = f"/api/v1/namespaces/{NAMESPACE}/secrets/{NAME}-knob-token"


def settled(mode: str = "Auto", visits: int = 6, **tuning: Any) -> World:
    world = World(mode, **tuning)
    asyncio.run(world.settle(visits))
    return world


def visit(world: World, times: int = 1) -> None:
    asyncio.run(world.settle(times))


def test_a_profile_gets_all_of_its_children_owned_and_without_finalizer() -> None:
    world = settled("Observe", 2)
    made = {(item["kind"], item["metadata"]["name"]) for item in world.cluster.objects.values() if "kind" in item}
    assert made == {
        ("ConfigMap", "chat-objectives"),
        ("ConfigMap", "chat-knobs"),
        ("Secret", "chat-knob-token"),
        ("ServiceAccount", "chat-engine"),
        ("Service", "chat-engine"),
        ("StatefulSet", "chat-engine"),
        ("ServiceAccount", "chat-gateway"),
        ("Role", "chat-gateway"),
        ("RoleBinding", "chat-gateway"),
        ("Service", "chat-gateway"),
        ("Deployment", "chat-gateway"),
        ("PodMonitor", "chat"),
    }
    for path, item in world.cluster.objects.items():
        if path != PROFILE_PATH:
            assert [owner["uid"] for owner in item["metadata"]["ownerReferences"]] == ["u"]
            assert "finalizers" not in item["metadata"]


def test_a_tuned_profile_ends_with_the_promoted_knobs_on_every_pod() -> None:
    world = settled()
    assert world.cluster.record.incumbent.token_budget == 128
    assert world.cluster.record.candidate is None
    world.check_pods()
    assert [item["action"] for item in world.status["decisions"]] == ["Promote", "Try"]
    assert world.status["knobs"]["acknowledgedPods"] == 2


@pytest.mark.parametrize("restart", [False, True], ids=["operator stays", "operator restarts"])
@pytest.mark.parametrize("after_effect", [False, True], ids=["call lost", "answer lost"])
@pytest.mark.parametrize("status", [0, 403, 404, 409, 410, 422, 429, 500, 503], ids=lambda status: status or "timeout")
def test_a_failure_at_any_call_changes_nothing_about_the_end(status: int, after_effect: bool, restart: bool) -> None:
    normal = settled()
    for number in range(1, normal.faults.calls + 1):
        world = World()
        world.faults.fail_at, world.faults.after_effect = number, after_effect
        world.faults.error = lambda: ApiError(status, "injected")

        async def run(world: World = world) -> None:
            failed = False
            for _ in range(8):
                world.now_s += 15
                try:
                    await world.visit()
                except ApiError:
                    failed = True
                if restart and (failed or world.faults.calls >= world.faults.fail_at):
                    world.restart_operator()
                    failed, world.faults.fail_at = False, 10**9
                world.start_pods()

        asyncio.run(run())
        assert set(world.cluster.objects) == set(normal.cluster.objects), number
        assert world.cluster.record.incumbent.token_budget == 128, number
        assert world.cluster.record.candidate is None, number
        world.check_pods()


def test_the_incumbent_is_on_record_and_in_the_boot_files_before_a_candidate_is_pushed() -> None:
    world = settled("Observe", 2)
    assert world.cluster.record.incumbent.token_budget == 64
    world.cluster.objects[PROFILE_PATH]["spec"]["tuning"]["mode"] = "Auto"
    visit(world)
    assert world.cluster.record.trying
    assert world.cluster.record.incumbent.token_budget == 64
    assert PodKnobs.model_validate_json(world.cluster.data()["chat-engine-0.json"]).token_budget == 64
    assert {knobs.token_budget for _, knobs in world.pods.pushed} == {128}


@pytest.mark.parametrize("lost", ["operator", "tuner", "both"])
def test_losing_operator_or_tuner_in_mid_trial_ends_at_the_incumbent(lost: str) -> None:
    world = settled("Observe", 2)
    world.cluster.objects[PROFILE_PATH]["spec"]["tuning"]["mode"] = "Auto"
    visit(world)
    assert world.cluster.record.trying
    if lost in {"operator", "both"}:
        world.restart_operator()
    world.tuner.down = True
    visit(world)
    assert world.cluster.record.in_force.token_budget == 64
    world.check_pods()
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("Tuning")["reason"] == "TunerUnavailable"


def test_a_push_that_one_pod_refuses_is_taken_back_on_all() -> None:
    world = settled("Observe", 2)
    world.cluster.objects[PROFILE_PATH]["spec"]["tuning"]["mode"] = "Auto"
    world.pods.refusing = {"chat-engine-1"}
    visit(world)
    assert world.pods.knobs["chat-engine-0"].token_budget == 64
    assert world.cluster.record.in_force.token_budget == 64
    assert world.condition("Degraded")["reason"] == "KnobsRefused"
    (told,) = world.status["decisions"]
    assert (told["action"], told["message"]) == ("RollBack", "The incumbent is in force again: chat-engine-1: refused")
    world.pods.refusing = set()
    visit(world, 4)
    world.check_pods()


def test_what_the_operator_takes_back_counts_as_a_roll_back() -> None:
    def counted(action: str) -> float:
        labels = {"profile_namespace": NAMESPACE, "profile": NAME, "action": action}
        return metrics.REGISTRY.get_sample_value("leeway_operator_decisions_total", labels) or 0.0

    world = settled("Observe", 2)
    world.cluster.objects[PROFILE_PATH]["spec"]["tuning"]["mode"] = "Auto"
    world.pods.refusing = {"chat-engine-1"}
    before = {action: counted(action) for action in ("Try", "RollBack")}
    visit(world)
    assert {action: counted(action) - before[action] for action in before} == {"Try": 0, "RollBack": 1}


def test_a_pod_that_restarts_in_mid_trial_boots_with_the_incumbent() -> None:
    world = settled("Observe", 2)
    world.cluster.objects[PROFILE_PATH]["spec"]["tuning"]["mode"] = "Auto"
    visit(world)
    world.boot("chat-engine-0")
    assert world.pods.knobs["chat-engine-0"].token_budget == 64


@pytest.mark.parametrize("mode", ["Observe", "Auto"])
@pytest.mark.parametrize("ahead", [0, 1, 90])
def test_knobs_that_somebody_else_pushed_are_turned_back(mode: str, ahead: int) -> None:
    world = settled(mode)
    generation = world.cluster.record.in_force.generation + ahead
    others = world.pods.knobs["chat-engine-1"].model_copy(update={"generation": generation, "token_budget": 32})
    world.pods.knobs["chat-engine-1"] = others
    visit(world)
    world.check_pods()
    assert world.cluster.record.in_force.generation == generation + 1
    assert world.status["decisions"][0]["action"] == "RollBack"
    assert "pods had other knobs than those on record" in world.status["decisions"][0]["message"]


def test_an_edited_record_voids_the_trial_and_is_put_right() -> None:
    world = settled("Observe", 2)
    world.cluster.objects[PROFILE_PATH]["spec"]["tuning"]["mode"] = "Auto"
    visit(world)
    world.tuner.down = True
    edited = world.cluster.record.model_copy(update={"incumbent": world.cluster.record.incumbent})
    other = edited.incumbent.model_copy(update={"token_budget": 256})
    world.cluster.data()["record"] = edited.model_copy(update={"incumbent": other}).model_dump_json(by_alias=True)
    visit(world)
    assert world.cluster.record.in_force.token_budget == 64
    world.check_pods()


def test_a_deleted_record_comes_back_with_the_incumbent() -> None:
    world = settled()
    del world.cluster.objects[KNOBS_PATH]
    visit(world)
    assert world.cluster.record.incumbent.token_budget == 128
    world.check_pods()


def test_a_deleted_token_comes_back_as_it_was_for_the_pods_know_no_other() -> None:
    world = settled("Observe", 2)
    secret = world.cluster.objects.pop(TOKEN_PATH)
    world.memory.children_due = True
    visit(world)
    assert world.cluster.objects[TOKEN_PATH] == secret


def test_a_profile_made_anew_has_the_token_of_the_one_before_and_none_of_its_knobs() -> None:
    world = settled()
    assert world.cluster.record.incumbent.token_budget == 128
    secret = world.cluster.objects[TOKEN_PATH]["data"]
    body = world.cluster.objects[PROFILE_PATH]
    body["metadata"]["uid"], body["spec"]["tuning"]["mode"], body["status"] = "anew", "Observe", {}
    world.restart_operator()
    visit(world, 2)
    assert world.cluster.record.incumbent.token_budget == 64
    assert world.cluster.objects[TOKEN_PATH]["data"] == secret
    for path in (KNOBS_PATH, TOKEN_PATH):
        assert [owner["uid"] for owner in world.cluster.objects[path]["metadata"]["ownerReferences"]] == ["anew"]
    world.check_pods()


def test_a_pod_that_only_has_the_labels_is_left_alone_and_told_of() -> None:
    world = settled("Observe", 3)
    world.cluster.pods += [pod_body("debug", "engine"), pod_body("chat-engine-copy", "engine")]
    asyncio.run(world.visit())
    assert world.status["replicas"] == 2
    assert world.condition("Ready")["message"] == (
        "2 of 2 engine pods are ready, not counting pods that have only their labels: debug, chat-engine-copy"
    )


def test_a_stored_status_that_makes_no_sense_is_written_anew() -> None:
    world = settled("Observe", 3)
    before = world.status
    world.cluster.objects[PROFILE_PATH]["status"] = {**before, "conditions": [{"type": "Unheard"}], "replicas": "two"}
    world.restart_operator()
    visit(world)
    assert [item["reason"] for item in world.status["conditions"]] == [item["reason"] for item in before["conditions"]]
    assert world.status["replicas"] == 2


def visit_with_bug(world: World, times: int) -> None:
    for _ in range(times):
        with pytest.raises(RuntimeError, match="a bug"):
            asyncio.run(world.visit())


@pytest.mark.parametrize("place", ["tuner", "telemetry", "report"])
def test_visits_that_fail_for_a_bug_end_the_trial_and_are_told_of(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = settled("Observe", 2)
    world.cluster.objects[PROFILE_PATH]["spec"]["tuning"]["mode"] = "Auto"
    visit(world)
    assert world.cluster.record.trying

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as broken:
        owner = world.tuner if place == "tuner" else reconciler
        broken.setattr(owner, {"tuner": "decide", "telemetry": "snapshot_of", "report": "report"}[place], fail)
        visit_with_bug(world, 3)
        assert world.cluster.record.candidate is None
        assert world.cluster.record.in_force.token_budget == (128 if place == "report" else 64), "a promoted one stays"
        world.check_pods()
        assert world.condition("Degraded")["reason"] == "VisitFailed"
        assert world.status["summary"] == "VisitFailed: RuntimeError: a bug"
    visit(world, 3)
    assert world.condition("Degraded")["status"] == "False"
    assert world.cluster.record.incumbent.token_budget == 128
    world.check_pods()


def test_nothing_is_tried_while_visits_fail() -> None:
    world = settled("Observe", 2)
    world.cluster.objects[PROFILE_PATH]["spec"]["tuning"]["mode"] = "Auto"
    apply = world.cluster.apply

    async def refuse_status(path: str, content: dict[str, Any]) -> None:
        if path.endswith("/status"):
            raise ApiError(403, "status is forbidden")
        await apply(path, content)

    world.cluster.apply = refuse_status  # type: ignore[method-assign]  # a double
    world.tuner.budget = 96
    visit(world, 3)
    world.tuner.budget, pushed = 128, len(world.pods.pushed)
    visit(world, 3)
    assert len(world.pods.pushed) == pushed
    assert world.cluster.record.candidate is None
    world.cluster.apply = apply  # type: ignore[method-assign]  # a double
    visit(world, 4)
    assert world.cluster.record.incumbent.token_budget == 128


def test_a_failure_that_cannot_be_told_at_once_is_told_later() -> None:
    world = settled("Observe", 3)
    apply, served = world.cluster.apply, world.cluster.items

    async def refuse(path: str, *_: Any, **__: Any) -> Any:
        raise ApiError(500, "no leader")

    async def refuse_status(path: str, content: dict[str, Any]) -> None:
        await (refuse(path) if path.endswith("/status") else apply(path, content))

    world.cluster.items, world.cluster.apply = refuse, refuse_status  # type: ignore[method-assign]  # a double
    visit(world, 3)
    assert world.condition("Degraded")["status"] == "False"
    world.cluster.apply = apply  # type: ignore[method-assign]  # a double
    visit(world)
    assert world.condition("Degraded")["reason"] == "ApiError"
    world.cluster.items = served  # type: ignore[method-assign]  # a double
    visit(world)
    assert world.condition("Degraded")["status"] == "False"


def test_new_bounds_are_obeyed_in_any_mode() -> None:
    world = settled("Observe", 2)
    body = world.cluster.objects[PROFILE_PATH]
    body["spec"]["tuning"]["knobs"]["tokenBudget"] = {"min": 160, "max": 224}
    body["metadata"]["generation"] = 2
    visit(world)
    assert world.cluster.record.in_force.token_budget == 160
    world.check_pods()
    assert world.status["observedGeneration"] == 2


def bound(world: World, generation: int, **budget: int) -> None:
    """Change the bounds of the token budget."""
    body = world.cluster.objects[PROFILE_PATH]
    body["spec"]["tuning"]["knobs"]["tokenBudget"] = budget
    body["metadata"]["generation"] = generation
    visit(world)


def test_a_changed_start_is_in_force_at_once_while_nothing_better_is_found() -> None:
    world = settled("Observe", 2)
    bound(world, 2, min=32, start=96)
    assert world.cluster.record.in_force.token_budget == 96
    world.check_pods()
    bound(world, 3, min=128, start=128)
    assert world.cluster.record.in_force.token_budget == 128
    bound(world, 4, min=32)
    assert world.cluster.record.in_force.token_budget == 128, "wider bounds turn nothing"
    world.restart_operator()
    bound(world, 5, min=32, start=48)
    assert world.cluster.record.in_force.token_budget == 48
    world.check_pods()
    pushed = len(world.pods.pushed)
    visit(world, 3)
    assert len(world.pods.pushed) == pushed, "once"


def test_a_changed_start_leaves_what_tuning_has_found_in_force() -> None:
    world = settled()
    world.cluster.objects[PROFILE_PATH]["spec"]["tuning"]["mode"] = "Observe"
    bound(world, 2, min=32, start=96)
    assert world.cluster.record.in_force.token_budget == 128
    bound(world, 3, min=32, max=112, start=96)
    assert world.cluster.record.in_force.token_budget == 112, "the nearest inside"
    world.check_pods()


def schedule(world: World, generation: int, **sections: Any) -> None:
    """Change the policies of the profile."""
    body = world.cluster.objects[PROFILE_PATH]
    body["spec"]["scheduling"] = sections
    body["metadata"]["generation"] = generation


def test_policies_are_in_the_boot_files_from_the_first_visit_on() -> None:
    world = World("Observe")
    schedule(world, 1, ranking={"kind": "TokenCounters"})
    visit(world, 2)
    assert {knobs.policies.ranking.kind for knobs in world.pods.knobs.values()} == {"token_counters"}
    assert (world.cluster.record.incumbent.generation, world.pods.pushed) == (1, [])
    world.check_pods()


def test_changed_policies_are_pushed_live_as_a_new_generation_and_read_back() -> None:
    world = settled("Observe", 3)
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/chat-engine"
    pods, before = world.cluster.objects[path], world.cluster.record.in_force.generation
    schedule(world, 2, adaptiveChunk={"itlMs": 50}, tenancy={"tenantShares": {"paying": "3"}})
    visit(world)
    assert sorted(name for name, _ in world.pods.pushed) == ["chat-engine-0", "chat-engine-1"]
    for _, knobs in world.pods.pushed:
        assert knobs.generation == before + 1
        assert knobs.policies.adaptive_chunk == AdaptiveChunk(itl_s=0.05)
        assert knobs.policies.tenancy.tenant_shares == {"paying": 3.0}
    world.check_pods()
    assert world.status["knobs"]["enforced"] == world.status["knobs"]["desired"]
    assert world.status.get("decisions") is None
    assert world.cluster.objects[path] == pods
    visit(world)
    assert len(world.pods.pushed) == 2, "once"


def test_a_trial_keeps_the_policies_and_a_change_of_them_ends_it() -> None:
    world = settled("Observe", 2)
    schedule(world, 2, protection={})
    world.cluster.objects[PROFILE_PATH]["spec"]["tuning"]["mode"] = "Auto"
    visit(world)
    assert world.cluster.record.trying
    world.check_pods()
    tried = world.cluster.record.in_force.generation
    world.tuner.down = True
    schedule(world, 3, protection={"prefillPercent": 30})
    visit(world)
    assert world.cluster.record.candidate is None
    assert world.cluster.record.in_force.generation > tried
    assert world.cluster.record.in_force.token_budget == 64
    world.check_pods()


def test_a_promotion_keeps_the_policies() -> None:
    world = World("Auto")
    schedule(world, 1, slack={"unreachable": "Reject"})
    visit(world, 6)
    assert world.cluster.record.incumbent.token_budget == 128
    assert world.cluster.record.policies == Policies(slack=Slack(unreachable="reject"))
    world.check_pods()


def test_policies_that_somebody_else_pushed_are_turned_back() -> None:
    world = settled("Observe")
    others = {"generation": 99, "policies": Policies(protection=Protection())}
    world.pods.knobs["chat-engine-1"] = world.pods.knobs["chat-engine-1"].model_copy(update=others)
    visit(world)
    assert world.cluster.record.policies == Policies()
    world.check_pods()


def test_policies_are_not_taken_from_the_tuner() -> None:
    world = settled("Auto", 3)
    decide = world.tuner.decide

    async def meddle(snapshot: Snapshot) -> Decision:
        decision = await decide(snapshot)
        record = decision.record.model_copy(update={"policies": Policies(protection=Protection())})
        return decision.model_copy(update={"record": record})

    world.tuner.decide = meddle  # type: ignore[method-assign]  # a double
    visit(world)
    assert world.cluster.record.policies == Policies()
    assert "only the profile may" in world.condition("Tuning")["message"]


def test_readings_are_told_when_a_candidate_was_pushed(monkeypatch: pytest.MonkeyPatch) -> None:
    world, scopes = settled("Observe", 2), list[Scope]()

    def read(url: str, scope: Scope, *_: object) -> Telemetry:
        scopes.append(scope)
        return no_telemetry(scope.objectives)

    monkeypatch.setattr(reconciler, "read", read)
    spec = world.cluster.objects[PROFILE_PATH]["spec"]
    spec["telemetry"] = {"prometheus": {"url": "http://prometheus"}}
    spec["tuning"]["mode"] = "Auto"
    visit(world)
    pushed_s = world.cluster.record.started_at_s
    assert world.cluster.record.trying
    visit(world)
    assert [scope.pushed_s for scope in scopes] == [None, pushed_s]


def test_nothing_moves_for_a_profile_that_changed_meanwhile() -> None:
    world = settled("Observe", 2)
    world.cluster.objects[PROFILE_PATH]["spec"]["tuning"]["mode"] = "Auto"
    read = world.profile
    world.cluster.objects[PROFILE_PATH]["metadata"]["generation"] = 2
    asyncio.run(world.reconciler.visit(read, world.memory))
    assert not world.pods.pushed
    assert not world.cluster.record.trying


def test_knobs_outside_their_bounds_are_not_taken_from_the_tuner() -> None:
    world = settled("Auto", 4, knobs={"tokenBudget": {"min": 32, "max": 96, "start": 64}})
    assert world.cluster.record.in_force.token_budget == 64
    assert "outside their bounds" in world.condition("Tuning")["message"]


def test_nor_is_an_incumbent_that_pods_would_boot_with() -> None:
    world = settled("Observe", 2, knobs={"tokenBudget": {"min": 32, "max": 128, "start": 64}})
    world.cluster.objects[PROFILE_PATH]["spec"]["tuning"]["mode"] = "Auto"
    decide = world.tuner.decide

    async def meddle(snapshot: Snapshot) -> Decision:
        decision = await decide(snapshot)
        incumbent = decision.record.incumbent.model_copy(update={"token_budget": 256})
        return decision.model_copy(update={"record": decision.record.model_copy(update={"incumbent": incumbent})})

    world.tuner.decide = meddle  # type: ignore[method-assign]  # a double
    visit(world)
    assert world.cluster.record.incumbent.token_budget == 64
    assert "outside their bounds" in world.condition("Tuning")["message"]


def test_children_that_others_delete_come_back() -> None:
    world = settled()
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/chat-gateway"
    del world.cluster.objects[path]
    world.memory.children_due = True
    visit(world)
    assert path in world.cluster.objects


def test_a_right_that_the_operator_lacks_is_told_in_the_status_until_it_has_it() -> None:
    world = World("Observe")
    forbidden = ApiError(403, "secrets is forbidden")

    async def refuse(path: str) -> None:
        raise forbidden

    allowed, world.cluster.get = world.cluster.get, refuse  # type: ignore[method-assign]  # a double
    visit(world, 4)
    assert world.status["summary"] == "ApiError: secrets is forbidden"
    assert len(world.status["conditions"]) == 6
    assert world.condition("Degraded")["reason"] == "ApiError"
    world.cluster.get = allowed  # type: ignore[method-assign]  # a double
    visit(world, 3)
    assert world.condition("Degraded")["status"] == "False"


def test_an_idle_profile_costs_two_calls_a_visit() -> None:
    world = settled("Observe")
    before = world.faults.calls
    visit(world)
    assert world.faults.calls - before == 2


def test_more_replicas_have_their_boot_files_before_they_start() -> None:
    world = settled("Observe")
    body = world.cluster.objects[PROFILE_PATH]
    body["spec"]["replicas"] = 3
    body["metadata"]["generation"] = 2
    visit(world)
    assert "chat-engine-2.json" in world.cluster.data()
    assert world.condition("Ready")["message"] == "2 of 3 engine pods are ready"
    visit(world)
    assert world.condition("Ready")["message"] == "3 of 3 engine pods are ready"


CHUNKS_APART = {"prefillHeavyChunk": {"start": 128}, "decodeHeavyChunk": {"start": 64}}


def test_pods_that_change_their_role_with_the_replicas_are_no_interference() -> None:
    world = settled("Observe", 3, knobs=CHUNKS_APART)
    assert world.pods.knobs["chat-engine-1"].chunk_size == 64
    body = world.cluster.objects[PROFILE_PATH]
    body["spec"]["replicas"] = 3
    body["metadata"]["generation"] = 2
    visit(world, 2)
    assert [world.pods.knobs[f"chat-engine-{place}"].chunk_size for place in range(3)] == [128, 128, 64]
    world.check_pods()
    (decision,) = world.status["decisions"]
    assert decision["message"] == "The incumbent is in force again: with more or fewer pods, others of them are P-heavy"


def test_pods_with_the_chunks_of_the_other_role_alone_do_not_count_as_edited() -> None:
    record = settled("Observe", 2, knobs=CHUNKS_APART).cluster.record

    def disturbance(**edit: int) -> str | None:
        accepted = pod_settings(record.incumbent, record.policies, 1, 2).model_copy(update=edit)
        reply = KnobsReply(accepted=accepted, enforced=accepted, ceilings=CEILINGS)
        pod = PodObserved(Pod.read(pod_body("chat-engine-1", "engine")), 0, reply)
        return Observation(1, (pod,), ()).disturbance(record)

    assert disturbance() == "ReplicasChanging"
    assert disturbance(token_budget=128) == "KnobsEdited"
    assert disturbance(chunk_size=96) == "KnobsEdited"
