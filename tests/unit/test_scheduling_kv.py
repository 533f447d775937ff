"""KV blocks: what is shared, what is evicted, what is copied, what is swapped out and what is kept free."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_core.policies import AdmissionLimits, Growth, Policies
from leeway_engine.scheduling.block_keys import KeySpace
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.move import Way
from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.request import Request, RequestRejected, State
from leeway_engine.scheduling.scheduler import Scheduler

SIZE = 4
KNOBS = PodKnobs(generation=1, token_budget=64, chunk_size=64, running_sequences=8)
CEILINGS = Ceilings(token_budget=64, chunk_size=64, running_sequences=8)
SPACE = KeySpace(SIZE, model="m")


def scheduler(
    blocks: int = 32,
    swap_blocks: int = 0,
    chunk: int = 64,
    growth: Growth | None = None,
    policies: Policies | None = None,
) -> Scheduler:
    policies = policies or Policies(growth=growth or Growth())
    knobs = KNOBS.model_copy(update={"chunk_size": chunk, "policies": policies})
    return Scheduler(BlockPool(blocks, SIZE), knobs, CEILINGS, swap_blocks)


def add(engine: Scheduler, name: str, prompt: Sequence[int], output: int = 2, salt: str = "") -> Request:
    keys: list[bytes] = []
    KeySpace(SIZE, model="m", salt=salt).extend(keys, prompt)
    return engine.add(name, len(prompt), output, keys=keys)


def step(engine: Scheduler, times: int = 1) -> Plan:
    for _ in range(times):
        plan = engine.plan()
        engine.complete(plan)
    return plan


def drain(engine: Scheduler) -> None:
    while engine.running or engine.waiting:
        step(engine)


def test_keys_are_the_same_in_every_process() -> None:
    keys: list[bytes] = []
    KeySpace(4, model="m", tenant="a", salt="s", tool_schema="t").extend(keys, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert [key.hex()[:16] for key in keys] == ["6089ee30fac46a8c", "391d6649ccb7375e"]


@given(st.lists(st.integers(0, 2**32 - 1), max_size=40), st.integers(0, 40))
def test_keys_grow_with_the_tokens_and_name_all_tokens_before_them(token_ids: list[int], cut: int) -> None:
    whole: list[bytes] = []
    SPACE.extend(whole, token_ids)
    assert len(whole) == len(token_ids) // SIZE
    pieces: list[bytes] = []
    SPACE.extend(pieces, token_ids[:cut])
    SPACE.extend(pieces, token_ids)
    assert pieces == whole
    assert len(set(whole)) == len(whole)
    if token_ids:
        other: list[bytes] = []
        SPACE.extend(other, [token_ids[0] ^ 1, *token_ids[1:]])
        assert not set(other) & set(whole)


def test_no_two_spaces_share_a_key_however_their_names_are_split() -> None:
    names = ("", "a", "ab", "b")
    spaces = [
        KeySpace(SIZE, model=model, tenant=tenant, salt=salt, tool_schema=tools)
        for model in names
        for tenant in names
        for salt in names
        for tools in names
    ]
    keys: list[bytes] = []
    for space in spaces:
        own: list[bytes] = []
        space.extend(own, range(SIZE))
        keys += own
    assert len(set(keys)) == len(names) ** 4


def test_a_prefix_is_found_once_it_is_computed_and_not_before() -> None:
    engine = scheduler(chunk=8)
    request = add(engine, "first", list(range(18)))
    for computed_blocks in (0, 2, 4, 4):
        plan = engine.plan()
        assert engine.pool.find(request.keys) == request.blocks[:computed_blocks]
        engine.complete(plan)


def test_of_two_equal_prompts_at_once_each_is_computed_and_the_third_finds_one() -> None:
    engine = scheduler(chunk=8)
    prompt = list(range(18))
    first, second = add(engine, "first", prompt), add(engine, "second", prompt)
    step(engine)
    assert (first.computed, second.computed) == (8, 8)
    assert not set(first.blocks) & set(second.blocks)
    drain(engine)
    third = add(engine, "third", prompt)
    plan = step(engine)
    assert (third.cached, [chunk.tokens for chunk in plan.prefills]) == (16, [2])
    assert (engine.kv.queried_tokens, engine.kv.hit_tokens) == (54, 16)


def test_requests_hold_a_common_prefix_together_and_it_outlives_the_first() -> None:
    engine = scheduler()
    prompt = list(range(10))
    first = add(engine, "first", prompt, output=20)
    step(engine)
    second = add(engine, "second", [*prompt[:9], 99], output=20)
    step(engine)
    assert second.blocks[:2] == first.blocks[:2]
    assert second.blocks[2] != first.blocks[2]
    engine.cancel("first")
    assert engine.pool.free == 32 - len(second.blocks)
    assert engine.pool.find(second.keys) == second.blocks[:2]
    drain(engine)
    assert engine.pool.free == 32


def test_what_a_cancelled_prefill_computed_is_found_and_what_it_did_not_is_not() -> None:
    engine = scheduler(chunk=8)
    prompt = list(range(24))
    add(engine, "gone", prompt)
    step(engine)
    plan = engine.plan()
    engine.cancel("gone")
    engine.complete(plan)
    again = add(engine, "again", prompt)
    step(engine)
    assert again.cached == 8


@pytest.mark.parametrize("blocks", [4, 3])
def test_a_wholly_known_prompt_computes_its_last_token_in_a_copy_of_the_last_block(blocks: int) -> None:
    engine = scheduler(blocks)
    prompt = list(range(12))
    add(engine, "first", prompt, output=1)
    drain(engine)
    held = engine.pool.find(add(engine, "second", prompt, output=1).keys)
    plan = engine.plan()
    (second,) = plan.admitted
    assert (second.cached, plan.prefills[0].tokens) == (11, 1)
    assert second.blocks[:2] == held[:2]
    # Where no further block is free the known one itself is taken over, and then it is no longer found.
    copied = [(Way.COPY, held[2], second.blocks[2])] if blocks == 4 else []
    assert plan.moves == copied
    assert engine.pool.find(second.keys) == held[: 3 if copied else 2]
    engine.complete(plan)
    assert engine.pool.free == blocks


def test_the_longest_unused_prefix_is_evicted_first_and_from_its_end() -> None:
    engine = scheduler(blocks=6)
    old, new = list(range(9)), list(range(100, 109))
    for name, prompt in (("old", old), ("new", new), ("old again", old)):
        add(engine, name, prompt, output=1)
        drain(engine)
    assert (engine.pool.cached, engine.pool.free) == (4, 6)
    add(engine, "other", list(range(200, 212)), output=1)
    step(engine)
    assert len(engine.pool.find(keys_of(old))) == 2
    assert len(engine.pool.find(keys_of(new))) == 1


def keys_of(prompt: Sequence[int]) -> list[bytes]:
    keys: list[bytes] = []
    SPACE.extend(keys, prompt)
    return keys


def test_salted_tenants_never_share() -> None:
    engine = scheduler()
    prompt = list(range(16))
    for salt in ("", "a", "b"):
        request = add(engine, salt, prompt, salt=salt)
        drain(engine)
        assert request.cached == 0
    request = add(engine, "again", prompt, salt="a")
    step(engine)
    assert request.cached == 15


def preempted(engine: Scheduler) -> Request:
    """Let two requests grow until the second has to make room."""
    add(engine, "first", list(range(7)), output=8)
    second = add(engine, "second", list(range(50, 57)), output=8)
    while second.state is not State.PREEMPTED:
        step(engine)
    return second


def test_a_preempted_request_finds_its_own_blocks_again() -> None:
    engine = scheduler(blocks=5)
    second = preempted(engine)
    SPACE.extend(second.keys, [*range(50, 57), *range(70, 70 + second.generated)])
    assert (second.computed, second.blocks) == (0, [])
    computed = len(engine.pool.find(second.keys)) * SIZE
    assert computed > 0
    while second.state is State.PREEMPTED:
        plan = step(engine)
    assert plan.prefills[-1].tokens < second.known - 1
    drain(engine)
    assert (second.generated, engine.pool.free) == (8, 5)


def test_a_swapped_out_request_comes_back_with_all_that_was_computed() -> None:
    engine = scheduler(blocks=5, swap_blocks=3)
    second = preempted(engine)
    swapped = list(second.swapped)
    assert (len(swapped), second.pending) == (2, 1)
    assert engine.kv.host.free == 1
    while second.state is State.PREEMPTED:
        plan = step(engine)
    # The first block, full and published, is still found on the device.
    assert plan.moves == [
        (Way.IN, source, target) for source, target in zip(swapped[1:], second.blocks[1:], strict=False)
    ]
    assert plan.prefills[-1].tokens == 1
    assert engine.kv.host.free == 3
    drain(engine)
    assert (second.generated, engine.pool.free) == (8, 5)


def test_a_request_cancelled_while_swapped_out_gives_back_its_host_blocks() -> None:
    engine = scheduler(blocks=5, swap_blocks=3)
    preempted(engine)
    engine.cancel("second")
    assert engine.kv.host.free == 3
    drain(engine)
    assert engine.pool.free == 5


def test_without_room_in_host_memory_the_victim_is_computed_again() -> None:
    engine = scheduler(blocks=5, swap_blocks=1)
    second = preempted(engine)
    assert (second.swapped, second.computed, engine.kv.host.free) == ([], 0, 1)


def test_room_is_kept_for_the_growth_that_earlier_answers_teach() -> None:
    engine = scheduler(blocks=12, growth=Growth(reserve="expected", quantile_percent=75))
    for number in range(8):
        engine.add(f"before{number}", 1, 24)
        drain(engine)
    first, second = engine.add("first", 4, 40), engine.add("second", 4, 40)
    step(engine)
    assert (first.state, second.state) == (State.DECODING, State.WAITING)
    assert (first.reserved_blocks, engine.kv.promised) == (7, 6), "27 tokens with KV fill 7 blocks, 1 is held"
    while second.state is State.WAITING:
        assert not step(engine).preempted
    drain(engine)
    assert (engine.kv.promised, engine.pool.free) == (0, 12)


def test_a_shared_prefix_is_no_growth_and_takes_no_room_twice() -> None:
    engine = scheduler(blocks=9, growth=Growth(reserve="all"))
    prompt = list(range(13))
    first = add(engine, "first", prompt, output=4)
    step(engine)
    second, third = add(engine, "second", prompt, output=12), add(engine, "third", list(range(50, 63)), output=12)
    step(engine)
    assert (first.state, second.state, third.state) == (State.DECODING, State.DECODING, State.WAITING)
    assert engine.pool.free == 4, "4 blocks of the first, and 1 of the second beside the 3 that it shares"
    assert engine.kv.promised == 2
    drain(engine)
    assert engine.pool.free == 9


def test_admission_counts_only_what_is_not_found() -> None:
    limits = AdmissionLimits(tenant_waiting_tokens=12)
    engine = scheduler(policies=Policies(admission=limits))
    prompt = list(range(40))
    add(engine, "first", prompt)
    drain(engine)
    add(engine, "waiting", range(60, 70))
    with pytest.raises(RequestRejected):
        add(engine, "unknown", range(100, 140))
    known = add(engine, "known", [*prompt[:36], 7])
    # Those of 9 blocks are found, so 10 + 1 tokens wait and one more may.
    assert (known.state, engine.waiting_tokens) == (State.WAITING, 11)
    add(engine, "short", [200])
    with pytest.raises(RequestRejected):
        add(engine, "shorter", [201])


def test_kv_headroom_counts_a_prefix_that_many_share_once() -> None:
    limits = AdmissionLimits(kv_percent=100)
    engine = scheduler(blocks=32, policies=Policies(admission=limits))
    prompt = list(range(40))
    for number in range(5):
        add(engine, str(number), [*prompt, 100 + number], output=9)
        step(engine)
    # Of 128 tokens they hold ten shared blocks and at least one more each; one by one, three would have been too many.
    assert (len(engine.running), engine.pool.shared(engine.running["4"].blocks)) == (5, 10)
    with pytest.raises(RequestRejected) as rejection:
        add(engine, "long", range(300, 340))
    assert rejection.value.code == "kv_headroom"


def test_blocks_that_many_hold_are_counted_as_such() -> None:
    engine = scheduler()
    prompt = list(range(40))
    requests = [add(engine, str(number), [*prompt, 100 + number], output=9) for number in range(2)]
    step(engine)
    requests.append(add(engine, "late", [*prompt, 200], output=9))
    step(engine)
    # The two first came together, so each computed the prompt; the third holds the ten blocks that were published.
    assert [engine.kv.to_lose(request)[0] for request in requests] == [1, 11, 1]
    assert [engine.kv.to_recompute(request) for request in requests] == [2, 41, 1]
    engine.cancel("late")
    assert [engine.kv.to_lose(request)[0] for request in requests[:2]] == [11, 11]


def test_a_block_given_back_twice_or_taken_beyond_what_is_free_is_a_bug() -> None:
    pool = BlockPool(2, SIZE)
    blocks = pool.take(2)
    again = list(blocks)
    pool.give_back(blocks)
    assert blocks == []
    with pytest.raises(AssertionError, match="more often than taken"):
        pool.give_back(again)
    with pytest.raises(AssertionError, match="3 KV blocks asked for, 2 free"):
        pool.take(3)
