"""What a caller of the engine relies on: events, refusals, cancels, knobs, readings and seeds."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from engine_storm import ZombieWatch
from leaks import leaks
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_core.policies import (
    AdaptiveChunk,
    EffectivePriority,
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
from leeway_engine.engine import Engine, EngineOptions
from leeway_engine.messages import GenerationRequest, Sampling, TokenEvent
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.weights import load_decoder
from leeway_engine.scheduling.move import Move, Way
from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.request import FinishReason, Request, RequestRejected
from reference_tokens import save_model

KNOBS = PodKnobs(generation=1, token_budget=32, chunk_size=16, running_sequences=4)
CEILINGS = Ceilings(token_budget=64, chunk_size=64, running_sequences=8)
GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    folder: Path = tmp_path_factory.mktemp("model")
    save_model("qwen3-tied-wide-heads", folder)
    return load_decoder(folder, torch.float32)


@pytest.fixture
def engine(decoder: Decoder) -> Engine:
    return Engine(decoder, EngineOptions(kv_blocks=12, knobs=KNOBS, ceilings=CEILINGS))


def request(
    name: str,
    prompt: int = 5,
    max_tokens: int = 6,
    sampling: Sampling = GREEDY,
    stop_token_ids: frozenset[int] = frozenset(),
) -> GenerationRequest:
    return GenerationRequest(name, list(range(1, prompt + 1)), max_tokens, sampling, stop_token_ids)


def drain(engine: Engine) -> dict[str, list[TokenEvent]]:
    events: dict[str, list[TokenEvent]] = {}
    while engine.has_work:
        for event in engine.step():
            events.setdefault(event.request_id, []).append(event)
    return events


def tokens(events: list[TokenEvent]) -> list[int]:
    return [token for event in events for token in event.token_ids]


def test_the_last_event_and_no_other_says_why_the_request_ended(engine: Engine) -> None:
    engine.add(request("a"))
    events = drain(engine)["a"]
    assert [event.finish_reason for event in events] == [None] * 5 + [FinishReason.LENGTH]
    assert [(event.prompt_tokens, event.output_tokens) for event in events] == [(5, n) for n in range(1, 7)]


def test_a_stop_token_ends_the_request_and_is_its_last_token(engine: Engine) -> None:
    engine.add(request("a"))
    full = tokens(drain(engine)["a"])
    stop = full[3]
    engine.add(request("a", stop_token_ids=frozenset({stop})))
    events = drain(engine)["a"]
    assert tokens(events) == full[: full.index(stop) + 1]
    assert events[-1].finish_reason is FinishReason.STOP


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (GenerationRequest("bad", [], 4), "invalid_prompt"),
        (GenerationRequest("bad", [3, 211], 4), "invalid_prompt"),
        (GenerationRequest("bad", [-1], 4), "invalid_prompt"),
        (GenerationRequest("bad", [1], 0), "invalid_max_tokens"),
        (GenerationRequest("bad", [1] * 200, 57), "context_length_exceeded"),
        (GenerationRequest("bad", [1] * 190, 4), "kv_exceeded"),
        (GenerationRequest("bad", [1], 4, Sampling(logit_bias={211: 1.0})), "invalid_logit_bias"),
        (GenerationRequest("here", [1], 4), "duplicate_id"),
    ],
)
def test_a_request_that_can_never_be_served_is_refused_and_others_go_on(
    engine: Engine, bad: GenerationRequest, code: str
) -> None:
    engine.add(request("here"))
    with pytest.raises(RequestRejected) as rejection:
        engine.add(bad)
    assert rejection.value.code == code
    assert len(drain(engine)["here"]) == 6


def test_a_cancelled_request_gives_no_more_events_and_its_id_may_come_again(engine: Engine) -> None:
    engine.add(request("gone", max_tokens=100))
    engine.add(request("stays"))
    engine.step()
    engine.cancel("gone")
    engine.cancel("gone")
    engine.cancel("never seen")
    assert set(drain(engine)) == {"stays"}
    engine.add(request("gone"))
    assert len(drain(engine)["gone"]) == 6


@pytest.fixture
def ahead(decoder: Decoder) -> Engine:
    return Engine(decoder, EngineOptions(kv_blocks=12, knobs=KNOBS, ceilings=CEILINGS, plan_ahead=True))


def test_a_cancel_during_an_iteration_costs_no_further_one_and_others_go_on(engine: Engine, ahead: Engine) -> None:
    engine.add(request("stays"))
    expected = tokens(drain(engine)["stays"])
    biased = Sampling(temperature=0, logit_bias={7: 1.0}, frequency_penalty=0.5)
    ahead.add(request("gone", max_tokens=100, sampling=biased))
    ahead.add(request("stays"))
    events = ahead.step()
    ahead.launch()
    ahead.plan()
    ahead.cancel("gone")
    ahead.add(request("came"))
    events += ahead.collect()
    assert [event.request_id for event in events] == ["gone", "stays", "stays"]
    rest = ahead.step()
    assert [event.request_id for event in rest] == ["stays", "came"], "who came meanwhile is in the plan made already"
    assert ahead.stats().last.decode_tokens == 1
    left = drain(ahead)
    assert tokens([*events[1:], rest[0], *left["stays"]]) == expected
    assert tokens([rest[1], *left["came"]]) == expected
    assert ahead.stats().kv_blocks_free == 12


def test_planned_ahead_no_request_runs_on_after_its_stop_token(engine: Engine, ahead: Engine) -> None:
    engine.add(request("a"))
    full = tokens(drain(engine)["a"])
    for stop, length in product(full, (3, 6)):
        ahead.add(request("a", max_tokens=length, stop_token_ids=frozenset({stop})))
        ahead.add(request("b"))
        ran = ahead.stats().decode_tokens
        events = drain(ahead)
        assert tokens(events["a"]) == full[: min(full.index(stop) + 1, length)]
        assert events["a"][-1].finish_reason is (FinishReason.STOP if stop in full[:length] else FinishReason.LENGTH)
        assert tokens(events["b"]) == full
        assert ahead.stats().decode_tokens - ran == len(events["a"]) + len(events["b"]) - 2
        assert ahead.stats().kv_blocks_free == 12


@pytest.mark.parametrize("way", [Engine.cancel, Engine.stop])
@pytest.mark.parametrize("in_flight", [False, True])
def test_where_all_are_dropped_the_plan_made_ahead_is_too(
    ahead: Engine, way: Callable[[Engine, str], None], in_flight: bool
) -> None:
    ahead.add(request("a", max_tokens=20))
    ahead.step()
    if in_flight:
        ahead.launch()
        ahead.plan()
    way(ahead, "a")
    assert ahead.set_knobs(KNOBS.model_copy(update={"generation": 2})).enforced.generation == 2
    ahead.add(request("b"))
    events = ahead.collect() if in_flight else []
    events += ahead.step()
    assert ahead.stats().last.knobs_generation == 2
    assert [event.request_id for event in events] == ["b"]
    assert len(drain(ahead)["b"]) == 5
    assert ahead.stats().kv_blocks_free == 12


def test_where_all_stop_the_plan_made_ahead_is_dropped_and_the_engine_is_idle(engine: Engine, ahead: Engine) -> None:
    engine.add(request("a"))
    first = tokens(drain(engine)["a"])[0]
    ahead.add(request("a", stop_token_ids=frozenset({first})))
    assert len(ahead.step()) == 1
    assert not ahead.has_work
    ahead.set_knobs(KNOBS.model_copy(update={"generation": 2}))
    ahead.add(request("b"))
    ahead.step()
    assert ahead.stats().last.knobs_generation == 2


def test_after_all_are_cancelled_the_readings_are_those_of_an_idle_engine(engine: Engine) -> None:
    for name in "abcdef":
        engine.add(request(name))
    engine.step()
    for name in "abcdef":
        engine.cancel(name)
    reading = engine.stats()
    assert (reading.running, reading.waiting, reading.waiting_tokens) == (0, 0, 0)
    assert reading.kv_blocks_free == reading.kv_blocks_total
    assert not engine.has_work
    assert engine.step() == []


def test_readings_count_tokens_and_time(decoder: Decoder) -> None:
    now_s = 0.0

    def clock() -> float:
        nonlocal now_s
        now_s += 1.0
        return now_s

    engine = Engine(decoder, EngineOptions(kv_blocks=12, knobs=KNOBS, ceilings=CEILINGS), clock)
    engine.add(request("a", prompt=20, max_tokens=3))
    engine.step()
    engine.step()
    reading = engine.stats()
    assert (reading.prefill_tokens, reading.decode_tokens, reading.iterations) == (20, 0, 2)
    assert (reading.last.seconds, reading.last.idle_gap_s, reading.last.prefill_tokens) == (1.0, 2.0, 4)
    assert reading.last.path in ("native", "eager")
    drain(engine)
    now_s += 100
    engine.add(request("b"))
    engine.step()
    assert engine.stats().last.idle_gap_s == 0.0
    assert engine.stats().decode_tokens == 2


@pytest.mark.parametrize("way", [Engine.cancel, Engine.stop])
def test_the_time_after_the_last_request_was_dropped_is_no_idle_gap(
    decoder: Decoder, way: Callable[[Engine, str], None]
) -> None:
    clock = Stopwatch()
    engine = Engine(decoder, EngineOptions(kv_blocks=12, knobs=KNOBS, ceilings=CEILINGS), clock)
    engine.add(request("a"))
    engine.step()
    clock.now_s += 3
    engine.plan()
    engine.launch()
    way(engine, "a")
    engine.collect()
    assert engine.stats().last.idle_gap_s == 3.0, "there was work until it was dropped"
    engine.add(request("a"))
    engine.step()
    way(engine, "a")
    clock.now_s += 100
    engine.add(request("b", max_tokens=2))
    engine.step()
    assert engine.stats().last.idle_gap_s == 0.0
    clock.now_s += 2
    engine.step()
    assert (engine.has_work, engine.stats().last.idle_gap_s) == (False, 2.0)


WAYS = {Way.COPY: 0.001, Way.OUT: 0.1, Way.IN: 0.1}


@pytest.mark.parametrize(
    ("ways", "taught"),
    [
        ([Way.COPY] * 3, []),
        ([Way.OUT, Way.COPY], []),
        ([Way.OUT, Way.IN, Way.IN], [(3, 0.3)]),
    ],
)
def test_only_swaps_teach_what_a_swap_takes(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch, ways: list[Way], taught: list[tuple[int, float]]
) -> None:
    clock = Stopwatch()
    options = EngineOptions(kv_blocks=12, knobs=KNOBS, ceilings=CEILINGS, swap_blocks=4)
    engine = Engine(decoder, options, clock)
    seen: list[tuple[int, float]] = []

    def move(moves: Sequence[Move]) -> None:
        clock.now_s += sum(WAYS[move.way] for move in moves)

    monkeypatch.setattr(engine._cache, "move", move)
    monkeypatch.setattr(engine._scheduler.swap_cost, "observe", lambda *reading: seen.append(reading))
    engine._move(Plan(KNOBS, 16, moves=[Move(way, 0, 1) for way in ways]))
    assert seen == [(moves, pytest.approx(seconds)) for moves, seconds in taught]
    assert engine.stats().swapped_out_blocks == ways.count(Way.OUT)


def test_pushed_knobs_hold_from_the_next_iteration(engine: Engine) -> None:
    engine.add(request("a", prompt=40))
    engine.step()
    pushed = KNOBS.model_copy(update={"generation": 5, "chunk_size": 3})
    reply = engine.set_knobs(pushed)
    assert (reply.accepted.generation, reply.enforced.generation) == (5, 1)
    engine.step()
    assert (engine.stats().last.prefill_tokens, engine.stats().last.knobs_generation) == (3, 5)
    assert engine.knobs().enforced == pushed


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(seed=7),
        Sampling(temperature=1.7, top_p=0.8, seed=7),
        Sampling(temperature=3, top_k=20, seed=7),
        Sampling(temperature=2, min_p=0.05, repetition_penalty=1.2, frequency_penalty=0.5, seed=7),
    ],
)
def test_a_seed_gives_the_same_tokens_with_any_batch_mates(engine: Engine, sampling: Sampling) -> None:
    engine.add(request("a", sampling=sampling, max_tokens=30))
    alone = tokens(drain(engine)["a"])
    for name, mate in (("b", GREEDY), ("a", sampling), ("c", Sampling(seed=8)), ("d", Sampling(top_k=3, top_p=0.5))):
        engine.add(request(name, sampling=mate, max_tokens=30))
    together = drain(engine)
    assert tokens(together["a"]) == alone
    assert tokens(together["c"]) != alone


def test_a_bias_and_penalties_change_what_follows(engine: Engine) -> None:
    engine.add(request("a", max_tokens=20))
    plain = tokens(drain(engine)["a"])
    assert len(set(plain)) < 20
    engine.add(request("a", sampling=Sampling(temperature=0, logit_bias={7: 100.0}), max_tokens=4))
    engine.add(request("b", sampling=Sampling(temperature=0, presence_penalty=1000.0), max_tokens=20))
    engine.add(request("c", sampling=Sampling(temperature=0, repetition_penalty=1e6), max_tokens=20))
    events = drain(engine)
    assert tokens(events["a"]) == [7] * 4
    assert len(set(tokens(events["b"]))) == 20
    assert not set(tokens(events["c"])) & {1, 2, 3, 4, 5}


def test_logprobs_come_with_each_token_of_who_asked_for_them(engine: Engine) -> None:
    engine.add(request("a", sampling=Sampling(temperature=0, logprobs=3)))
    engine.add(request("b"))
    events = drain(engine)
    assert all(event.logprobs == () for event in events["b"])
    for event in events["a"]:
        (logprobs,) = event.logprobs
        assert (logprobs.token_id,) == event.token_ids == logprobs.top_ids[:1]
        assert logprobs.logprob == logprobs.top_logprobs[0] <= 0
        assert len(logprobs.top_ids) == 3
        assert list(logprobs.top_logprobs) == sorted(logprobs.top_logprobs, reverse=True)


def test_requests_without_a_seed_differ(engine: Engine) -> None:
    for name in "ab":
        engine.add(request(name, sampling=Sampling(temperature=2), max_tokens=30))
    events = drain(engine)
    assert tokens(events["a"]) != tokens(events["b"])


def test_a_request_that_cannot_meet_its_deadline_ends_without_tokens_and_leaves_nothing(decoder: Decoder) -> None:
    knobs = KNOBS.model_copy(update={"policies": Policies(slack=Slack(unreachable="reject"))})
    engine = Engine(decoder, EngineOptions(kv_blocks=12, knobs=knobs, ceilings=CEILINGS), clock=lambda: 100.0)
    late = GenerationRequest("late", (1, 2, 3), 4, GREEDY, arrival_s=90.0, deadline_s=99.0)
    engine.add(late)
    engine.add(request("a"))
    events = drain(engine)
    assert events["late"] == [TokenEvent("late", (), FinishReason.REJECTED, 3, 0)]
    assert len(tokens(events["a"])) == 6
    engine.add(late)
    assert [event.finish_reason for event in engine.step()] == [FinishReason.REJECTED]
    assert (engine.has_work, engine.stats().kv_blocks_free) == (False, 12)


def test_iterations_are_predicted_once_some_were_seen(engine: Engine) -> None:
    for number in range(6):
        engine.add(request(str(number), max_tokens=12))
    engine.step()
    assert engine.stats().last.predicted_s == 0.0
    while engine.has_work:
        engine.step()
    assert engine.stats().last.predicted_s > 0.0


POLICIES = (
    Policies(ranking=ShortestPrompt(), victim=Victim()),
    Policies(ranking=EffectivePriority(), prefill_cap=PrefillCap(prefills=1), protection=Protection(decode_cap=2)),
    Policies(ranking=SkipJoin(first_quantum_tokens=4), adaptive_chunk=AdaptiveChunk(itl_s=1e-4, floor_tokens=3)),
    Policies(ranking=TokenCounters(), growth=Growth(reserve="all")),
)


def test_tokens_are_the_same_under_every_policy_and_while_policies_change(decoder: Decoder) -> None:
    requests = [request(str(number), prompt=3 + 9 * number, max_tokens=12) for number in range(5)]

    def answers(first: Policies, *later: Policies) -> list[list[int]]:
        knobs = KNOBS.model_copy(update={"policies": first})
        engine = Engine(decoder, EngineOptions(kv_blocks=12, knobs=knobs, ceilings=CEILINGS, block_size=8))
        for one in requests:
            engine.add(one)
        events: list[TokenEvent] = []
        for number, policies in enumerate(later):
            for _ in range(5):
                events += engine.step()
            update = {"generation": 2 + number, "policies": policies}
            assert engine.set_knobs(knobs.model_copy(update=update)).refusal is None
        while engine.has_work:
            events += engine.step()
        assert engine.stats().kv_blocks_free == 12
        return [tokens([event for event in events if event.request_id == one.request_id]) for one in requests]

    expected = answers(Policies())
    assert [len(answer) for answer in expected] == [12] * 5
    for policies in POLICIES:
        assert answers(policies) == expected
    assert answers(*POLICIES, *POLICIES) == expected


def test_an_iteration_tells_its_chunks_what_ran_it_and_how_long_requests_had_waited(decoder: Decoder) -> None:
    now_s = 50.0
    options = EngineOptions(kv_blocks=12, knobs=KNOBS, ceilings=CEILINGS, kernels="eager")
    engine = Engine(decoder, options, clock=lambda: now_s)
    engine.add(replace(request("long", prompt=20), arrival_s=47.0))
    engine.add(replace(request("short", prompt=5), arrival_s=49.5))
    engine.step()
    last = engine.stats().last
    assert (last.chunks, last.partial_prefills, last.queue_delays_s) == ((16, 5), 1, (3.0, 0.5))
    assert last.path == "eager"
    engine.step()
    last = engine.stats().last
    assert (last.chunks, last.partial_prefills, last.queue_delays_s) == ((4,), 0, ())


def test_a_reading_tells_cancels_by_phase_and_stops_are_none(engine: Engine) -> None:
    for name in ("cancelled", "stopped"):
        engine.add(request(name))
    engine.step()
    engine.stop("stopped")
    engine.cancel("cancelled")
    stats = engine.stats()
    assert {phase: number for phase, number in stats.cancels.items() if number} == {"decoding": 1}
    assert (stats.cancelled_tokens, stats.running, stats.kv_blocks_free) == (6, 0, 12)


def test_debts_are_told_while_tenants_wait_and_end_with_the_last_of_them(decoder: Decoder) -> None:
    knobs = KNOBS.model_copy(update={"running_sequences": 1})
    engine = Engine(decoder, EngineOptions(kv_blocks=12, knobs=knobs, ceilings=CEILINGS))
    for name in ("a", "b", "c"):
        engine.add(replace(request(name, max_tokens=1), tenant=name))
    engine.step()
    assert engine.stats().tenant_debts == {"b": 0.0, "c": 0.0}
    drain(engine)
    assert engine.stats().tenant_debts == {}


class Stopwatch:
    """A clock that goes on only while iterations run."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def tick(self, _: Plan) -> None:
        self.now_s += 0.1


