"""Where the search goes: the values that each knob may take, and how far apart two settings are."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from leeway_core.knobs import Knobs
from leeway_core.ranges import KnobRanges, Range

Point = tuple[int, ...]
"""A value for each dimension of a space, in order."""

_RUNGS = {1: 24, 2: 12, 3: 8, 4: 6}
"""Most values of a dimension, by the number of dimensions, so that a whole space can be looked through."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """Knobs that are turned together, and the values that are tried, in order."""

    knobs: tuple[str, ...]
    values: tuple[int, ...]
    steps: Sequence[int]
    """All values that are allowed, of which `values` are a few."""

    def place(self, value: int) -> float:
        """Return where a value is between the lowest (0) and the highest (1): by ratio, for what doubles matters."""
        low, high = self.values[0], self.values[-1]
        value = min(max(value, low), high)
        if low <= 0:
            return (value - low) / (high - low)
        return math.log(value / low) / math.log(high / low)

    def next_to(self, here: int) -> tuple[int, ...]:
        """Return the values next to one, below it and above."""
        below = [value for value in self.values if value < here]
        above = [value for value in self.values if value > here]
        return (*below[-1:], *above[:1])

    def towards(self, goal: int, here: int, cap: float) -> int:
        """Return the value nearest to `goal` that is no further than `cap` from `here`; `here` if none is nearer."""
        reach = [value for value in self.steps if abs(self.place(value) - self.place(here)) <= cap]
        return min((here, *reach), key=lambda value: abs(self.place(value) - self.place(goal)))


@dataclass(frozen=True, slots=True)
class Space:
    """All settings that may be tried."""

    dimensions: tuple[Dimension, ...]

    @classmethod
    def of(cls, ranges: KnobRanges) -> "Space":
        """Return the space of these ranges.

        Pods prefill and decode alike as long as both chunk sizes have values in common, which are then turned as one.
        The share of pods that prefill is of no matter then, nor is it where both have one and the same value.
        """
        budget, sequences, share = (
            _grid(each) for each in (ranges.token_budget, ranges.running_sequences, ranges.prefill_heavy_percent)
        )
        large, small = _grid(ranges.prefill_heavy_chunk), _grid(ranges.decode_heavy_chunk)
        grids: dict[tuple[str, ...], Sequence[int]] = {("token_budget",): budget, ("running_sequences",): sequences}
        common = large if large == small else [value for value in large if value in small]
        if len(common) > 1:
            grids["prefill_heavy_chunk", "decode_heavy_chunk"] = common
        else:
            grids |= {("prefill_heavy_chunk",): large, ("decode_heavy_chunk",): small}
            if large != small:
                grids["prefill_heavy_percent",] = share
        free = {knobs: values for knobs, values in grids.items() if len(values) > 1}
        rungs = _RUNGS.get(len(free), 5)
        return cls(tuple(Dimension(knobs, _thin(values, rungs), values) for knobs, values in free.items()))

    def key(self, *more: object) -> str:
        """Return a name that changes with the space and with what else the scores depend on."""
        dimensions = [(each.knobs, each.values) for each in self.dimensions]
        return hashlib.sha256(json.dumps([dimensions, more], default=str).encode()).hexdigest()[:12]

    def point(self, knobs: Knobs) -> Point:
        """Return the values that these knobs have; they need not be among those that are tried."""
        return tuple(int(getattr(knobs, each.knobs[0])) for each in self.dimensions)

    def knobs(self, point: Point, others: Knobs, generation: int) -> Knobs:
        """Return the knobs of a point; those without a dimension are as in `others`."""
        turned: dict[str, int] = {
            knob: value for each, value in zip(self.dimensions, point, strict=True) for knob in each.knobs
        }
        return others.model_copy(update={**turned, "generation": generation})

    def holds(self, point: Point, others: Knobs) -> bool:
        """Tell whether a point may be tried."""
        return (
            len(point) == len(self.dimensions)
            and all(value in each.values for each, value in zip(self.dimensions, point, strict=True))
            and _makes_sense(self.knobs(point, others, others.generation))
        )

    def points(self, others: Knobs) -> Iterator[Point]:
        """Yield every point that may be tried."""
        for point in product(*(each.values for each in self.dimensions)):
            if _makes_sense(self.knobs(point, others, others.generation)):
                yield point

    def boldness(self, point: Point, incumbent: Knobs) -> float:
        """Return how far a point is from the incumbent, of the way across the range of the knob that moves most."""
        moves = zip(self.dimensions, point, self.point(incumbent), strict=True)
        return max((abs(each.place(there) - each.place(here)) for each, there, here in moves), default=0.0)

    def in_reach(self, point: Point, incumbent: Knobs, cap: float, limit: float) -> bool:
        """Tell whether no knob moves further than `cap`, or to its next value where that is further, up to `limit`."""
        if len(point) != len(self.dimensions) or self.boldness(point, incumbent) > limit:
            return False
        moves = zip(self.dimensions, point, self.point(incumbent), strict=True)
        return all(
            abs(each.place(there) - each.place(here)) <= cap or there in each.next_to(here)
            for each, there, here in moves
        )

    def widest_step(self, incumbent: Knobs) -> float:
        """Return how far the next value of a knob is at most."""
        here = zip(self.dimensions, self.point(incumbent), strict=True)
        steps = (abs(each.place(value) - each.place(mine)) for each, mine in here for value in each.next_to(mine))
        return max(steps, default=0.0)

    def towards(self, goal: Knobs, incumbent: Knobs, cap: float, generation: int) -> Knobs | None:
        """Return the knobs as far on the way to `goal` as `cap` allows, or None if there are none that pods take.

        What does not move stays as it is, even where knobs that are turned together differ.
        """
        places = zip(self.dimensions, self.point(incumbent), self.point(goal), strict=True)
        moves = ((each, here, each.towards(there, here, cap)) for each, here, there in places)
        turned = {knob: there for each, here, there in moves if there != here for knob in each.knobs}
        knobs = incumbent.model_copy(update={**turned, "generation": generation})
        return knobs if turned and _makes_sense(knobs) else None

    def smallest_step(self, incumbent: Knobs) -> float:
        """Return the boldness that lets every knob move by one value at least."""
        here = self.point(incumbent)
        return max(
            (
                min(abs(each.place(value) - each.place(mine)) for value in each.values if value != mine)
                for each, mine in zip(self.dimensions, here, strict=True)
            ),
            default=0.0,
        )

    def describe(self, knobs: Knobs) -> str:
        """Return the values of the knobs that are searched, in words."""
        names: Mapping[str, str] = {"prefill_heavy_chunk": "chunk"}
        words = (
            f"{names.get(each.knobs[0], each.knobs[0]).replace('_', ' ')} {getattr(knobs, each.knobs[0])}"
            for each in self.dimensions
        )
        return ", ".join(words)


def _makes_sense(knobs: Knobs) -> bool:
    """Leave out what pods refuse, and chunks that the token budget cuts: those equal a smaller chunk."""
    return (
        knobs.running_sequences <= knobs.token_budget
        and knobs.decode_heavy_chunk <= knobs.prefill_heavy_chunk <= knobs.token_budget
    )


def _grid(bounds: Range) -> range:
    return range(bounds.min, bounds.max + 1, bounds.step)


def _thin(values: Sequence[int], most: int) -> tuple[int, ...]:
    """Return at most so many of the values, both ends with them, evenly by ratio where none is 0."""
    if len(values) <= most:
        return tuple(values)
    low, high = values[0], values[-1]
    parts = [number / (most - 1) for number in range(most)]
    wanted = [low * (high / low) ** part if low > 0 else low + (high - low) * part for part in parts]
    nearest = (round((each - low) / (high - low) * (len(values) - 1)) for each in wanted)
    return tuple(sorted({values[index] for index in nearest}))
