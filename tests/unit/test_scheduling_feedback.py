"""Skip-join feedback queues: who joins which level, sinks, rises, and stands back for whom."""

from collections import Counter
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_core.policies import Growth, Policies, Protection, SkipJoin, Slack
from leeway_engine.scheduling.block_keys import KeySpace
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.request import Request, State
from leeway_engine.scheduling.scheduler import Scheduler

BLOCK_SIZE = 4
CEILINGS = Ceilings(token_budget=4096, chunk_size=4096, running_sequences=64)
NEVER = 1_000_000


def scheduler(
    ranking: SkipJoin, blocks: int = 4000, running: int = 1, swap_blocks: int = 0, budget: int = 512, **others: object
) -> Scheduler:
    policies = Policies.model_validate({"ranking": ranking, **others})
    knobs = PodKnobs(generation=1, token_budget=budget, chunk_size=16, running_sequences=running, policies=policies)
    return Scheduler(BlockPool(blocks, BLOCK_SIZE), knobs, CEILINGS, swap_blocks)


def run_one(engine: Scheduler, now_s: float = 0.0) -> Plan:
    plan = engine.plan(now_s)
    engine.complete(plan)
    return plan


def sink(engine: Scheduler, request: Request) -> None:
    """Let a request run alone, until it has used up the first quanta."""
    while request.generated < 40:
        run_one(engine)


def joined(prompt: int, settings_of_queues: SkipJoin) -> int:
    """FastServe: the highest level whose quantum is not under the time of the prefill."""
    quanta = [settings_of_queues.first_quantum_tokens * 2**level for level in range(settings_of_queues.levels)]
    return next((level for level, quantum in enumerate(quanta) if quantum >= prompt), len(quanta) - 1)


def sunk(level: int, progress: int, settings_of_queues: SkipJoin) -> int:
    """The level after so many tokens since a request was in `level`, each quantum of which counts anew."""
    while level < settings_of_queues.levels - 1 and progress >= settings_of_queues.first_quantum_tokens * 2**level:
        progress -= settings_of_queues.first_quantum_tokens * 2**level
        level += 1
    return level


QUEUES = st.builds(
    SkipJoin, levels=st.integers(1, 6), first_quantum_tokens=st.integers(1, 16), promotion_iterations=st.just(NEVER)
)
ARRIVAL = st.tuples(st.integers(0, 6), st.integers(1, 60), st.integers(1, 40))


@given(queues=QUEUES, prompt=st.integers(1, 600))
def test_a_request_joins_the_highest_level_whose_quantum_covers_its_prefill(queues: SkipJoin, prompt: int) -> None:
    assert scheduler(queues).add("a", prompt, 1).level == joined(prompt, queues)


@given(queues=QUEUES, prompt=st.integers(1, 100), output=st.integers(2, 100))
@settings(max_examples=50)
def test_a_request_sinks_when_its_quantum_is_used_and_not_before(queues: SkipJoin, prompt: int, output: int) -> None:
    engine = scheduler(queues)
    request = engine.add("a", prompt, output)
    level = request.level
    while run_one(engine) and request.state is not State.FINISHED:
        engine._queue.last([request])
        assert request.level == sunk(level, request.service, queues)


def test_a_short_request_does_not_wait_behind_a_long_decode() -> None:
    engine = scheduler(SkipJoin(levels=4, first_quantum_tokens=4))
    long = engine.add("long", 4, 1000, traced=True)
    sink(engine, long)
    short = engine.add("short", 1, 1)
    plan = run_one(engine)
    assert (plan.admitted, plan.preempted, plan.decodes) == ([short], [long], [])
    assert plan.stood_back[long] == "stands back for skip_join: level 0"
    assert plan.tokens == plan.load.prefill_tokens == 1
    assert short.state is State.FINISHED
    assert run_one(engine).admitted == [long]
    while engine.running:
        run_one(engine)
    assert long.generated == 1000


@pytest.mark.parametrize("budget", [1, 2, 100])
def test_also_where_decodes_fill_the_budget(budget: int) -> None:
    engine = scheduler(SkipJoin(first_quantum_tokens=4), running=budget if budget < 100 else 2, budget=budget)
    for number in range(2):
        engine.add(str(number), 1, 1000)
    for _ in range(100):
        run_one(engine)
    short = engine.add("short", 1, 1)
    assert run_one(engine).admitted == [short]


