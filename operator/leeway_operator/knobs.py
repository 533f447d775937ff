"""The knobs that a profile starts with, and how far they may go."""

from leeway_core.knobs import Knobs
from leeway_core.policies import Policies
from leeway_core.ranges import KnobRanges, Range
from leeway_core.record import Record

from leeway_operator.bounds import Bounds
from leeway_operator.policies import policies_of
from leeway_operator.spec import Spec

FIRST_GENERATION = 1
EVEN_SHARE_PERCENT = 50


def starting_knobs(spec: Spec) -> Knobs:
    """Return the knobs in force until Leeway finds better ones: what `spec` names, else what common engines ship.

    Those schedule as much as their ceiling allows and split a prompt only where it does not fit the token budget.
    """
    bounds, ceilings = spec.tuning.knobs, spec.engine.ceilings
    prefill_heavy_chunk = _start(bounds.prefill_heavy_chunk, ceilings.token_budget)
    return Knobs(
        generation=FIRST_GENERATION,
        token_budget=_start(bounds.token_budget, ceilings.token_budget),
        prefill_heavy_chunk=prefill_heavy_chunk,
        decode_heavy_chunk=_start(bounds.decode_heavy_chunk, prefill_heavy_chunk),
        prefill_heavy_percent=_start(bounds.prefill_heavy_percent, EVEN_SHARE_PERCENT),
        running_sequences=_start(bounds.running_sequences, ceilings.running_sequences),
    )


def first_record(spec: Spec, now_s: float) -> Record:
    """Return the record of a profile of which there is none yet."""
    return Record(incumbent=starting_knobs(spec), policies=policies_of(spec.scheduling), started_at_s=now_s)


def knob_ranges(spec: Spec) -> KnobRanges:
    """Return how far each knob may be turned, inside bounds and ceilings."""
    bounds, ceilings = spec.tuning.knobs, spec.engine.ceilings
    return KnobRanges(
        token_budget=_range(bounds.token_budget, ceilings.token_budget),
        prefill_heavy_chunk=_range(bounds.prefill_heavy_chunk, ceilings.token_budget),
        decode_heavy_chunk=_range(bounds.decode_heavy_chunk, ceilings.token_budget),
        prefill_heavy_percent=_range(bounds.prefill_heavy_percent, 100),
        running_sequences=_range(bounds.running_sequences, ceilings.running_sequences),
    )


def obeying(record: Record, ranges: KnobRanges, policies: Policies, now_s: float) -> Record:
    """Return the record with nothing outside the ranges: a trial that is ends, and an incumbent that is comes in.

    Other policies than those on record end a trial too, for what it has shown so far was shown under the old ones.
    """
    if record.policies != policies:
        renewed = record.incumbent.model_copy(update={"generation": record.newest_generation + 1})
        record = Record(incumbent=renewed, policies=policies, started_at_s=now_s)
    if record.candidate is not None and not ranges.hold(record.candidate):
        record = record.back(now_s)
    if ranges.hold(record.incumbent):
        return record
    inside = {
        name: min(max(getattr(record.incumbent, name), limits.min), limits.max)
        for name, limits in ((name, getattr(ranges, name)) for name in type(ranges).model_fields)
    }
    incumbent = record.incumbent.model_copy(update={**inside, "generation": record.newest_generation + 1})
    return record.only(incumbent, now_s)


def _start(bounds: Bounds, usual: int) -> int:
    if bounds.start is not None:
        return bounds.start
    return max(bounds.min, usual if bounds.max is None else min(usual, bounds.max))


def _range(bounds: Bounds, ceiling: int) -> Range:
    return Range(min=bounds.min, max=ceiling if bounds.max is None else bounds.max, step=bounds.step)
