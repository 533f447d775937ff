"""Which request loses its KV, and how it comes back."""

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_core.policies import Policies, Slack, Tenancy, Victim
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.kv_memory import KvMemory
from leeway_engine.scheduling.lengths import OutputLengths
from leeway_engine.scheduling.load import Load
from leeway_engine.scheduling.outlook import Outlook
from leeway_engine.scheduling.predictor import Predictor
from leeway_engine.scheduling.preemption import Remedy, VictimChoice
from leeway_engine.scheduling.request import FinishReason, Request, State
from leeway_engine.scheduling.scheduler import Scheduler
from leeway_engine.scheduling.swap_cost import SwapCost
from leeway_engine.scheduling.tenants import Tenants

CHUNK = 100
LAST = {"generated": 99, "computed": 198}
"""A request that lacks one token, so 0.1 s; to compute all again takes 0.2 s."""


def choice(swap_blocks: int = 0, move_s: float = 0.0, unreachable: str = "reject") -> tuple[VictimChoice, Tenants]:
    """A choice in a pod in which every iteration takes 0.1 s, and so many host blocks are free."""
    predictor = Predictor()
    for tokens in range(40):
        predictor.observe(Load(4, 100).with_chunk(1 + tokens, 0), 0.1)
    slack = Slack.model_validate({"unreachable": unreachable, "doubt_percent": 0})
    policies = Policies(slack=slack)
    knobs = PodKnobs(generation=1, token_budget=CHUNK, chunk_size=CHUNK, running_sequences=8, policies=policies)
    tenants = Tenants(Tenancy())
    outlook = Outlook(predictor, OutputLengths(), knobs)
    kv = KvMemory(BlockPool(100, 16), OutputLengths(), swap_blocks)
    swap = SwapCost(kv, outlook)
    swap.observe(10, 10 * move_s)
    return VictimChoice(Victim(), outlook, tenants, kv, swap), tenants


def running(**counts: Any) -> Request:
    given_counts = {"prompt_tokens": 100, "max_tokens": 100, "order": 1, "computed": 100, "generated": 1} | counts
    return Request("a", state=State.DECODING, blocks=list(range(7)), **given_counts)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param({"computed": 50}, {"computed": 100}, id="less to compute again"),
        pytest.param({"generated": 10}, {"generated": 90}, id="further from its end"),
        pytest.param({"deadline_s": None}, {"deadline_s": 10.15}, id="no deadline to lose"),
        pytest.param({"deadline_s": 5.0}, {"deadline_s": 10.15}, id="its deadline is lost anyway"),
        pytest.param({"deadline_s": 50.0}, {"deadline_s": 10.15}, id="its deadline can wait"),
    ],
)
def test_the_score_prefers(better: dict[str, float], worse: dict[str, float]) -> None:
    victims, _ = choice()
    if "deadline_s" in better:
        better, worse = LAST | better, LAST | worse
    first, second = running(**better), running(**worse, order=2)
    # Among equals the latest arrival would go first.
    assert list(victims.candidates([first, second], 10.0)) == [first, second]


def test_the_score_prefers_who_frees_more() -> None:
    victims, _ = choice()
    small, large = running(), running()
    small.blocks = [1]
    assert list(victims.candidates([small, large], 0.0)) == [large, small]


def test_who_frees_only_what_others_hold_too_is_no_good_victim() -> None:
    """Of three with one prefix and one of its own, the three free a block each and the other all of its own."""
    knobs = PodKnobs(generation=1, token_budget=CHUNK, chunk_size=CHUNK, running_sequences=8)
    engine = Scheduler(
        BlockPool(24, 4),
        knobs.model_copy(update={"policies": Policies(victim=Victim())}),
        Ceilings(token_budget=CHUNK, chunk_size=CHUNK, running_sequences=8),
    )
    shared = [bytes([number]) for number in range(10)]
    for number in range(3):
        engine.add(f"alike {number}", 43, 40, keys=[*shared, b"own"][:10])
        engine.complete(engine.plan())
    engine.add("alone", 20, 40)
    preempted: list[Request] = []
    while not preempted:
        plan = engine.plan()
        engine.complete(plan)
        preempted = plan.preempted
    assert [request.request_id for request in preempted] == ["alone"]


