"""Samples of one time series, and what a counter grew by."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

Sample = tuple[float, float]
"""Time of the scrape in Unix seconds, and the value."""


@dataclass(frozen=True, slots=True)
class Series:
    """Labels and samples, in order of time."""

    labels: Mapping[str, str]
    samples: Sequence[Sample]

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Self:
        """Read an entry of a vector or of a matrix, in which Prometheus sends values as strings."""
        samples = entry["values"] if "values" in entry else [entry["value"]]
        return cls(entry["metric"], [(float(time), float(value)) for time, value in samples])

    def since(self, start_s: float) -> Sequence[Sample]:
        """Return the samples from `start_s` on."""
        return [sample for sample in self.samples if sample[0] >= start_s]


def increase(samples: Iterable[Sample]) -> float:
    """Return what a counter grew by from the first sample to the last; after a reset it began again at 0."""
    return sum((later - earlier if later >= earlier else later) for (_, earlier), (_, later) in pairwise(samples))


def is_count(samples: Iterable[Sample]) -> bool:
    """Tell whether all values can be those of a counter."""
    return all(math.isfinite(value) and value >= 0 for _, value in samples)
