"""The knobs that a profile starts with, and how far they may go."""

from leeway_core.knobs import Knobs
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
    starting = starting_knobs(spec)
    return Record(incumbent=starting, starting=starting, policies=policies_of(spec.scheduling), started_at_s=now_s)


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


def obeying(record: Record, spec: Spec, now_s: float) -> Record:
    """Return the record as the spec has it.

    Nothing is outside the ranges: a trial that is ends, and an incumbent that is comes in. Other policies than those on
    record end a trial too, for what it has shown so far was shown under the old ones. Where the incumbent is still what
    the profile began with, it goes to the values that the spec names for the start; what tuning has found stays.
    """
    ranges, policies = knob_ranges(spec), policies_of(spec.scheduling)
    if record.policies != policies:
        record = record.renewed(record.incumbent, now_s).model_copy(update={"policies": policies})
    if record.candidate is not None and not ranges.hold(record.candidate):
        record = record.back(now_s)
    untuned = record.starting is not None and record.starting.same(record.incumbent)
    incumbent = _inside(record.incumbent, ranges)
    if untuned:
        incumbent = incumbent.model_copy(update=_named_starts(spec))
    if not incumbent.same(record.incumbent):
        record = record.renewed(incumbent, now_s)
    starting = incumbent.model_copy(update={"generation": FIRST_GENERATION}) if untuned else starting_knobs(spec)
    return record.model_copy(update={"starting": starting})


def _inside(knobs: Knobs, ranges: KnobRanges) -> Knobs:
    """Return the nearest knobs inside the ranges."""
    inside = {
        name: min(max(getattr(knobs, name), limits.min), limits.max)
        for name, limits in ((name, getattr(ranges, name)) for name in type(ranges).model_fields)
    }
    return knobs.model_copy(update=inside)


def _named_starts(spec: Spec) -> dict[str, int]:
    """Return the starting values that the spec names, by knob; one for S_P is one for S_D too."""
    bounds, starting = spec.tuning.knobs, starting_knobs(spec)
    named = {name for name in type(bounds).model_fields if getattr(bounds, name).start is not None}
    if "prefill_heavy_chunk" in named:
        named.add("decode_heavy_chunk")
    return {name: getattr(starting, name) for name in named}


def _start(bounds: Bounds, usual: int) -> int:
    if bounds.start is not None:
        return bounds.start
    return max(bounds.min, usual if bounds.max is None else min(usual, bounds.max))


def _range(bounds: Bounds, ceiling: int) -> Range:
    return Range(min=bounds.min, max=ceiling if bounds.max is None else bounds.max, step=bounds.step)