def test_what_others_hold_too_costs_a_victim_nothing() -> None:
    victims, _ = choice()
    pool = victims.swap._kv.pool
    alike, alone = running(computed=250), running(computed=110, order=2)
    alike.blocks, alone.blocks = pool.take(22), pool.take(7)
    pool.hold(alike.blocks[:15])
    # Each frees 7 blocks, but of the first only 10 tokens are lost.
    assert list(victims.candidates([alone, alike], 0.0)) == [alike, alone]


def test_what_others_hold_too_is_no_reason_to_swap() -> None:
    # 250 tokens are three chunks, so 0.3 s, or 16 blocks to move out and in; the last ten are one chunk.
    victims, _ = choice(swap_blocks=16, move_s=0.005)
    pool = victims.swap._kv.pool
    request = running(computed=250)
    request.blocks = pool.take(16)
    assert victims.remedy(request, 0.0) is Remedy.SWAP
    pool.hold(request.blocks[:15])
    assert victims.remedy(request, 0.0) is Remedy.RECOMPUTE


def test_the_score_prefers_the_tenant_that_was_served_most() -> None:
    victims, tenants = choice()
    greedy = running(account=tenants.account("greedy"))
    modest = running(account=tenants.account("modest"), order=2)
    tenants.queued(Request("b", 1, 1, order=3, account=tenants.account("modest")))
    greedy.account.counter += 5000
    assert list(victims.candidates([greedy, modest], 0.0)) == [greedy, modest]


@given(
    counts=st.lists(
        st.tuples(st.integers(1, 300), st.integers(0, 99), st.none() | st.floats(0, 20)), min_size=1, max_size=20
    )
)
@settings(max_examples=50)
def test_among_many_candidates_one_comes_before_another_as_it_does_where_there_are_only_the_two(
    counts: list[tuple[int, int, float | None]],
) -> None:
    victims, _ = choice()
    requests = [
        running(order=order, computed=computed, generated=generated, deadline_s=deadline_s)
        for order, (computed, generated, deadline_s) in enumerate(counts)
    ]
    ranked = list(victims.candidates(requests, 10.0))
    assert {request.order for request in ranked} == set(range(len(requests)))
    for first, second in combinations(ranked, 2):
        assert list(victims.candidates([second, first], 10.0)) == [first, second]


def test_among_equal_candidates_the_latest_arrival_comes_first() -> None:
    victims, _ = choice()
    requests = [running(order=order) for order in (2, 1, 3)]
    assert [request.order for request in victims.candidates(requests, 0.0)] == [3, 2, 1]


def test_a_request_is_swapped_only_where_that_is_offered_fits_and_is_quicker() -> None:
    # 100 tokens are one chunk, so 0.1 s, to compute again, or 7 blocks to move out and in.
    request = running()
    assert choice()[0].remedy(request, 0.0) is Remedy.RECOMPUTE
    assert choice(swap_blocks=7, move_s=0.005)[0].remedy(request, 0.0) is Remedy.SWAP
    assert choice(swap_blocks=6, move_s=0.005)[0].remedy(request, 0.0) is Remedy.RECOMPUTE
    assert choice(swap_blocks=7, move_s=0.01)[0].remedy(request, 0.0) is Remedy.RECOMPUTE
    assert choice(swap_blocks=7)[0].remedy(request, 0.0) is Remedy.SWAP, "the first one teaches what it takes"


def test_what_a_move_takes_is_learnt_anew_when_it_changes() -> None:
    victims, _ = choice(swap_blocks=7, move_s=0.1)
    swap = victims.swap
    assert not swap.quicker(running())
    for _ in range(20):
        swap.observe(14, 14 * 0.005)
    assert swap.quicker(running())
    swap.observe(0, 5.0)
    assert swap.quicker(running())


