"""Rotary position embedding."""

import math

import torch
from torch import Tensor

from leeway_engine.model.config import ModelConfig, RopeScaling


def rotary_tables(config: ModelConfig, positions: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position, [positions, head_dim / 2], in float32 as the models were trained."""
    exponents = torch.arange(0, config.head_dim, 2, device="cpu").float() / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    if config.rope_scaling is not None:
        frequencies = _scaled(frequencies, config.rope_scaling)
    angles = torch.outer(torch.arange(positions, device="cpu").float(), frequencies)
    return angles.cos(), angles.sin()


def rotate(heads: Tensor, cosines: Tensor, sines: Tensor) -> None:
    """Turn each head of [tokens, heads, head_dim] by its token's angles, in place."""
    first, second = heads.chunk(2, dim=-1)
    turned = first * cosines - second * sines
    second.copy_(second * cosines + first * sines)
    first.copy_(turned)


def _scaled(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    if scaling.divisors:
        return frequencies / torch.tensor(scaling.divisors, device="cpu")
    slow = frequencies / scaling.factor
    if scaling.kind == "linear":
        return slow
    # Llama 3: long waves are stretched, short ones kept, and those between are blended.
    turns = scaling.original_context * frequencies / (2 * math.pi)
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - kept) * slow + kept * frequencies
