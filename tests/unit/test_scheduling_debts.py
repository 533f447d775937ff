"""What tenants are owed, and under how many names that is told; and what is known of cancelled requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_core.policies import Policies, TokenCounters
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.debts import OTHERS, Debts
from leeway_engine.scheduling.scheduler import Scheduler

CEILINGS = Ceilings(token_budget=64, chunk_size=64, running_sequences=8)


def scheduler(running: int = 1, chunk: int = 64, blocks: int = 64, swap_blocks: int = 0) -> Scheduler:
    policies = Policies(ranking=TokenCounters())
    knobs = PodKnobs(generation=1, token_budget=64, chunk_size=chunk, running_sequences=running, policies=policies)
    return Scheduler(BlockPool(blocks, 4), knobs, CEILINGS, swap_blocks)


def step(engine: Scheduler, times: int = 1) -> None:
    for _ in range(times):
        engine.complete(engine.plan())


def test_a_tenant_is_owed_what_the_most_served_one_that_waits_had_more() -> None:
    engine = scheduler()
    for name, prompt in (("a1", 20), ("a2", 20), ("b1", 5), ("b2", 5)):
        engine.add(name, prompt, 1, tenant=name[0])
    assert engine.tenants.debts() == {"a": 0.0, "b": 0.0}
    step(engine)
    debts = engine.tenants.debts()
    assert debts["a"] == 0.0
    assert debts["b"] == engine.tenants.account("a").counter > 0
    step(engine, 3)
    assert engine.tenants.debts() == {}


def test_only_so_many_tenants_have_a_name_of_their_own_and_the_first_keep_theirs() -> None:
    debts = Debts()
    first = {f"t{number}": float(number) for number in range(32)}
    assert debts.read(first, 0.0) == first
    named = debts.read({**first, "late": 7.0, "later": 9.0}, 1.0)
    assert named == {**first, OTHERS: 9.0}
    assert debts.read({"late": 7.0}, 500.0) == {OTHERS: 7.0}
    assert debts.read({"late": 7.0}, 601.0) == {"late": 7.0}


def test_a_tenant_with_the_name_of_the_others_or_a_long_one_is_among_them() -> None:
    assert Debts().read({OTHERS: 3.0, "x" * 65: 4.0, "": 1.0}, 0.0) == {OTHERS: 4.0, "": 1.0}


def test_a_reading_is_due_once_a_second() -> None:
    debts = Debts()
    assert debts.due(5.0)
    debts.read({}, 5.0)
    assert not debts.due(5.9)
    assert debts.due(6.0)


@given(st.lists(st.dictionaries(st.text(max_size=3), st.floats(0, 1e6)), max_size=30), st.floats(0, 1000))
def test_names_are_few_and_no_debt_is_understated(readings: list[dict[str, float]], pause_s: float) -> None:
    debts = Debts()
    for number, reading in enumerate(readings):
        named = debts.read(reading, number * pause_s)
        assert len(named) <= 33
        for tenant, debt in reading.items():
            assert named.get(tenant, -1.0) == debt or named[OTHERS] >= debt
        assert max(named.values(), default=0.0) == max(reading.values(), default=0.0)


def test_cancels_are_counted_by_where_the_request_was_with_what_was_computed_for_it() -> None:
    engine = scheduler(running=2, chunk=8)
    engine.add("decodes", 4, 10)
    engine.add("prefills", 20, 10)
    engine.add("waits", 30, 10)
    step(engine)
    for name in ("decodes", "prefills", "waits", "unknown"):
        engine.cancel(name)
    assert engine.cancels == {"decoding": 1, "prefilling": 1, "waiting": 1}
    assert engine.cancelled_tokens == (4 + 1) + 8


@pytest.mark.parametrize(("swap_blocks", "phase"), [(0, "preempted"), (16, "swapped")])
def test_a_preempted_request_is_told_from_a_swapped_one(swap_blocks: int, phase: str) -> None:
    engine = scheduler(running=2, blocks=6, swap_blocks=swap_blocks)
    engine.add("first", 7, 10)
    engine.add("second", 7, 10)
    plan = engine.plan()
    while not plan.preempted:
        engine.complete(plan)
        plan = engine.plan()
    engine.complete(plan)
    assert [request.request_id for request in plan.swapped_out] == ["second"] * (phase == "swapped")
    assert engine.waiting["second"].phase == phase
    engine.cancel("second")
    assert engine.cancels == {phase: 1}


def test_a_request_that_comes_back_from_the_host_is_named() -> None:
    engine = scheduler(running=2, blocks=6, swap_blocks=16)
    for name in ("first", "second"):
        engine.add(name, 7, 10)
    swapped_in: list[str] = []
    while engine.running or engine.waiting:
        plan = engine.plan()
        swapped_in += [request.request_id for request in plan.swapped_in]
        engine.complete(plan)
    assert "second" in swapped_in


def test_an_output_that_is_complete_is_no_cancel() -> None:
    engine = scheduler()
    engine.add("a", 4, 10)
    step(engine, 3)
    request = engine.stop("a")
    assert request is not None
    assert request.finish_reason == "stop"
    assert (engine.cancels, engine.pool.free) == ({}, 64)
