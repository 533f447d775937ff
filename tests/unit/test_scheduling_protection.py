"""No arrival pattern starves prefills, decodes or the queue, and the bound on waiting follows from the settings."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_core.policies import (
    AdaptiveChunk,
    EffectivePriority,
    FirstCome,
    Growth,
    Policies,
    PrefillCap,
    Protection,
    ShortestPrompt,
    SkipJoin,
    Slack,
    TokenCounters,
    Victim,
)
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.load import Load
from leeway_engine.scheduling.protection import decode_slots, longest_pause, longest_run, longest_wait, prefill_share
from leeway_engine.scheduling.request import State
from leeway_engine.scheduling.scheduler import Scheduler
from waits import Waits

BLOCKS, BLOCK_SIZE, LONGEST, QUEUE = 8, 4, 16, 4
CEILINGS = Ceilings(token_budget=64, chunk_size=64, running_sequences=16)
RANKINGS = (
    FirstCome(),
    ShortestPrompt(ageing_tokens=0.001),
    EffectivePriority(class_points={"gold": 1e9}, age_points=0.001),
    SkipJoin(first_quantum_tokens=2, promotion_iterations=100_000),
    TokenCounters(),
)


def knobs(policies: Policies, budget: int = 8, chunk: int = 8, running: int = 3) -> PodKnobs:
    return PodKnobs(generation=1, token_budget=budget, chunk_size=chunk, running_sequences=running, policies=policies)


@given(percent=st.integers(1, 90), cap=st.none() | st.integers(1, 100), budget=st.integers(2, 5000))
def test_prefills_and_decodes_both_have_a_part_of_every_budget(percent: int, cap: int | None, budget: int) -> None:
    protection = Protection(prefill_percent=percent, decode_cap=cap)
    share, slots = prefill_share(protection, budget), decode_slots(protection, budget)
    assert share >= 1
    assert share * 100 >= percent * budget or share == budget - 1
    assert slots >= 1
    assert slots + share <= budget


def decoding(engine: Scheduler, requests: int) -> None:
    """Fill the pod with decodes."""
    for number in range(requests):
        engine.add(f"decode {number}", 1, 400)
    while not all(r.state is State.DECODING for r in engine.running.values()) or len(engine.running) < requests:
        engine.complete(engine.plan())


@pytest.mark.parametrize("protection", [Protection(prefill_percent=25), Protection(prefill_percent=1, decode_cap=6)])
def test_decodes_that_fill_the_budget_leave_prefills_their_share_and_take_turns(protection: Protection) -> None:
    engine = Scheduler(BlockPool(2000, 16), knobs(Policies(protection=protection), running=9, budget=9), CEILINGS)
    decoding(engine, 8)
    prefill = engine.add("prefill", 50, 1)
    waits = dict.fromkeys(engine.running.values(), 0)
    slots, share = decode_slots(protection, 9), prefill_share(protection, 9)
    while prefill.state is not State.FINISHED:
        before = prefill.computed
        plan = engine.plan()
        engine.complete(plan)
        assert len(plan.decodes) == slots
        assert prefill.computed - before >= share or prefill.finish_reason
        waits = {request: 0 if request in plan.decodes else waits[request] + 1 for request in waits}
        assert max(waits.values()) < -(-8 // slots)
    assert len(engine.plan().decodes) == 8, "without prefills all decodes run"


def test_without_protection_decodes_can_starve_a_prefill() -> None:
    engine = Scheduler(BlockPool(2000, 16), knobs(Policies(), running=8, budget=8), CEILINGS)
    decoding(engine, 7)
    late = engine.add("late", 50, 1)
    for _ in range(40):
        engine.complete(engine.plan())
    assert late.computed == 40, "one token an iteration is left"


def test_a_started_prefill_goes_before_later_ones_once_it_is_boosted() -> None:
    policies = Policies(protection=Protection(boost_iterations=4), ranking=ShortestPrompt(ageing_tokens=0.001))
    engine = Scheduler(BlockPool(2000, 4), knobs(policies, budget=8, chunk=5, running=8), CEILINGS)
    earlier = engine.add("earlier", 40, 1)
    # The shorter one is admitted first and, so long as nobody is boosted, is first in each iteration.
    later = engine.add("later", 38, 1)
    for _ in range(4):
        engine.complete(engine.plan())
    assert (later.computed, earlier.computed) == (20, 12)
    engine.complete(engine.plan())
    assert (later.computed, earlier.computed) == (23, 17)


Arrivals = list[tuple[int, int, str]]


def cost_s(load: Load) -> float:
    """Duration of an iteration."""
    return 0.001 + 0.0005 * (load.decodes + load.prefill_tokens) + 0.00001 * load.context_tokens


def seen(
    settings_of_pod: PodKnobs,
    arrivals: Callable[[int], Arrivals],
    iterations: int,
    note: Callable[[Scheduler], None] = lambda engine: None,
) -> Waits:
    """Run a pod with at most QUEUE waiting and return the longest waits and pauses, in iterations, of any request.

    Those of class gold are due soon. `note` looks at each iteration between plan and end.
    """
    engine = Scheduler(BlockPool(BLOCKS, BLOCK_SIZE), settings_of_pod, CEILINGS)
    waits = Waits(engine)
    number, now_s = 0, 0.0
    for iteration in range(iterations):
        for prompt, output, kind in arrivals(iteration):
            if len(engine.waiting) < QUEUE:
                number += 1
                due_s = now_s + 0.1 if kind == "gold" else None
                engine.add(str(number), prompt, output, tenant=f"{kind}{number}", slo_class=kind, deadline_s=due_s)
        plan = engine.plan(now_s)
        note(engine)
        engine.complete(plan)
        waits.note(plan)
        engine.observe(plan, cost_s(plan.load))
        now_s += cost_s(plan.load)
    waits.end()
    return waits


ARRIVAL = st.tuples(st.integers(1, 8), st.integers(1, 8), st.sampled_from(("", "gold")))


@st.composite
def protected(draw: st.DrawFn) -> Policies:
    """Any policies with protection."""
    adaptive_chunk = None
    if draw(st.booleans()):
        itl_s, floor_tokens = draw(st.sampled_from((1e-6, 0.003, 0.005))), draw(st.integers(1, 6))
        adaptive_chunk = AdaptiveChunk(itl_s=itl_s, floor_tokens=floor_tokens)
    return Policies(
        ranking=draw(st.sampled_from(RANKINGS)),
        protection=Protection(
            prefill_percent=draw(st.integers(1, 90)),
            decode_cap=draw(st.none() | st.integers(1, 4)),
            boost_iterations=draw(st.integers(1, 10)),
            overdue_iterations=draw(st.integers(1, 40)),
        ),
        growth=Growth(reserve=draw(st.sampled_from(("none", "expected", "all")))),
        victim=draw(st.none() | st.just(Victim())),
        prefill_cap=draw(st.none() | st.just(PrefillCap(prefills=1, chunk_tokens=4))),
        adaptive_chunk=adaptive_chunk,
        iteration_s=draw(st.none() | st.sampled_from((1e-6, 0.002, 0.004))),
        slack=draw(st.none() | st.just(Slack(pressing_s=0.02))),
    )


POD = st.tuples(st.integers(4, 10), st.integers(1, 8), st.integers(1, 4))
PATTERN = st.lists(st.lists(ARRIVAL, max_size=3), min_size=1, max_size=8)


@given(policies=protected(), pod=POD, pattern=PATTERN)
@settings(max_examples=60)
def test_no_request_waits_or_pauses_longer_than_the_settings_say_whatever_arrives(
    policies: Policies, pod: tuple[int, int, int], pattern: list[Arrivals]
) -> None:
    settings_of_pod = knobs(policies, *pod)
    bound = longest_wait(settings_of_pod, QUEUE, LONGEST)
    waits = seen(settings_of_pod, lambda i: pattern[i % len(pattern)], min(bound + 50, 400))
    assert waits.longest_wait <= bound
    assert waits.longest_pause <= longest_pause(settings_of_pod, QUEUE, LONGEST)


@given(policies=protected(), pod=POD, pattern=PATTERN)
@settings(max_examples=60)
def test_the_earliest_that_runs_ends_in_the_time_that_the_bounds_are_made_of(
    policies: Policies, pod: tuple[int, int, int], pattern: list[Arrivals]
) -> None:
    settings_of_pod = knobs(policies, *pod)
    most = longest_run(settings_of_pod, LONGEST)
    earliest, since = None, 0

    def note(engine: Scheduler) -> None:
        nonlocal earliest, since
        before, earliest = earliest, min(engine.running.values(), key=lambda request: request.order, default=None)
        if earliest is None or earliest is not before:
            since = engine.iterations - 1
        assert engine.iterations - since <= most

    seen(settings_of_pod, lambda i: pattern[i % len(pattern)], 200, note)


@pytest.mark.parametrize("ranking", RANKINGS[1:], ids=lambda ranking: ranking.kind)
def test_overdue_requests_go_first_where_the_ranking_alone_would_starve_them(
    ranking: ShortestPrompt | EffectivePriority | SkipJoin | TokenCounters,
) -> None:
    def flow(iteration: int) -> Arrivals:
        # One long request, then always more short ones of a better class than can be served.
        return [(8, 8, "")] * (iteration == 1) + [(1, 2, "gold")] * 3

    unprotected = knobs(Policies(ranking=ranking), running=1)
    if not isinstance(ranking, TokenCounters):
        # Each of the short ones is a new tenant's; token counters serve the long one after those before it.
        assert seen(unprotected, flow, 600).longest_wait > 500
    policies = Policies(ranking=ranking, protection=Protection(overdue_iterations=20))
    assert seen(knobs(policies, running=1), flow, 600).longest_wait < 60


def test_without_protection_there_is_no_bound() -> None:
    with pytest.raises(ValueError, match=r"set policies\.protection"):
        longest_wait(knobs(Policies()), QUEUE, LONGEST)
    with pytest.raises(ValueError, match=r"set policies\.protection"):
        longest_pause(knobs(Policies()), QUEUE, LONGEST)
