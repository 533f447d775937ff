"""What is recorded of traced requests on their way through the engine."""

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_engine.engine import Engine, EngineOptions
from leeway_engine.event_recorder import EventRecorder
from leeway_engine.messages import GenerationRequest, Sampling
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.weights import load_decoder
from leeway_engine.request_event import RequestEvent
from leeway_engine.scheduling.request import RequestRejected
from reference_tokens import save_model

KNOBS = PodKnobs(generation=1, token_budget=32, chunk_size=16, running_sequences=4)
CEILINGS = Ceilings(token_budget=64, chunk_size=64, running_sequences=8)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    folder: Path = tmp_path_factory.mktemp("model")
    save_model("qwen3-tied-wide-heads", folder)
    return load_decoder(folder, torch.float32)


def engine_of(decoder: Decoder, share: float = 1.0, **options: int) -> Engine:
    settings = {"kv_blocks": 12, "block_size": 4, **options}
    return Engine(decoder, EngineOptions(knobs=KNOBS, ceilings=CEILINGS, event_share=share, **settings))


def request(name: str, prompt: int = 20, max_tokens: int = 3) -> GenerationRequest:
    return GenerationRequest(
        name, list(range(1, prompt + 1)), max_tokens, Sampling(temperature=0), slo_class="chat", tenant="secret tenant"
    )


def drained(engine: Engine) -> list[RequestEvent]:
    events = engine.take_events()
    while engine.has_work:
        engine.step()
        events += engine.take_events()
    return events


def names(events: list[RequestEvent], request_id: str) -> list[str]:
    return [event.event for event in events if event.request_id == request_id]


@pytest.mark.parametrize("plan_ahead", [False, True])
def test_a_request_is_followed_from_its_arrival_to_its_end(decoder: Decoder, *, plan_ahead: bool) -> None:
    engine = engine_of(decoder, plan_ahead=plan_ahead)
    engine.add(request("a"))
    events = drained(engine)
    seen = [(e.event, e.phase, e.scheduled_tokens, e.computed_tokens, e.remaining_tokens) for e in events]
    assert seen == [
        ("arrived", "waiting", 0, 0, 20),
        ("admitted", "prefilling", 0, 16, 4),
        ("chunk", "prefilling", 16, 16, 4),
        ("chunk", "decoding", 4, 20, 0),
        ("first_token", "decoding", 0, 20, 0),
        ("finished", "decoding", 0, 22, 0),
    ]
    assert [event.priority_reason for event in events] == [
        "",
        "first_come: arrival 1",
        "first_come: arrival 1",
        "started",
        "",
        "",
    ]
    last = events[-1]
    assert (last.reason, last.output_tokens, last.prompt_tokens, last.max_tokens) == ("length", 3, 20, 3)
    assert {event.slo_class for event in events} == {"chat"}
    assert [event.time_s for event in events] == sorted(event.time_s for event in events)
    chunk = events[2]
    assert (chunk.active_decodes, chunk.token_budget, chunk.predicted_ms, chunk.kv_blocks_free) == (0, 32, 0.0, 7)


def test_a_line_tells_nothing_of_the_prompt_but_a_digest_that_equal_beginnings_share(decoder: Decoder) -> None:
    engine = engine_of(decoder)
    engine.add(request("a"))
    engine.add(replace(request("b"), prompt_token_ids=[*range(1, 17), 77, 78, 79, 80]))
    engine.add(replace(request("c"), cache_salt="other"))
    events = drained(engine)
    prefixes = {event.request_id: event.prefix for event in events}
    assert prefixes["a"] == prefixes["b"] != prefixes["c"]
    assert len(bytes.fromhex(prefixes["a"])) == 8
    fields = set(msgspec.json.decode(msgspec.json.encode(events[2])))
    assert fields <= set(RequestEvent.__struct_fields__)
    assert b"secret" not in msgspec.json.encode(events)


def test_nothing_is_recorded_of_what_is_not_traced(decoder: Decoder) -> None:
    engine = engine_of(decoder, share=0.0)
    engine.add(request("a"))
    with pytest.raises(RequestRejected):
        engine.add(request("too long", prompt=20, max_tokens=10_000))
    assert drained(engine) == []


def test_a_share_of_the_requests_is_traced_each_wholly_and_the_same_in_every_process() -> None:
    traced = [number for number in range(4000) if EventRecorder(0.25).traces(f"cmpl-{number}")]
    assert traced[:3] == [1, 2, 7]
    assert 900 < len(traced) < 1100
    more = EventRecorder(0.5)
    assert all(more.traces(f"cmpl-{number}") for number in traced)
    assert all(EventRecorder(1.0).traces(f"cmpl-{number}") for number in range(100))


