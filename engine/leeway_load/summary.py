"""Sums up samples: percentiles that say nothing where there is nothing."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from leeway_core.verdict import quantile


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean and nearest-rank percentiles of at least one sample."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


def summarize(samples: Iterable[float]) -> Summary | None:
    """Sum up the samples; None if there are none."""
    values = sorted(samples)
    if not values:
        return None
    p50, p90, p95, p99, most = (quantile(values, percent) for percent in (50, 90, 95, 99, 100))
    return Summary(len(values), fmean(values), p50, p90, p95, p99, most)
