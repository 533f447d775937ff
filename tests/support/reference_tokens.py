"""Tiny models of random weights, the tokens that transformers makes of them, and the tokens that the engine makes."""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_core.policies import Policies
from leeway_engine.engine import Engine, EngineOptions
from leeway_engine.messages import GenerationRequest, Sampling
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.gguf_file import GgufFile
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen3Config
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

BLOCK_SIZE = 16
TURN_ITERATIONS = 5
TIE = 1e-3
"""The reference's two best logits are a tie if they are no further apart."""
LEAST_DISTINCT = 8
"""An answer of fewer different tokens says too little to tell right from wrong."""
FIRST_COME = Policies()
SIZES: dict[str, Any] = {
    "vocab_size": 211,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": None,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
MODELS = {
    "llama-tied": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "llama-untied-one-kv-head": LlamaConfig(**SIZES | {"num_key_value_heads": 1}, tie_word_embeddings=False),
    "llama-no-sharing-biases": LlamaConfig(**SIZES | {"num_key_value_heads": 4}, attention_bias=True),
    "llama3-rope-wide-heads": LlamaConfig(**SIZES, head_dim=20, rope_parameters=LLAMA3_ROPE),
    "qwen2-tied": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen2-untied": Qwen2Config(**SIZES, tie_word_embeddings=False),
    "qwen3-tied-wide-heads": Qwen3Config(**SIZES, head_dim=24, tie_word_embeddings=True),
    "qwen3-untied-narrow-heads": Qwen3Config(**SIZES, head_dim=8, tie_word_embeddings=False),
}


def save_model(name: str, folder: Path) -> PreTrainedModel:
    """Make one of the models in float64, every weight random, and save it."""
    torch.manual_seed(sum(name.encode()))
    model: PreTrainedModel = AutoModelForCausalLM.from_config(MODELS[name]).double().eval()
    with torch.no_grad():
        for weight_name, weight in model.named_parameters():
            # Large enough that attention is sharp: a wrong key or position shows in the next token.
            weight.normal_(1.0 if "norm" in weight_name else 0.0, 0.3)
    model.save_pretrained(folder)
    return model


@dataclass(frozen=True, slots=True)
class Reference:
    """What transformers generates greedily, and how far the second best logit lay behind at each token."""

    tokens: list[int]
    margins: list[float]

    def place_of_difference(self, tokens: Sequence[int]) -> int | None:
        """Where the first of other tokens stands, None if there is none."""
        differs = [ours != theirs for ours, theirs in zip(tokens, self.tokens, strict=True)]
        return differs.index(True) if True in differs else None

    def agrees(self, tokens: Sequence[int]) -> bool:
        """Whether these tokens are the same up to the first tie."""
        place = self.place_of_difference(tokens)
        return place is None or self.margins[place] < TIE


def check_telling(name: str, expected: Sequence[Reference]) -> None:
    """Each answer must have enough different tokens."""
    for number, answer in enumerate(expected):
        distinct = set(answer.tokens)
        assert len(distinct) >= LEAST_DISTINCT, f"answer {number} of {name} has no more tokens than {distinct}"


def reference(model: PreTrainedModel, prompt: Sequence[int], length: int) -> Reference:
    """Let transformers continue one prompt alone."""
    answer = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones((1, len(prompt)), dtype=torch.long),
        max_new_tokens=length,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
        pad_token_id=0,
    )
    best = torch.stack(answer.logits)[:, 0].topk(2).values
    return Reference(answer.sequences[0, len(prompt) :].tolist(), (best[:, 0] - best[:, 1]).tolist())


@dataclass(frozen=True, slots=True)
class Setting:
    """How the engine is to be run."""

    chunk_size: int
    token_budget: int = 64
    running_sequences: int = 8
    kv_blocks: int = 64
    pushes: tuple[tuple[int, int, int], ...] = ()
    """Token budgets and chunk sizes by the iteration before which they are pushed, each time the prompts are asked."""
    prefix_reuse: bool = True
    repeated: bool = False
    """Whether the prompts are asked a second time, to find their own prefixes; the second answers count."""
    swap_blocks: int = 0
    policies: Policies = FIRST_COME
    turns: tuple[Policies, ...] = ()
    """Policies that are pushed one after another, every TURN_ITERATIONS, each time the prompts are asked."""
    plan_ahead: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """Tokens of each prompt, and what happened on the way, both times if they were asked twice."""

    tokens: list[list[int]]
    generations: list[int]
    preemptions: int
    hit_tokens: int
    """Prompt tokens found in KV."""
    swapped_in_blocks: int


