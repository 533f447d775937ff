"""What a plan holds: decodes, then started prefills, then admissions, within every limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.request import RequestRejected, State
from leeway_engine.scheduling.scheduler import Scheduler

CEILINGS = Ceilings(token_budget=64, chunk_size=64, running_sequences=8)


def knobs(generation: int = 1, budget: int = 16, chunk: int = 8, running: int = 8) -> PodKnobs:
    return PodKnobs(generation=generation, token_budget=budget, chunk_size=chunk, running_sequences=running)


def scheduler(blocks: int = 64, block_size: int = 4, **settings: int) -> Scheduler:
    return Scheduler(BlockPool(blocks, block_size), knobs(**settings), CEILINGS)


def step(engine: Scheduler, times: int = 1) -> Plan:
    for _ in range(times):
        plan = engine.plan()
        engine.complete(plan)
    return plan


def outline(plan: Plan) -> tuple[list[str], list[tuple[str, int]]]:
    return [r.request_id for r in plan.decodes], [(r.request_id, tokens) for r, tokens in plan.prefills]


def test_decodes_come_first_then_started_prefills_then_admissions() -> None:
    engine = scheduler(budget=12)
    engine.add("a", 2, 9)
    engine.add("b", 20, 9)
    assert outline(step(engine)) == ([], [("a", 2), ("b", 8)])
    engine.add("c", 5, 9)
    assert outline(step(engine)) == (["a"], [("b", 8), ("c", 3)])
    assert outline(step(engine)) == (["a"], [("b", 4), ("c", 2)])
    assert outline(step(engine)) == (["a", "b", "c"], [])


def test_a_prompt_that_ends_with_a_chunk_or_a_block_gives_its_token_with_that_chunk() -> None:
    engine = scheduler(chunk=4, block_size=4)
    request = engine.add("a", 8, 3)
    step(engine, 2)
    assert (request.state, request.generated, request.computed) == (State.DECODING, 1, 8)
    plan = step(engine)
    assert plan.grown == [request]
    assert len(request.blocks) == 3


def test_what_never_fits_is_refused_at_once_and_the_queue_goes_on() -> None:
    engine = scheduler(blocks=2, block_size=4)
    engine.add("first", 5, 4)
    with pytest.raises(RequestRejected, match="need more than the 8 tokens") as rejection:
        engine.add("big", 5, 5)
    assert rejection.value.code == "kv_exceeded"
    with pytest.raises(RequestRejected) as rejection:
        engine.add("first", 1, 1)
    assert rejection.value.code == "duplicate_id"
    step(engine, 4)
    assert not engine.running
    assert engine.pool.free == 2


def test_the_latest_arrival_is_preempted_and_computed_again_from_its_first_token() -> None:
    engine = scheduler(blocks=6, block_size=2)
    first, second = engine.add("first", 3, 8), engine.add("second", 3, 8)
    assert [step(engine).preempted for _ in range(5)] == [[], [], [], [], [second]]
    assert (second.state, second.computed, second.generated, second.blocks) == (State.PREEMPTED, 0, 4, [])
    step(engine, 3)
    assert first.state is State.FINISHED
    assert outline(step(engine)) == ([], [("second", 7)])
    step(engine, 3)
    assert (second.state, second.generated) == (State.FINISHED, 8)


@given(outputs=st.lists(st.integers(2, 30), min_size=2, max_size=8), budget=st.integers(1, 7))
def test_decodes_take_turns_while_a_lowered_budget_drains(outputs: list[int], budget: int) -> None:
    engine = scheduler(budget=16)
    for number, output in enumerate(outputs):
        engine.add(f"r{number}", 1, output)
    step(engine)
    assert engine.accept(knobs(generation=2, budget=budget, running=1)).refusal is None
    longest_wait = -(-len(outputs) // budget)
    waits = dict.fromkeys(engine.running.values(), 0)
    while engine.running:
        fed = engine.plan()
        engine.complete(fed)
        waits = {request: 0 if request in fed.decodes else waits[request] + 1 for request in engine.running.values()}
        assert all(wait < longest_wait for wait in waits.values())


def test_a_turn_that_is_lost_with_its_blocks_goes_to_another() -> None:
    engine = scheduler(blocks=3, block_size=4)
    first, second = engine.add("first", 3, 8), engine.add("second", 3, 8)
    step(engine, 2)
    engine.accept(knobs(generation=2, budget=1, running=1))
    assert step(engine).decodes == [first]
    plan = step(engine)
    assert (plan.preempted, plan.decodes) == ([second], [first])


def test_a_lowered_cap_cuts_nothing_off_and_admits_nothing_until_drained() -> None:
    engine = scheduler(running=3)
    for name in ("a", "b", "c", "d"):
        engine.add(name, 1, 5)
    step(engine)
    engine.accept(knobs(generation=2, running=1))
    step(engine, 3)
    assert list(engine.running) == ["a", "b", "c"]
    step(engine)
    assert outline(step(engine)) == ([], [("d", 1)])


def test_knobs_rule_the_next_plan_and_not_the_one_that_runs() -> None:
    engine = scheduler(budget=16)
    engine.add("a", 40, 1)
    plan = engine.plan()
    reply = engine.accept(knobs(generation=7, budget=10, chunk=5))
    assert (reply.accepted.generation, reply.enforced.generation) == (7, 1)
    engine.complete(plan)
    assert engine.plan().tokens == 5
    assert engine.knobs().enforced.generation == 7


@pytest.mark.parametrize(
    ("pushed", "why"),
    [
        (knobs(generation=1), "generation 1 is not above the accepted one, 1"),
        (knobs(generation=2, budget=65), "token_budget 65 is over this pod's ceiling 64"),
        (knobs(generation=2, chunk=65), "chunk_size 65 is over this pod's ceiling 64"),
        (knobs(generation=2, running=9), "running_sequences 9 is over this pod's ceiling 8"),
        (knobs(generation=2, budget=4, running=5), "token_budget 4 is under running_sequences 5"),
    ],
)
def test_refused_knobs_change_nothing_and_say_why(pushed: PodKnobs, why: str) -> None:
    engine = scheduler()
    before = engine.knobs()
    reply = engine.accept(pushed)
    assert why in (reply.refusal or "")
    assert engine.knobs() == before


def test_an_idle_pod_enforces_new_knobs_at_once() -> None:
    engine = scheduler()
    assert engine.accept(knobs(generation=2)).enforced.generation == 2


def test_cancels_free_blocks_in_the_queue_in_prefill_in_decode_and_with_an_iteration_under_way() -> None:
    engine = scheduler(budget=10)
    for name, prompt in (("decode", 2), ("prefill", 30), ("waiting", 5)):
        engine.add(name, prompt, 9)
    step(engine)
    plan = engine.plan()
    for name in ("decode", "prefill", "waiting"):
        assert engine.cancel(name) is not None
    assert (engine.pool.free, engine.running, dict(engine.waiting)) == (64, {}, {})
    engine.complete(plan)
    assert engine.pool.free == 64
    assert engine.cancel("decode") is None
