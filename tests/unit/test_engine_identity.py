"""The engine's greedy tokens are those of transformers, however the work is cut into iterations."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
import torch
from leeway_core.policies import Policies, SkipJoin
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.weights import load_decoder
from reference_tokens import MODELS, Setting, generate, random_prompts, reference, save_model

LENGTHS = (1, 15, 16, 17, 33, 50)
OUTPUT = 20
PUSHES = ((2, 9, 1), (5, 40, 17), (9, 8, 7), (14, 64, 64))


@dataclass(frozen=True, slots=True)
class Example:
    decoder: Decoder
    prompts: list[list[int]]
    expected: list[list[int]]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Example]:
    @cache
    def make(name: str) -> Example:
        folder: Path = tmp_path_factory.mktemp(name)
        model = save_model(name, folder)
        prompts = random_prompts(LENGTHS, model.config.vocab_size, seed=1)
        expected = [reference(model, prompt, OUTPUT).tokens for prompt in prompts]
        assert len({token for tokens in expected for token in tokens}) >= 8
        return Example(load_decoder(folder, torch.float64), prompts, expected)

    return make


@pytest.mark.parametrize("chunk_size", [1, 15, 64])
@pytest.mark.parametrize("name", MODELS)
def test_tokens_do_not_depend_on_chunks_and_batch_mates(
    example: Callable[[str], Example], name: str, chunk_size: int
) -> None:
    case = example(name)
    for plan_ahead in (False, True):
        setting = Setting(chunk_size, plan_ahead=plan_ahead)
        assert generate(case.decoder, case.prompts, OUTPUT, setting).tokens == case.expected


@pytest.mark.parametrize("name", MODELS)
def test_tokens_do_not_depend_on_knobs_changed_in_mid_request(example: Callable[[str], Example], name: str) -> None:
    case = example(name)
    for plan_ahead in (False, True):
        setting = Setting(chunk_size=13, pushes=PUSHES, plan_ahead=plan_ahead)
        outcome = generate(case.decoder, case.prompts, OUTPUT, setting)
        assert outcome.tokens == case.expected
        # The plan that is made already when knobs come keeps the old ones, and no other.
        made = [1] * plan_ahead
        assert outcome.generations[:15] == (made + [1] * 2 + [2] * 3 + [3] * 4 + [4] * 5 + [5])[:15]


@pytest.mark.parametrize("plan_ahead", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_tokens_do_not_depend_on_preemption(example: Callable[[str], Example], name: str, plan_ahead: bool) -> None:
    case = example(name)
    setting = Setting(chunk_size=17, kv_blocks=12, plan_ahead=plan_ahead)
    outcome = generate(case.decoder, case.prompts, OUTPUT, setting)
    assert outcome.tokens == case.expected
    assert outcome.preemptions > 0


@pytest.mark.parametrize("plan_ahead", [False, True])
@pytest.mark.parametrize("swap_blocks", [0, 12])
@pytest.mark.parametrize("prefix_reuse", [False, True])
def test_tokens_do_not_depend_on_standing_back_for_others(
    example: Callable[[str], Example], prefix_reuse: bool, swap_blocks: int, plan_ahead: bool
) -> None:
    case = example("llama-tied")
    policies = Policies(ranking=SkipJoin(first_quantum_tokens=1, promotion_iterations=6))
    setting = Setting(17, running_sequences=2, policies=policies, swap_blocks=swap_blocks, plan_ahead=plan_ahead)
    outcome = generate(case.decoder, case.prompts, OUTPUT, replace(setting, prefix_reuse=prefix_reuse))
    assert outcome.tokens == case.expected
    assert outcome.preemptions > 0, "and there was KV for all"
    assert (outcome.swapped_in_blocks > 0) == (swap_blocks > 0)


@pytest.mark.parametrize("name", MODELS)
def test_tokens_do_not_depend_on_found_prefixes_and_swaps(example: Callable[[str], Example], name: str) -> None:
    case = example(name)
    setting = Setting(chunk_size=17, kv_blocks=12, repeated=True, swap_blocks=12)
    outcome = generate(case.decoder, case.prompts, OUTPUT, setting)
    assert outcome.tokens == case.expected
    assert outcome.hit_tokens > 0
    assert outcome.swapped_in_blocks > 0


@pytest.mark.parametrize("plan_ahead", [False, True])
@pytest.mark.parametrize("swap_blocks", [0, 4, 12])
@pytest.mark.parametrize("kv_blocks", [12, 64])
@pytest.mark.parametrize(("prefix_reuse", "repeated"), [(False, False), (True, False), (True, True)])
def test_tokens_do_not_depend_on_how_prefixes_and_preemptions_meet(
    example: Callable[[str], Example],
    prefix_reuse: bool,
    repeated: bool,
    kv_blocks: int,
    swap_blocks: int,
    plan_ahead: bool,
) -> None:
    case = example("qwen3-tied-wide-heads")
    setting = Setting(16, 64, 8, kv_blocks, (), prefix_reuse, repeated, swap_blocks, plan_ahead=plan_ahead)
    outcome = generate(case.decoder, case.prompts, OUTPUT, setting)
    assert outcome.tokens == case.expected
    assert (outcome.preemptions > 0) == (kv_blocks == 12)
    assert outcome.swapped_in_blocks > 0 or not (outcome.preemptions and swap_blocks)
    assert (outcome.hit_tokens > 0) == repeated
