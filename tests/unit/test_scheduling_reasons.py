"""Why the scheduler says that it chose a request."""

import pytest
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_core.policies import (
    EffectivePriority,
    FirstCome,
    Policies,
    Protection,
    Ranking,
    ShortestPrompt,
    SkipJoin,
    TokenCounters,
)
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.scheduler import Scheduler

CEILINGS = Ceilings(token_budget=64, chunk_size=64, running_sequences=8)


def scheduler(policies: Policies, running: int = 1, chunk: int = 64) -> Scheduler:
    knobs = PodKnobs(generation=1, token_budget=64, chunk_size=chunk, running_sequences=running, policies=policies)
    return Scheduler(BlockPool(64, 4), knobs, CEILINGS)


def reasons(plan: Plan) -> dict[str, str]:
    return {request.request_id: reason for request, reason in plan.reasons.items()}


@pytest.mark.parametrize(
    ("ranking", "reason"),
    [
        (FirstCome(), "first_come: arrival 1"),
        (ShortestPrompt(ageing_tokens=8), "shortest_prompt: key 12"),
        (EffectivePriority(cost_points=0.5, age_points=0.1), "effective_priority: points -6.5"),
        (SkipJoin(first_quantum_tokens=8), "skip_join: level 1"),
        (TokenCounters(), "token_counters: served 0"),
    ],
)
def test_an_admission_names_the_ranking_and_what_it_ranked_by(ranking: Ranking, reason: str) -> None:
    engine = scheduler(Policies(ranking=ranking))
    engine.add("a", 12, 1, traced=True)
    assert reasons(engine.plan()) == {"a": reason}


def test_only_traced_requests_have_reasons() -> None:
    engine = scheduler(Policies(), running=2)
    engine.add("untraced", 12, 1)
    engine.add("traced", 12, 1, traced=True)
    assert set(reasons(engine.plan())) == {"traced"}


def test_what_is_overdue_or_boosted_says_so() -> None:
    protection = Protection(overdue_iterations=3, boost_iterations=2, prefill_percent=50)
    engine = scheduler(Policies(ranking=ShortestPrompt(ageing_tokens=0.001), protection=protection), chunk=8)
    engine.add("first", 4, 1)
    engine.add("long", 40, 1, traced=True)
    said: list[str] = []
    for number in range(9):
        engine.add(f"short {number}", 4, 1)
        plan = engine.plan()
        said += reasons(plan).values()
        engine.complete(plan)
    assert said[:3] == ["overdue after 3 iterations", "started", "boost after 2 iterations"]