@pytest.mark.parametrize(
    ("counts", "unreachable", "remedy"),
    [
        ({"generated": 0, "max_tokens": 1, "deadline_s": 10.05}, "reject", Remedy.REJECT),
        ({"generated": 0, "max_tokens": 1, "deadline_s": 10.05}, "downgrade", Remedy.RECOMPUTE),
        ({"generated": 0, "max_tokens": 1, "deadline_s": 10.15}, "reject", Remedy.RECOMPUTE),
        ({"generated": 99, "deadline_s": 10.05}, "reject", Remedy.RECOMPUTE),
    ],
)
def test_a_request_is_rejected_only_before_its_first_token_and_if_computing_again_makes_it_late(
    counts: dict[str, float], unreachable: str, remedy: Remedy
) -> None:
    victims, _ = choice(unreachable=unreachable)
    assert victims.remedy(running(**counts), 10.0) is remedy


@given(
    requests=st.lists(
        st.tuples(st.integers(1, 20), st.integers(1, 20), st.sampled_from("fg"), st.none() | st.floats(0, 5)),
        min_size=2,
        max_size=15,
    ),
    weights=st.builds(
        Victim,
        block_points=st.floats(0, 10),
        recompute_points=st.floats(0, 10),
        deadline_points=st.floats(0, 100),
        debt_points=st.floats(0, 1),
        nearly_points=st.floats(0, 100),
    ),
)
@settings(max_examples=50)
def test_whatever_the_weights_every_request_gets_all_its_tokens(
    requests: list[tuple[int, int, str, float | None]], weights: Victim
) -> None:
    policies = Policies(victim=weights)
    knobs = PodKnobs(generation=1, token_budget=16, chunk_size=8, running_sequences=6, policies=policies)
    engine = Scheduler(BlockPool(10, 4), knobs, Ceilings(token_budget=16, chunk_size=8, running_sequences=6))
    added = [
        engine.add(str(number), prompt, output, tenant=tenant, deadline_s=deadline_s)
        for number, (prompt, output, tenant, deadline_s) in enumerate(requests)
    ]
    work = sum(prompt + output for prompt, output, _, _ in requests)
    for iteration in range(work * len(requests)):
        if not engine.running and not engine.waiting:
            break
        earliest = min(engine.running.values(), key=lambda request: request.order, default=None)
        plan = engine.plan(iteration * 0.1)
        assert earliest not in plan.preempted, "the earliest arrival stays, so that all end"
        engine.observe(plan, 0.1)
        engine.complete(plan)
    assert [request.generated for request in added] == [output for _, output, _, _ in requests]
    assert {request.finish_reason for request in added} == {FinishReason.LENGTH}
    assert engine.pool.free == 10


def run(engine: Scheduler, now_s: float, iterations: int) -> float:
    """Run that many iterations of 0.1 s and return the time after them."""
    for _ in range(iterations):
        plan = engine.plan(now_s)
        engine.observe(plan, 0.1)
        engine.complete(plan)
        now_s += 0.1
    return now_s


def test_a_rejected_victim_has_left_before_another_is_admitted() -> None:
    policies = Policies(
        slack=Slack(unreachable="reject", doubt_percent=0), victim=Victim(deadline_points=0.0, recompute_points=0.0)
    )
    limits = {"token_budget": 100, "chunk_size": 5, "running_sequences": 2}
    knobs = PodKnobs(generation=1, policies=policies, **limits)
    engine = Scheduler(BlockPool(20, 4), knobs, Ceilings(**limits))
    for number in range(4):
        engine.add(f"lesson {number}", 20, 8)
    now_s = run(engine, 0.0, 40)
    engine.add("grows", 2, 60, arrival_s=now_s)
    now_s = run(engine, now_s, 16)
    late = engine.add("late", 56, 1, arrival_s=now_s, deadline_s=now_s + 1.6)
    engine.add("next", 1, 1, arrival_s=now_s)
    # It is in reach unless what is computed of it must be computed again, and it holds all the KV that is left.
    plan = engine.plan(run(engine, now_s, 7))
    assert (plan.rejected, [request.request_id for request in plan.admitted]) == ([late], ["next"])
    assert (late.state, late.finish_reason, late.blocks) == (State.FINISHED, FinishReason.REJECTED, [])
    assert late.prefilled > 0
    assert list(engine.running) == ["grows", "next"]
    assert not {*plan.decodes, *(chunk.request for chunk in plan.prefills)} & {late}
