"""How much an iteration takes on: predicted time, chunks, prefills at a time, KV for growth; and how long it holds."""

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_core.policies import (
    AdaptiveChunk,
    FirstCome,
    Growth,
    Policies,
    PrefillCap,
    ShortestPrompt,
    SkipJoin,
    Tenancy,
    TokenCounters,
)
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.scheduler import Scheduler

CEILINGS = Ceilings(token_budget=4096, chunk_size=4096, running_sequences=256)


def scheduler(
    policies: Policies, blocks: int = 4096, budget: int = 512, chunk: int = 512, running: int = 64, block_size: int = 4
) -> Scheduler:
    knobs = PodKnobs(generation=1, token_budget=budget, chunk_size=chunk, running_sequences=running, policies=policies)
    return Scheduler(BlockPool(blocks, block_size), knobs, CEILINGS)


def iteration_s(plan: Plan) -> float:
    return 0.01 + 1e-4 * len(plan.decodes) + 1e-4 * plan.prefill_tokens


def teach(engine: Scheduler) -> None:
    """Let the predictor see prefills of all sizes, and decodes."""
    for number in range(60):
        engine.add(f"lesson {number}", 1 + number * 37 % 500, 3)
        plan = engine.plan()
        engine.observe(plan, iteration_s(plan))
        engine.complete(plan)
    while engine.running or engine.waiting:
        engine.complete(engine.plan())


def chunks(plan: Plan) -> list[int]:
    return [tokens for _, tokens in plan.prefills]


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        (Policies(), 512),
        (Policies(iteration_s=0.03), 200),
        (Policies(adaptive_chunk=AdaptiveChunk(itl_s=0.04)), 300),
        (Policies(adaptive_chunk=AdaptiveChunk(itl_s=0.04), iteration_s=0.02), 100),
    ],
)
def test_a_chunk_is_the_largest_whose_predicted_iteration_fits(policies: Policies, expected: int) -> None:
    engine = scheduler(policies)
    teach(engine)
    engine.add("long", 4000, 5)
    assert chunks(engine.plan()) == [pytest.approx(expected, rel=0.05)]


def test_decodes_take_from_the_predicted_time_and_the_floor_stays() -> None:
    engine = scheduler(Policies(adaptive_chunk=AdaptiveChunk(itl_s=0.013, floor_tokens=16)))
    teach(engine)
    for number in range(20):
        engine.add(str(number), 1, 100)
    for _ in range(20):
        engine.complete(engine.plan())
    engine.add("long", 4000, 5)
    engine.add("another", 4000, 5)
    plan = engine.plan()
    assert len(plan.decodes) == 20
    assert chunks(plan) == [16], "the first prefill has the floor, and a second one nothing"


def test_before_there_is_a_prediction_chunks_are_fixed() -> None:
    engine = scheduler(Policies(adaptive_chunk=AdaptiveChunk(itl_s=0.001)), chunk=100)
    engine.add("long", 4000, 5)
    assert chunks(engine.plan()) == [100]


def test_few_prefills_run_at_a_time_and_none_in_crumbs() -> None:
    engine = scheduler(Policies(prefill_cap=PrefillCap(prefills=2, chunk_tokens=64)), budget=256, chunk=100)
    for name in ("a", "b", "c"):
        engine.add(name, 300, 5)
    assert chunks(engine.plan()) == [100, 100]
    engine = scheduler(Policies(prefill_cap=PrefillCap(prefills=4, chunk_tokens=64)), budget=256, chunk=100)
    for name in ("a", "b", "c"):
        engine.add(name, 300, 5)
    plan = engine.plan()
    assert chunks(plan) == [100, 100], "56 tokens are left, fewer than are worth a chunk"
    engine.complete(plan)
    engine.cancel("c")
    engine.add("short", 30, 5)
    assert chunks(engine.plan()) == [100, 100, 30], "the end of a prompt is worth it"


def test_a_deferred_prefill_keeps_its_progress_and_without_others_there_is_always_one() -> None:
    engine = scheduler(Policies(prefill_cap=PrefillCap(prefills=2, chunk_tokens=32)), budget=100, chunk=50)
    first, second = engine.add("first", 210, 1), engine.add("second", 210, 1)
    engine.complete(engine.plan())
    engine.accept(engine.accepted.model_copy(update={"generation": 2, "chunk_size": 80}))
    engine.complete(engine.plan())
    assert (first.computed, second.computed) == (130, 50), "20 tokens are left, fewer than are worth a chunk"
    engine.complete(engine.plan())
    assert chunks(engine.plan()) == [80], "alone, any chunk is worth it"
    assert second.computed == 50