@pytest.mark.parametrize("ahead", [False, True])
def test_where_a_running_request_is_rejected_another_takes_its_place_at_once(decoder: Decoder, *, ahead: bool) -> None:
    clock = Stopwatch()
    limits = {"token_budget": 64, "chunk_size": 5, "running_sequences": 2}
    policies = Policies(
        slack=Slack(unreachable="reject", doubt_percent=0), victim=Victim(deadline_points=0.0, recompute_points=0.0)
    )
    knobs = PodKnobs(generation=1, policies=policies, **limits)
    options = EngineOptions(20, knobs, Ceilings(**limits), block_size=4, prefix_reuse=False, plan_ahead=ahead)
    engine = Engine(decoder, options, clock)
    ZombieWatch(engine, clock.tick)
    for number in range(4):
        engine.add(request(f"lesson {number}", 20, 8))
    drain(engine)
    engine.add(request("grows", 2, 60))
    for _ in range(16):
        engine.step()
    # It is within reach unless what is computed of it must be computed again, and takes all the KV that is left.
    late = replace(request("late", 56, 1), arrival_s=clock.now_s, deadline_s=clock.now_s + 1.6)
    engine.add(late)
    engine.add(request("next", 1, 1))
    events = drain(engine)
    assert [(event.finish_reason, event.output_tokens) for event in events["late"]] == [(FinishReason.REJECTED, 0)]
    assert [len(tokens(events[name])) for name in ("grows", "next")] == [60 - 16, 1]
    assert leaks(engine) == 0