def test_nobody_stands_back_for_an_equal_level_or_before_its_first_token() -> None:
    engine = scheduler(SkipJoin(levels=2, first_quantum_tokens=4))
    long = engine.add("long", 60, 20)
    engine.add("equal", 60, 1)
    for number in range(3):
        assert not run_one(engine).preempted
        engine.add(f"short {number}", 1, 1)
    assert not run_one(engine).preempted
    assert long.state is State.DECODING
    plan = run_one(engine)
    assert [request.request_id for request in plan.admitted] == ["short 0"]
    assert plan.preempted == [long]


@pytest.mark.parametrize("swap_blocks", [0, 100])
def test_who_stands_back_is_swapped_where_there_is_room_for_it(swap_blocks: int) -> None:
    engine = scheduler(SkipJoin(first_quantum_tokens=4), swap_blocks=swap_blocks)
    long = engine.add("long", 4, 100)
    sink(engine, long)
    engine.add("short", 1, 1)
    plan = run_one(engine)
    assert plan.preempted == [long]
    assert plan.swapped_out == [long] * (swap_blocks > 0)
    assert (long.computed > 0) == (swap_blocks > 0)


def test_only_so_many_stand_back_for_kv_as_must_and_none_in_vain() -> None:
    engine = scheduler(SkipJoin(first_quantum_tokens=16), blocks=40, running=8, growth=Growth(reserve="all"))
    decodes = [engine.add(str(number), 4, 37) for number in range(3)]
    for _ in range(20):
        run_one(engine)
    engine.add("top", 4, 37)
    run_one(engine)
    # The three of the second level hold 30 blocks, and it needs 33.
    engine.add("wide", 8, 125)
    assert not run_one(engine).preempted
    engine.cancel("wide")
    high = engine.add("high", 16, 4)
    plan = run_one(engine)
    assert (plan.preempted, plan.admitted) == ([decodes[2]], [high])


def test_a_lowered_cap_drains_and_nobody_takes_a_place() -> None:
    engine = scheduler(SkipJoin(first_quantum_tokens=4), running=3)
    for number in range(3):
        engine.add(str(number), 1, 100)
    for _ in range(60):
        run_one(engine)
    update = {"generation": 2, "running_sequences": 2}
    assert engine.accept(engine.accepted.model_copy(update=update)).refusal is None
    engine.add("short", 1, 1)
    assert not run_one(engine).admitted


def levels_of(requests: list[Request]) -> dict[Request, int]:
    return {request: request.level for request in requests}


@given(
    queues=st.builds(
        SkipJoin,
        levels=st.integers(1, 6),
        first_quantum_tokens=st.integers(1, 16),
        promotion_iterations=st.sampled_from((5, 30, NEVER)),
    ),
    arrivals=st.lists(ARRIVAL, min_size=1, max_size=30),
    running=st.integers(1, 4),
    swap_blocks=st.sampled_from((0, 30)),
)
@settings(max_examples=150)
def test_requests_stand_back_at_most_as_often_for_each_arrival_as_there_are_levels(
    queues: SkipJoin, arrivals: list[tuple[int, int, int]], running: int, swap_blocks: int
) -> None:
    """Each time one stands back, another gets in: an arrival, or one past which it has sunk since it came or rose."""
    engine = scheduler(queues, running=running, swap_blocks=swap_blocks)
    requests: list[Request] = []
    pending = list(arrivals)
    stood_back, rises = Counter[Request](), 0
    progress: dict[Request, int] = {}
    while pending or engine.running or engine.waiting:
        while pending and (pending[0][0] == 0 or not engine.waiting):
            _, prompt, output = pending.pop(0)
            requests.append(engine.add(str(len(requests)), prompt, output))
        if pending:
            pending[0] = (pending[0][0] - 1, *pending[0][1:])
        before = levels_of(requests)
        plan = engine.plan()
        rises += sum(request.level < before[request] for request in requests)
        for victim in plan.preempted:
            stood_back[victim] += 1
            assert victim.progress > progress.get(victim, 0), "each admission has given a token"
            progress[victim] = victim.progress
        assert len(plan.preempted) <= len(plan.admitted)
        first = engine._queue.first(engine.iterations, 0.0)
        decodes = [request for request in engine.running.values() if request.state is State.DECODING]
        if first is not None and not first.risen and decodes:
            engine._queue.last(decodes)
            assert max(request.level for request in decodes) <= first.level, "no higher level waits behind a lower one"
        engine.complete(plan)
    assert stood_back.total() <= queues.levels * (len(arrivals) + rises)
    assert [request.generated for request in requests] == [output for _, _, output in arrivals]
    assert all(request.progress <= request.prompt_tokens + request.max_tokens for request in requests)


