"""The knobs that a profile starts with."""

from leeway_core.knobs import Knobs

from leeway_operator.bounds import Bounds
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


def _start(bounds: Bounds, usual: int) -> int:
    if bounds.start is not None:
        return bounds.start
    return max(bounds.min, usual if bounds.max is None else min(usual, bounds.max))