@given(
    requests=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=30),
    blocks=st.integers(15, 40),
    switch=st.booleans(),
)
@settings(max_examples=50)
def test_with_all_growth_reserved_nobody_is_preempted(
    requests: list[tuple[int, int]], blocks: int, switch: bool
) -> None:
    policies = Policies(growth=Growth(reserve="all"))
    if switch:
        policies = policies.model_copy(update={"ranking": TokenCounters()})
    engine = scheduler(policies, blocks=blocks)
    for number, (prompt, output) in enumerate(requests):
        engine.add(str(number), prompt, output)
    while engine.running or engine.waiting:
        plan = engine.plan()
        assert not plan.preempted
        promised = sum(engine.pool.blocks_for(r.prompt_tokens + r.max_tokens - 1) for r in engine.running.values())
        assert promised <= blocks
        engine.complete(plan)


def test_expected_growth_is_learned_from_outputs() -> None:
    engine = scheduler(Policies(growth=Growth(reserve="expected")), blocks=64, running=64)
    for number in range(10):
        engine.add(f"lesson {number}", 4, 9)
    while engine.running or engine.waiting:
        engine.complete(engine.plan())
    for number in range(64):
        engine.add(str(number), 4, 200)
    plan = engine.plan()
    # 4 + 8 tokens in KV are three blocks, though each might come to need fifty.
    assert len(plan.admitted) == 64 // 3


@given(
    requests=st.lists(st.tuples(st.integers(1, 100), st.integers(1, 20)), min_size=1, max_size=25),
    cap=st.builds(PrefillCap, prefills=st.integers(1, 5), chunk_tokens=st.integers(1, 20)),
    pod=st.tuples(st.integers(8, 64), st.integers(1, 40), st.integers(1, 8)),
)
@settings(max_examples=60)
def test_the_cap_on_active_prefills_is_kept_and_none_prefills_in_crumbs(
    requests: list[tuple[int, int]], cap: PrefillCap, pod: tuple[int, int, int]
) -> None:
    """Liu et al.: C_t = min(C_max, S_max - |D_t|, (T_max - N_t) / L_min); but for the first, none under L_min."""
    budget, chunk, running = pod
    engine = scheduler(Policies(prefill_cap=cap), budget=budget, chunk=chunk, running=running)
    pending = list(enumerate(requests))
    while pending or engine.running or engine.waiting:
        for number, (prompt, output) in pending[:2]:
            engine.add(str(number), prompt, output)
        del pending[:2]
        plan = engine.plan()
        decodes = len(plan.decodes)
        most = min(cap.prefills, running - decodes, (budget - decodes) // cap.chunk_tokens)
        assert len(plan.prefills) <= max(1, most)
        for request, tokens in plan.prefills[1:]:
            assert tokens >= min(request.pending, cap.chunk_tokens)
        engine.complete(plan)


@given(
    requests=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=12),
    ranking=st.sampled_from((None, ShortestPrompt(), SkipJoin(first_quantum_tokens=4), TokenCounters())),
    blocks=st.integers(30, 60),
    chunk=st.integers(1, 40),
    cap=st.none() | st.just(PrefillCap(prefills=2, chunk_tokens=8)),
    residency=st.sampled_from((0.0, 0.5)),
)
@settings(max_examples=60)
def test_a_plan_that_holds_for_some_iterations_is_what_they_would_have_been(
    requests: list[tuple[int, int]],
    ranking: ShortestPrompt | SkipJoin | TokenCounters | None,
    blocks: int,
    chunk: int,
    cap: PrefillCap | None,
    residency: float,
) -> None:
    policies = Policies(ranking=ranking or FirstCome(), prefill_cap=cap, tenancy=Tenancy(residency_weight=residency))
    jumping, stepping = (scheduler(policies, blocks=blocks, chunk=chunk, budget=40, running=5) for _ in range(2))
    for engine in (jumping, stepping):
        for number, (prompt, output) in enumerate(requests):
            engine.add(str(number), prompt, output, tenant=str(number % 2))
    while jumping.running or jumping.waiting:
        plan = jumping.plan()
        holds = plan.holds
        work = outline(plan)
        jumping.complete(plan, iterations=holds)
        for _ in range(holds):
            step = stepping.plan()
            assert outline(step) == work
            stepping.complete(step)
        assert counts(jumping) == counts(stepping)


def outline(plan: Plan) -> tuple[list[str], list[tuple[str, int]]]:
    return [r.request_id for r in plan.decodes], [(r.request_id, tokens) for r, tokens in plan.prefills]


def counts(engine: Scheduler) -> tuple[object, ...]:
    here = [*engine.running.values(), *engine.waiting.values()]
    requests = [(r.request_id, r.state, r.generated, r.computed, len(r.blocks)) for r in here]
    counters = {name: account.counter for name, account in engine.tenants.accounts.items()}
    return requests, counters, engine.iterations, engine.pool.free


def test_long_decodes_are_one_jump_to_the_next_block() -> None:
    engine = scheduler(Policies(), block_size=16)
    for number in range(3):
        engine.add(str(number), 8, 100)
    engine.complete(engine.plan())
    jumps = []
    for _ in count():
        plan = engine.plan()
        jumps.append(plan.holds)
        engine.complete(plan, iterations=plan.holds)
        if not engine.running:
            break
    assert sum(jumps) == 99
    assert jumps[:3] == [8, 16, 16]
