"""What becomes of deadlines: boosted while reachable, best effort when doubtful, given up when out of reach."""

import pytest
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_core.policies import EffectivePriority, Policies, Slack
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.outlook import Outlook, Reach
from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.request import FinishReason, Request, State
from leeway_engine.scheduling.scheduler import Scheduler

ITERATION_S = 0.1


def scheduler(policies: Policies) -> Scheduler:
    """A pod whose every iteration takes 0.1 s, as its predictor knows, and that runs one request at a time."""
    knobs = PodKnobs(generation=1, token_budget=100, chunk_size=10, running_sequences=1, policies=policies)
    engine = Scheduler(BlockPool(1000, 16), knobs, Ceilings(token_budget=100, chunk_size=10, running_sequences=1))
    for number in range(12):
        engine.add(str(number), 10, 3)
    while engine.running or engine.waiting:
        run_one(engine)
    return engine


def run_one(engine: Scheduler, now_s: float = 0.0) -> Plan:
    plan = engine.plan(now_s)
    engine.observe(plan, ITERATION_S)
    engine.complete(plan)
    return plan


@pytest.mark.parametrize(
    ("left_s", "reach"),
    [(1.5, Reach.REACHABLE), (1.15, Reach.DOUBTFUL), (0.9, Reach.DOUBTFUL), (0.6, Reach.UNREACHABLE)],
)
def test_a_deadline_is_judged_by_the_predicted_time_and_its_doubt(left_s: float, reach: Reach) -> None:
    # Eight chunks and the two decodes that follow the first token: 1.0 s, 25 % more or less.
    outlook: Outlook = scheduler(Policies(slack=Slack(doubt_percent=25)))._outlook
    request = Request("a", 80, 3, order=1, deadline_s=100 + left_s)
    assert outlook.remaining_s(request) == pytest.approx(1.0, rel=0.1)
    assert outlook.reach(request, 100.0) is reach


def test_while_nothing_can_be_predicted_a_deadline_is_reachable_until_it_has_passed() -> None:
    policies = Policies(slack=Slack(unreachable="reject"))
    knobs = PodKnobs(generation=1, token_budget=100, chunk_size=10, running_sequences=1, policies=policies)
    engine = Scheduler(BlockPool(100, 16), knobs, Ceilings(token_budget=100, chunk_size=10, running_sequences=1))
    engine.add("runs", 10, 50)
    run_one(engine)
    late = engine.add("late", 10, 3, deadline_s=1.0)
    assert run_one(engine, 0.9).rejected == []
    assert run_one(engine, 1.1).rejected == [late]


def test_a_class_says_what_becomes_of_requests_that_are_too_late() -> None:
    slack = Slack(unreachable="serve", by_class={"strict": "reject", "soft": "downgrade"})
    ranking = EffectivePriority(class_points={"strict": 10.0, "soft": 10.0})
    engine = scheduler(Policies(slack=slack, ranking=ranking))
    engine.add("runs", 10, 100, arrival_s=10.0)
    run_one(engine, 10.0)
    strict, soft, other = (
        engine.add(name, 80, 3, arrival_s=10.0, slo_class=name, deadline_s=10.5) for name in ("strict", "soft", "other")
    )
    assert run_one(engine, 10.1).rejected == [strict]
    assert (strict.state, strict.finish_reason) == (State.FINISHED, FinishReason.REJECTED)
    assert (soft.state, soft.downgraded) == (State.WAITING, True)
    assert (other.state, other.downgraded) == (State.WAITING, False)


def test_a_request_is_rejected_as_soon_as_its_deadline_is_out_of_reach_and_not_before() -> None:
    engine = scheduler(Policies(slack=Slack(unreachable="reject", doubt_percent=0)))
    engine.add("runs", 10, 100, arrival_s=10.0)
    run_one(engine, 10.0)
    waits = engine.add("waits", 80, 3, arrival_s=10.0, deadline_s=13.0)
    now_s = 10.0
    while not run_one(engine, now_s).rejected:
        now_s += ITERATION_S
    assert waits.finish_reason is FinishReason.REJECTED
    assert now_s == pytest.approx(12.0, abs=1.5 * ITERATION_S)


def test_what_has_begun_is_never_given_up() -> None:
    engine = scheduler(Policies(slack=Slack(unreachable="reject")))
    begun = engine.add("begun", 80, 30, arrival_s=10.0, deadline_s=14.8)
    assert run_one(engine, 10.0).admitted == [begun]
    while engine.running:
        assert not run_one(engine, 20.0).rejected
    assert begun.finish_reason is FinishReason.LENGTH


def test_a_doubtful_deadline_gives_no_urgency_and_a_reachable_one_does() -> None:
    engine = scheduler(Policies(ranking=EffectivePriority(urgency_horizon_s=2.0), slack=Slack(unreachable="serve")))
    engine.add("plain", 80, 3, arrival_s=10.0)
    engine.add("doubtful", 80, 3, arrival_s=10.0, deadline_s=11.0)
    reachable = engine.add("reachable", 80, 3, arrival_s=10.0, deadline_s=11.4)
    assert run_one(engine, 10.0).admitted == [reachable]
    engine.cancel("reachable")
    assert [r.request_id for r in run_one(engine, 10.0).admitted] == ["plain"]


def test_a_downgraded_request_ranks_as_if_it_had_no_class() -> None:
    ranking = EffectivePriority(class_points={"gold": 50.0})
    engine = scheduler(Policies(ranking=ranking, slack=Slack(unreachable="downgrade")))
    engine.add("runs", 10, 100, arrival_s=10.0)
    run_one(engine, 10.0)
    plain = engine.add("plain", 10, 3, arrival_s=10.0)
    engine.add("gold, too late", 80, 3, arrival_s=10.0, slo_class="gold", deadline_s=10.1)
    gold = engine.add("gold", 10, 3, arrival_s=10.0, slo_class="gold")
    run_one(engine, 10.1)
    engine.cancel("runs")
    order = []
    while engine.waiting:
        order += run_one(engine, 10.2).admitted
    assert order[:2] == [gold, plain]
