"""Whether the knobs found are better: requests that were sent under both are held against each other. Pure."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

RESAMPLES = 4_000
CONFIDENCE_PERCENT = 95
BLOCK = 5
"""Neighbours share a queue, so they are drawn together."""

Met = Mapping[int, bool]
"""Whether each request met its objective, by its number in the trace."""


@dataclass(frozen=True, slots=True)
class Difference:
    """By how much attainment rose, as a share, and the interval that holds it with the given confidence."""

    mean: float
    low: float
    high: float

    @property
    def is_gain(self) -> bool:
        """Whether the whole interval lies above 0."""
        return self.low > 0


def compare(before: Met, after: Met, again: Met) -> Difference:
    """Compare each request with the mean of itself before and again, which cancels a drift of the machine.

    The interval is of a paired block bootstrap. A request that is missing in one of them is left out.
    """
    common = sorted(before.keys() & after.keys() & again.keys())
    if not common:
        return Difference(0.0, -1.0, 1.0)
    gains = [after[index] - (before[index] + again[index]) / 2 for index in common]
    blocks = [gains[start : start + BLOCK] for start in range(0, len(gains), BLOCK)]
    draw = random.Random(0)  # noqa: S311 - no secret
    means = sorted(_mean(draw.choices(blocks, k=len(blocks))) for _ in range(RESAMPLES))
    tail = round(RESAMPLES * (100 - CONFIDENCE_PERCENT) / 200)
    return Difference(fmean(gains), means[tail], means[-1 - tail])


def _mean(blocks: Sequence[Sequence[float]]) -> float:
    return sum(map(sum, blocks)) / sum(map(len, blocks))
