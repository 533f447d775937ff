"""Requests take the KV of equal prompts from each other, and no token of any answer changes for it."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_engine.engine import Engine, EngineOptions
from leeway_engine.messages import GenerationRequest, Sampling, TokenEvent
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.weights import load_decoder
from reference_tokens import BLOCK_SIZE, random_prompts, reference, save_model

OUTPUT = 20
CEILINGS = Ceilings(token_budget=64, chunk_size=64, running_sequences=8)
OPTIONS = EngineOptions(
    kv_blocks=32,
    knobs=PodKnobs(generation=1, token_budget=64, chunk_size=16, running_sequences=8),
    ceilings=CEILINGS,
    block_size=BLOCK_SIZE,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Decoder, list[int], list[int]]:
    """A decoder, a prompt of exactly three blocks, and the answer that transformers gives to it."""
    folder: Path = tmp_path_factory.mktemp("model")
    twin = save_model("llama-tied", folder)
    (prompt,) = random_prompts([3 * BLOCK_SIZE], 211, seed=3)
    return load_decoder(folder, torch.float64), prompt, reference(twin, prompt, OUTPUT).tokens


def ask(engine: Engine, name: str, prompt: list[int], salt: str = "", output: int = OUTPUT, **more: str) -> None:
    engine.add(GenerationRequest(name, prompt, output, Sampling(temperature=0), cache_salt=salt, **more))


def drain(engine: Engine) -> dict[str, list[TokenEvent]]:
    events: dict[str, list[TokenEvent]] = {}
    while engine.has_work:
        for event in engine.step():
            events.setdefault(event.request_id, []).append(event)
    reading = engine.stats()
    assert reading.kv_blocks_free == reading.kv_blocks_total
    return events


def tokens(events: list[TokenEvent]) -> list[int]:
    return [token for event in events for token in event.token_ids]


def test_a_repeated_block_aligned_prompt_computes_one_token_and_says_so(
    model: tuple[Decoder, list[int], list[int]],
) -> None:
    decoder, prompt, expected = model
    engine = Engine(decoder, OPTIONS)
    for cached in (0, 47, 47):
        before = engine.stats()
        ask(engine, "r", prompt)
        events = drain(engine)["r"]
        assert tokens(events) == expected
        assert {event.cached_tokens for event in events} == {cached}
        assert engine.stats().prefill_tokens - before.prefill_tokens == 48 - cached
    reading = engine.stats()
    assert (reading.prefix_queried_tokens, reading.prefix_hit_tokens) == (144, 94)
    assert reading.kv_blocks_cached == 4, "three blocks of the prompt, one of the answer"


@pytest.mark.parametrize("length", [33, 47, 48, 49, 63])
def test_a_prompt_that_goes_on_differently_shares_full_blocks_alone(
    model: tuple[Decoder, list[int], list[int]], length: int
) -> None:
    decoder, prompt, expected = model
    answered = [*prompt, *expected]
    engine, fresh = Engine(decoder, OPTIONS), Engine(decoder, replace(OPTIONS, prefix_reuse=False))
    ask(engine, "first", prompt)
    drain(engine)
    other = [*answered[: length - 1], (answered[length - 1] + 1) % 211]
    ask(engine, "other", other)
    ask(fresh, "other", other)
    events, unshared = drain(engine)["other"], drain(fresh)["other"]
    assert tokens(events) == tokens(unshared)
    assert (events[0].cached_tokens, unshared[0].cached_tokens) == ((length - 1) // BLOCK_SIZE * BLOCK_SIZE, 0)


def test_a_conversation_goes_on_from_the_answer_before(model: tuple[Decoder, list[int], list[int]]) -> None:
    decoder, prompt, expected = model
    engine = Engine(decoder, OPTIONS)
    ask(engine, "first", prompt, output=OUTPUT - 3)
    drain(engine)
    ask(engine, "second", [*prompt, *expected[: OUTPUT - 3]], output=3)
    events = drain(engine)["second"]
    assert (tokens(events), events[0].cached_tokens) == (expected[-3:], 64)


def test_equal_prompts_at_once_and_one_behind_them(model: tuple[Decoder, list[int], list[int]]) -> None:
    decoder, prompt, expected = model
    engine = Engine(decoder, OPTIONS)
    ask(engine, "a", prompt)
    ask(engine, "b", prompt)
    engine.step()
    ask(engine, "late", prompt)
    events = drain(engine)
    assert [tokens(events[name]) for name in ("a", "b", "late")] == [expected] * 3
    assert [events[name][0].cached_tokens for name in ("a", "b", "late")] == [0, 0, 16]


def test_the_prefix_of_a_request_cancelled_in_mid_prefill(model: tuple[Decoder, list[int], list[int]]) -> None:
    decoder, prompt, expected = model
    engine = Engine(decoder, OPTIONS)
    ask(engine, "gone", prompt)
    engine.step()
    engine.step()
    engine.cancel("gone")
    ask(engine, "again", prompt)
    events = drain(engine)["again"]
    assert (tokens(events), events[0].cached_tokens) == (expected, 32)


def test_evicted_prefixes_are_computed_again(model: tuple[Decoder, list[int], list[int]]) -> None:
    decoder, prompt, expected = model
    engine = Engine(decoder, replace(OPTIONS, kv_blocks=6))
    cached = []
    for others in ([], random_prompts([20], 211, seed=4), random_prompts([80], 211, seed=5)):
        for other in others:
            ask(engine, "other", other, output=10)
        drain(engine)
        ask(engine, "r", prompt)
        events = drain(engine)["r"]
        assert tokens(events) == expected
        cached.append(events[0].cached_tokens)
    assert cached == [0, 47, 0]


def test_salted_tenants_share_nothing(model: tuple[Decoder, list[int], list[int]]) -> None:
    decoder, prompt, expected = model
    engine = Engine(decoder, OPTIONS)
    for salt, cached in (("", 0), ("a", 0), ("b", 0), ("a", 47)):
        ask(engine, "r", prompt, salt)
        events = drain(engine)["r"]
        assert (tokens(events), events[0].cached_tokens) == (expected, cached)


@pytest.mark.parametrize("swap_blocks", [0, 8])
def test_a_preempted_request_finds_its_own_blocks_again(
    model: tuple[Decoder, list[int], list[int]], swap_blocks: int
) -> None:
    decoder, prompt, expected = model
    # No time passes, so moving is never slower than computing again.
    engine = Engine(decoder, replace(OPTIONS, kv_blocks=8, swap_blocks=swap_blocks), clock=lambda: 0.0)
    (other,) = random_prompts([46], 211, seed=6)
    ask(engine, "first", other, output=30)
    ask(engine, "second", prompt)
    events = drain(engine)
    reading = engine.stats()
    assert tokens(events["second"]) == expected
    assert len(events["first"]) == 30
    assert reading.preemptions > 0
    computed_anew = reading.prefill_tokens - len(other) - len(prompt)
    assert computed_anew < len(prompt)
    if swap_blocks:
        assert 0 < reading.swapped_in_blocks <= reading.swapped_out_blocks
        assert computed_anew == reading.preemptions


@pytest.mark.parametrize("seed", range(2))
def test_a_storm_of_arrivals_and_cancels_leaks_no_block_and_changes_no_token(
    model: tuple[Decoder, list[int], list[int]], seed: int
) -> None:
    decoder, prompt, _ = model
    draw = Random(seed)
    prompts = [prompt[:length] for length in (17, 32, 40, 48)] + random_prompts([16, 30], 211, seed=7)
    alone = Engine(decoder, replace(OPTIONS, prefix_reuse=False))
    expected = []
    for each in prompts:
        ask(alone, "r", each)
        expected.append(tokens(drain(alone)["r"]))
    engine = Engine(decoder, replace(OPTIONS, kv_blocks=8, swap_blocks=4), clock=lambda: 0.0)
    asked: dict[str, int] = {}
    answers: dict[str, list[int]] = {}
    for number in range(200):
        if draw.random() < 0.3:
            asked[str(number)] = draw.randrange(len(prompts))
            answers[str(number)] = []
            ask(engine, str(number), prompts[asked[str(number)]])
        if asked and draw.random() < 0.12:
            cancelled = draw.choice(list(asked))
            engine.cancel(cancelled)
            del asked[cancelled]
        for event in engine.step():
            answers[event.request_id] += event.token_ids
    for name, events in drain(engine).items():
        answers[name] += tokens(events)
    assert len(asked) > 10
    assert all(answers[name] == expected[place] for name, place in asked.items())
    reading = engine.stats()
    assert (reading.running, reading.waiting, reading.swap_blocks_used) == (0, 0, 0)
    assert min(reading.preemptions, reading.prefix_hit_tokens, reading.swapped_in_blocks) > 0


def test_reuse_can_be_turned_off(model: tuple[Decoder, list[int], list[int]]) -> None:
    decoder, prompt, expected = model
    engine = Engine(decoder, replace(OPTIONS, prefix_reuse=False))
    for _ in range(2):
        ask(engine, "r", prompt)
        events = drain(engine)["r"]
        assert (tokens(events), events[0].cached_tokens) == (expected, 0)
    assert (engine.stats().kv_blocks_cached, engine.stats().prefix_hit_tokens) == (0, 0)


def test_tenants_salts_and_tool_schemas_share_nothing_however_their_names_are_put_together(
    model: tuple[Decoder, list[int], list[int]],
) -> None:
    decoder, prompt, expected = model
    engine = Engine(decoder, OPTIONS)
    askers = (
        {},
        {"tenant": "ab"},
        {"salt": "ab"},
        {"tool_schema": "ab"},
        {"tenant": "a", "salt": "b"},
        {"tenant": "b", "salt": "a"},
        {"tenant": "a", "tool_schema": "b"},
    )
    for asker in askers:
        for found in (0, 1):
            hits = engine.stats().prefix_hit_tokens
            ask(engine, "r", prompt, output=2, **asker)
            assert tokens(drain(engine)["r"]) == expected[:2]
            assert (engine.stats().prefix_hit_tokens > hits) == bool(found), asker