@given(
    quantum=st.integers(1, 8),
    arrivals=st.lists(ARRIVAL, min_size=2, max_size=25),
    blocks=st.integers(26, 40),
    reserve=st.sampled_from(("none", "expected", "all")),
    alike=st.integers(0, 60),
)
@settings(max_examples=100)
def test_where_kv_is_short_nobody_stands_back_in_vain_and_all_get_their_tokens(
    quantum: int, arrivals: list[tuple[int, int, int]], blocks: int, reserve: str, alike: int
) -> None:
    queues = SkipJoin(levels=4, first_quantum_tokens=quantum, promotion_iterations=20)
    engine = scheduler(queues, blocks=blocks, running=6, growth=Growth.model_validate({"reserve": reserve}))
    requests: list[Request] = []
    space = KeySpace(BLOCK_SIZE, model="m")
    pending = list(arrivals)
    while pending or engine.running or engine.waiting:
        while pending and (pending[0][0] == 0 or not engine.waiting):
            _, prompt, output = pending.pop(0)
            keys: list[bytes] = []
            own = [1000 + len(requests)] * (prompt + output)
            space.extend(keys, [*range(min(prompt, alike)), *own][: prompt + output])
            requests.append(engine.add(str(len(requests)), prompt, output, keys=keys, traced=True))
        if pending:
            pending[0] = (pending[0][0] - 1, *pending[0][1:])
        plan = run_one(engine)
        for victim in plan.stood_back:
            assert any(request.level < victim.level for request in plan.admitted)
    assert [request.generated for request in requests] == [output for _, _, output in arrivals]
    assert engine.pool.free == blocks


@given(promotion=st.integers(1, 60), quantum=st.integers(2, 12), prompt=st.integers(1, 40), output=st.integers(1, 60))
@settings(max_examples=60)
def test_a_demoted_decode_waits_no_longer_than_the_promotion_says_and_then_runs_a_quantum(
    promotion: int, quantum: int, prompt: int, output: int
) -> None:
    """Under an endless flow of short ones, one place, and never more than two in the queue."""
    engine = scheduler(SkipJoin(first_quantum_tokens=quantum, promotion_iterations=promotion))
    long = engine.add("long", prompt, output)
    risen_at, number, wait = 0, 0, 0
    rounds = ceil((prompt + output) / quantum) + 1
    recompute = ceil((prompt + output) / 16)
    while long.state is not State.FINISHED:
        if len(engine.waiting) < 2:
            number += 1
            engine.add(f"short {number}", 1, 1)
        level = long.level
        plan = engine.plan()
        if long.level < level:
            risen_at = long.progress
        if long in plan.preempted:
            assert long.progress - risen_at >= quantum
        wait = wait + 1 if long.request_id in engine.waiting else 0
        assert wait <= promotion + 2, "one short request may be at the top level before it"
        engine.complete(plan)
    assert engine.iterations <= rounds * (promotion + 3 + recompute + quantum)


@given(waits=st.lists(st.integers(1, 9), min_size=1, max_size=9), promotion=st.integers(2, 50))
@settings(max_examples=50)
def test_the_age_of_one_that_stood_back_goes_on_where_it_was(waits: list[int], promotion: int) -> None:
    engine = scheduler(SkipJoin(first_quantum_tokens=16, promotion_iterations=promotion))
    long = engine.add("long", 4, 4000)
    sink(engine, long)
    waited = 0
    for number, wait in enumerate(waits):
        # That many iterations one of a higher level runs.
        engine.add(f"short {number}", 1, wait)
        for iteration in range(wait + 1):
            plan = run_one(engine)
            assert (long in plan.preempted) == (iteration == 0)
            assert (long.level == 0) == (waited + iteration >= promotion)
        assert plan.admitted == [long]
        waited += wait
        if long.level == 0:
            break
        while long.state is not State.DECODING:
            run_one(engine)


def test_an_overdue_request_never_stands_back() -> None:
    protection = Protection(overdue_iterations=30)
    engine = scheduler(SkipJoin(first_quantum_tokens=4), protection=protection)
    long = engine.add("long", 4, 100)
    sink(engine, long)
    engine.add("short", 1, 1)
    assert not run_one(engine).preempted


def test_nobody_stands_back_whose_deadline_goes_first() -> None:
    slack = Slack(pressing_s=5.0)
    engine = scheduler(SkipJoin(first_quantum_tokens=4), slack=slack)
    pressing = engine.add("pressing", 4, 100, deadline_s=3.0)
    sink(engine, pressing)
    engine.add("plain", 1, 1)
    assert not run_one(engine).preempted
    as_pressing = engine.add("as pressing", 1, 1, deadline_s=3.0)
    plan = run_one(engine)
    assert (plan.preempted, plan.admitted) == ([pressing], [as_pressing])
