"""Draws the next token of each row of logits."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leeway_engine.batch_rows import BatchRows
from leeway_engine.model.spans import Ints

SHORTLIST = 1024
"""Most likely tokens that are sorted at first for top-p; the whole vocabulary only for rows of which they do not hold
its mass."""


@dataclass(frozen=True, slots=True)
class Draws:
    """How each row is drawn."""

    temperature: NDArray[np.float32]
    top_p: NDArray[np.float32]
    top_k: Ints
    min_p: NDArray[np.float32]
    uniform: NDArray[np.float64]

    @classmethod
    def of(cls, rows: BatchRows, row: Ints, position: Ints) -> "Draws":
        """Settings of these rows. The random number hangs on seed and position alone, never on batch mates."""
        uniform = uniform_numbers(rows.seed[row], position)
        return cls(rows.temperature[row], rows.top_p[row], rows.top_k[row], rows.min_p[row], uniform)


def uniform_numbers(seed: NDArray[np.uint64], position: Ints) -> NDArray[np.float64]:
    """Numbers in [0, 1) by SplitMix64."""
    mixed = seed + position.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def sample(logits: Tensor, draws: Draws) -> Tensor:
    """One token id for each row of [rows, vocabulary]; rows with temperature 0 get the most likely one."""
    # argmax gives the same, but takes four times as long on bfloat16.
    tokens = logits.max(dim=-1).indices
    cut = (draws.top_k > 0) | (draws.top_p < 1) | (draws.min_p > 0)
    warm = draws.temperature > 0
    for chosen, draw in ((warm & ~cut, _draw_from_all), (warm & cut, _draw_from_top)):
        if chosen.any():
            index = torch.from_numpy(np.flatnonzero(chosen)).to(logits.device)
            temperature, top_p, top_k, min_p, uniform = (
                torch.from_numpy(values[chosen]).to(logits.device)[:, None]
                for values in (draws.temperature, draws.top_p, draws.top_k, draws.min_p, draws.uniform)
            )
            tokens[index] = draw(logits[index].float() / temperature, _Cut(top_p, top_k, min_p), uniform)
    return tokens


class _Cut(NamedTuple):
    """What keeps a token from being drawn, [rows, 1] each."""

    top_p: Tensor
    top_k: Tensor
    min_p: Tensor


def _draw_from_all(logits: Tensor, _: _Cut, uniform: Tensor) -> Tensor:
    return _invert(logits.double().softmax(dim=-1), uniform)


def _draw_from_top(logits: Tensor, cut: _Cut, uniform: Tensor) -> Tensor:
    vocabulary = logits.shape[-1]
    width = min(SHORTLIST, vocabulary)
    tokens, short = _draw_from_likeliest(width, logits, cut, uniform)
    if width < vocabulary and short.any():
        # Only these rows: tied tokens come in another order here, and no draw may hang on what its mates need.
        wide = short.nonzero()[:, 0]
        cut = _Cut(*(values[wide] for values in cut))
        tokens[wide], _ = _draw_from_likeliest(vocabulary, logits[wide], cut, uniform[wide])
    return tokens


def _draw_from_likeliest(width: int, logits: Tensor, cut: _Cut, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Draw from that many tokens; also returns for which rows they may be too few."""
    vocabulary = logits.shape[-1]
    top_k = torch.where(cut.top_k > 0, cut.top_k.clamp(max=vocabulary), vocabulary)
    values, ids = logits.topk(width, dim=-1)
    rank = torch.arange(width, device=logits.device)
    values = values.double().masked_fill(rank >= top_k, -torch.inf)
    # Where the top-k lies within the shortlist its own mass counts as the whole, elsewhere the vocabulary's.
    whole = torch.where(top_k <= width, values.logsumexp(-1, True), logits.double().logsumexp(-1, True))
    likely = (values - whole).exp()
    before = likely.cumsum(dim=-1) - likely
    inside = (before < cut.top_p) & (rank < top_k) & (likely >= cut.min_p * likely[:, :1])
    kept = likely.masked_fill(~inside, 0)
    tokens = ids.gather(-1, _invert(kept / kept.sum(-1, True), uniform)[:, None])[:, 0]
    return tokens, (inside[:, -1:] & (top_k > width))[:, 0]


def _invert(likely: Tensor, uniform: Tensor) -> Tensor:
    """The first place where the cumulated likelihood passes the uniform number."""
    cumulated = likely.cumsum(dim=-1)
    # Rounding may leave the sum below 1, so the number is scaled to it.
    place = torch.searchsorted(cumulated, uniform * cumulated[:, -1:], right=True)[:, 0]
    return place.clamp(max=likely.shape[-1] - 1)