def test_refused_and_cancelled_requests_say_why_and_where_they_were(decoder: Decoder) -> None:
    engine = engine_of(decoder)
    with pytest.raises(RequestRejected):
        engine.add(request("too long", max_tokens=10_000))
    engine.add(request("runs", max_tokens=20))
    engine.add(request("waits"))
    engine.step()
    engine.cancel("runs")
    engine.cancel("waits")
    ends = {event.request_id: (event.event, event.phase, event.reason) for event in drained(engine)}
    assert ends == {
        "too long": ("rejected", "waiting", "context_length_exceeded"),
        "runs": ("cancelled", "prefilling", "cancel"),
        "waits": ("cancelled", "prefilling", "cancel"),
    }


@pytest.mark.parametrize("plan_ahead", [False, True])
@pytest.mark.parametrize("swap_blocks", [0, 32])
def test_a_preempted_request_is_followed_on_its_way_out_and_back(
    decoder: Decoder, swap_blocks: int, *, plan_ahead: bool
) -> None:
    engine = engine_of(decoder, kv_blocks=9, swap_blocks=swap_blocks, plan_ahead=plan_ahead)
    for name in ("a", "b"):
        engine.add(request(name, prompt=14, max_tokens=12))
    events = drained(engine)
    out, back = ["swapped_out"] * bool(swap_blocks), ["swapped_in"] * bool(swap_blocks)
    seen = names(events, "b")
    first = seen.index("preempted")
    assert seen[first : first + 3 + 2 * bool(swap_blocks)] == ["preempted", *out, *back, "resumed", "chunk"]
    assert names(events, "a").count("preempted") == 0
    counted = Counter(seen)
    assert counted["preempted"] == counted["resumed"] >= 1
    assert (counted["first_token"], counted["admitted"], counted["finished"]) == (1, 1, 1)
    reasons = {event.priority_reason for event in events if event.event == "preempted"}
    assert reasons == {"last in the ranking"}


def test_a_fault_is_an_end_of_its_own_with_where_the_request_was(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(decoder)
    engine.add(request("a"))
    engine.step()

    def fail(*_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(engine._runner, "launch", fail)
    events = drained(engine)
    assert names(events, "a") == ["arrived", "admitted", "chunk", "failed"]
    assert (events[-1].reason, events[-1].phase, events[-1].computed_tokens) == ("error", "prefilling", 16)


def test_a_chunk_is_recorded_once_it_is_computed(decoder: Decoder) -> None:
    engine = engine_of(decoder, plan_ahead=True)
    engine.add(request("a", prompt=5))
    engine.plan()
    engine.launch()
    engine.plan()
    assert [event.event for event in engine.take_events()] == ["arrived", "admitted"]
    before_s = time.time()
    engine.collect()
    chunk, first = engine.take_events()
    assert (chunk.event, chunk.phase, chunk.computed_tokens, chunk.output_tokens) == ("chunk", "decoding", 5, 1)
    assert (first.event, first.phase) == ("first_token", "decoding")
    assert before_s - 1e-6 <= chunk.time_s == first.time_s <= time.time() + 1e-6


def test_a_chunk_is_told_as_it_was_launched_also_if_the_next_plan_preempts_its_request(decoder: Decoder) -> None:
    engine = engine_of(decoder, kv_blocks=13, plan_ahead=True)
    engine.set_knobs(KNOBS.model_copy(update={"generation": 2, "chunk_size": 4}))
    engine.add(request("a", prompt=8, max_tokens=20))
    engine.add(replace(request("b"), prompt_token_ids=range(100, 140)))
    told = [event for event in drained(engine) if event.request_id == "b" and event.event != "arrived"]
    first = [event.event for event in told].index("preempted")
    chunks = [event.computed_tokens for event in told[1:first]]
    assert chunks == [4 * number for number in range(1, len(chunks) + 1)]
    assert told[first].computed_tokens == 0


def test_of_an_iteration_that_fails_at_its_end_no_chunk_and_no_token_is_recorded(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(decoder, plan_ahead=True)
    engine.add(request("a", prompt=5))

    def fail(*_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(engine._runner, "collect", fail)
    events = drained(engine)
    assert names(events, "a") == ["arrived", "admitted", "failed"]
    assert events[-1].phase == "prefilling"


def test_nothing_is_recorded_of_a_request_after_its_end_in_an_iteration_that_runs(decoder: Decoder) -> None:
    engine = engine_of(decoder, plan_ahead=True)
    for name in ("gone", "stays"):
        engine.add(request(name, prompt=5))
    engine.plan()
    engine.launch()
    engine.cancel("gone")
    engine.collect()
    events = engine.take_events()
    assert names(events, "gone") == ["arrived", "admitted", "cancelled"]
    assert names(events, "stays") == ["arrived", "admitted", "chunk", "first_token"]