def generate(decoder: Decoder, prompts: Sequence[Sequence[int]], length: int, setting: Setting) -> Outcome:
    """Let the engine continue all prompts together; afterwards nothing may be held any more."""
    knobs = PodKnobs(
        generation=1,
        token_budget=setting.token_budget,
        chunk_size=setting.chunk_size,
        running_sequences=setting.running_sequences,
        policies=setting.policies,
    )
    ceilings = Ceilings(token_budget=4096, chunk_size=4096, running_sequences=setting.running_sequences)
    options = EngineOptions(setting.kv_blocks, knobs, ceilings, BLOCK_SIZE)
    options = replace(options, prefix_reuse=setting.prefix_reuse, swap_blocks=setting.swap_blocks)
    options = replace(options, plan_ahead=setting.plan_ahead)
    # Where host memory is to be used, no time passes: then moving is never slower than computing again.
    engine = Engine(decoder, options, (lambda: 0.0) if setting.swap_blocks else time.monotonic)
    generations = []
    order = list(range(len(prompts)))
    for again in range(1 + setting.repeated):
        tokens: dict[str, list[int]] = {str(number): [] for number in range(len(prompts))}
        ended: list[int] = []
        begun = engine.stats().iterations
        while order or engine.has_work:
            # Where KV is short, what ended last is still there: it comes an iteration before the others.
            come = 1 if again and engine.stats().iterations == begun else len(order)
            for number in order[:come]:
                engine.add(GenerationRequest(str(number), prompts[number], length, Sampling(temperature=0)))
            del order[:come]
            for changes in _pushed(setting, engine.stats().iterations - begun):
                knobs = knobs.model_copy(update=changes | {"generation": knobs.generation + 1})
                assert engine.set_knobs(knobs).refusal is None
            for event in engine.step():
                tokens[event.request_id] += event.token_ids
                ended += [int(event.request_id)] if event.finish_reason else []
            generations.append(engine.stats().last.knobs_generation)
        order = ended[::-1]
    stats = engine.stats()
    assert (stats.kv_blocks_free, stats.running, stats.waiting) == (setting.kv_blocks, 0, 0)
    return Outcome(
        list(tokens.values()), generations, stats.preemptions, stats.prefix_hit_tokens, stats.swapped_in_blocks
    )


def _pushed(setting: Setting, iteration: int) -> Iterator[dict[str, object]]:
    """Changes of the knobs that are pushed before this iteration."""
    for due, token_budget, chunk_size in setting.pushes:
        if due == iteration:
            yield {"token_budget": token_budget, "chunk_size": chunk_size}
    turn, rest = divmod(iteration, TURN_ITERATIONS)
    if not rest and 1 <= turn <= len(setting.turns):
        yield {"policies": setting.turns[turn - 1]}


def random_prompts(lengths: Sequence[int], vocabulary: int, seed: int) -> list[list[int]]:
    """Prompts of these lengths."""
    draw = random.Random(seed)
    return [[draw.randrange(vocabulary) for _ in range(length)] for length in lengths]


def transformers_twin(gguf: GgufFile) -> PreTrainedModel:
    """A Llama of transformers with the weights of a GGUF file, in float32."""
    config = gguf.config
    twin = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocabulary,
            hidden_size=config.hidden,
            intermediate_size=config.intermediate,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            max_position_embeddings=config.context,
            rms_norm_eps=config.norm_epsilon,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            tie_word_embeddings=config.tied_embeddings,
            bos_token_id=None,
            eos_token_id=None,
        )
    ).eval()
    weights = {name: torch.tensor(gguf.tensor(name)) for name, _ in twin.named_parameters()}
    twin.load_state_dict(weights, strict=False)
    return twin