def failing(engine: Engine, monkeypatch: pytest.MonkeyPatch, what: str = "launch") -> None:
    def fail(*_: object) -> None:
        raise RuntimeError(f"{what} fails")

    monkeypatch.setattr(engine._runner, what, fail)


@pytest.mark.parametrize("what", ["launch", "collect"])
def test_an_iteration_that_fails_ends_its_requests_and_the_next_one_is_as_ever(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    engine.add(request("a"))
    expected = tokens(drain(engine)["a"])
    for name in "abcde":
        engine.add(request(name, max_tokens=1 if name == "b" else 6))
    before = engine.stats()
    with monkeypatch.context() as patch:
        failing(engine, patch, what)
        events = engine.step()
    assert [(event.request_id, event.token_ids, event.finish_reason) for event in events] == [
        (name, (), FinishReason.ERROR) for name in "abcd"
    ]
    left = drain(engine)
    assert [tokens(left[name]) for name in left] == [expected]
    stats = engine.stats()
    assert (stats.failed_iterations, stats.kv_blocks_free) == (1, 12)
    assert stats.iterations - before.iterations == 6, "a failed iteration is none of those that computed"


@pytest.mark.parametrize("good", [0, 1])
def test_the_third_failure_in_a_row_goes_on_to_the_caller(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, good: int
) -> None:
    for number in range(2):
        engine.add(request(str(number)))
        with monkeypatch.context() as patch:
            failing(engine, patch)
            assert [event.finish_reason for event in engine.step()] == [FinishReason.ERROR]
    engine.add(request("last"))
    for _ in range(good):
        engine.step()
    failing(engine, monkeypatch)
    if good:
        assert [event.finish_reason for event in engine.step()] == [FinishReason.ERROR]
    else:
        with pytest.raises(RuntimeError, match="launch fails"):
            engine.step()


def test_a_fault_that_the_device_does_not_recover_from_goes_on_to_the_caller_at_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.add(request("a"))
    failing(engine, monkeypatch, "collect")
    failing(engine, monkeypatch, "settle")
    with pytest.raises(RuntimeError, match="settle fails"):
        engine.step()


def test_a_request_whose_own_processing_fails_ends_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.add(request("b"))
    expected = tokens(drain(engine)["b"])
    extend = Engine._extend_keys

    def extend_or_fail(self: Engine, request: Request) -> None:
        if (request.request_id, request.generated) == ("a", 2):
            raise RuntimeError("a request fails")
        extend(self, request)

    monkeypatch.setattr(Engine, "_extend_keys", extend_or_fail)
    for name in "ab":
        engine.add(request(name))
    events = drain(engine)
    assert [event.finish_reason for event in events["a"]] == [None, FinishReason.ERROR]
    assert tokens(events["b"]) == expected
    stats = engine.stats()
    assert (stats.failed_iterations, stats.kv_blocks_free) == (0, 12)


def test_who_is_rejected_by_the_plan_made_while_its_token_is_drawn_ends_once(
    ahead: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        ahead.add(request(name))
    ahead.step()
    ahead.launch()
    ahead.plan()
    plan = ahead._next
    assert plan is not None
    # As where nothing else would give a block: see Scheduler._grow.
    scheduler = ahead._scheduler
    rejected = scheduler.running["a"]
    scheduler._finish(rejected, FinishReason.REJECTED)
    plan.rejected.append(rejected)
    events = ahead.collect()
    events += ahead.step()
    assert [event.finish_reason for event in events if event.request_id == "a"] == [FinishReason.REJECTED]
    assert len(drain(ahead)["b"]) + sum(event.request_id == "b" for event in events) == 5
