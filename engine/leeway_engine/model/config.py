"""The shape of a decoder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class UnsupportedModelError(Exception):
    """The model's files ask for something that this engine does not have."""


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How rotary frequencies are stretched for long contexts: kind is linear, llama3 or divisors."""

    kind: str
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_context: int = 8192
    divisors: tuple[float, ...] = ()
    """One for each frequency, as GGUF has them."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """What tells one decoder of the family from another."""

    architecture: str
    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    norm_epsilon: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    tied_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    qk_norm: bool


def config_from_huggingface(values: Mapping[str, Any]) -> ModelConfig:
    """Read the values of a `config.json`."""
    architecture = values["model_type"]
    if architecture not in ("llama", "qwen2", "qwen3"):
        raise UnsupportedModelError(f"model_type {architecture!r} is not supported; use a llama, qwen2 or qwen3 model")
    if values.get("hidden_act", "silu") != "silu" or values.get("mlp_bias") or values.get("use_sliding_window"):
        raise UnsupportedModelError("hidden_act other than silu, mlp_bias and use_sliding_window are not supported")
    rope = values.get("rope_parameters") or {
        "rope_theta": values.get("rope_theta", 10000.0),
        **(values.get("rope_scaling") or {}),
    }
    attention_bias = bool(values.get("attention_bias", False))
    return ModelConfig(
        architecture=architecture,
        vocabulary=values["vocab_size"],
        hidden=values["hidden_size"],
        intermediate=values["intermediate_size"],
        layers=values["num_hidden_layers"],
        heads=values["num_attention_heads"],
        kv_heads=values.get("num_key_value_heads") or values["num_attention_heads"],
        head_dim=values.get("head_dim") or values["hidden_size"] // values["num_attention_heads"],
        context=values["max_position_embeddings"],
        norm_epsilon=values["rms_norm_eps"],
        rope_theta=rope["rope_theta"],
        rope_scaling=_rope_scaling(rope),
        tied_embeddings=bool(values.get("tie_word_embeddings", False)),
        qkv_bias=attention_bias or architecture == "qwen2",
        output_bias=attention_bias and architecture != "qwen2",
        qk_norm=architecture == "qwen3",
    )


def _rope_scaling(rope: Mapping[str, Any]) -> RopeScaling | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling(kind, rope["factor"])
    if kind == "llama3":
        return RopeScaling(
            kind,
            rope["factor"],
            rope["low_freq_factor"],
            rope["high_freq_factor"],
            rope["original_max_position_embeddings"],
        )
    raise UnsupportedModelError(f"rope scaling {kind!r} is not supported; only linear and llama3 are")
