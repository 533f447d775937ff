"""Which kind of latency holds a profile back."""

from math import inf
from typing import Literal

from leeway_core.reading import Value
from leeway_core.snapshot import Telemetry

Binding = Literal["ttft", "itl"]

_GAPS = ("itl", "tpot")
_CLEARLY = 2.0
"""How many times more often than the other a kind must be missed."""
_OFTEN = 0.5
"""Share of the requests that must miss it: near the best setting, either way may lead on."""


def binding(telemetry: Telemetry) -> Binding | None:
    """Return the kind of bound that many requests of the window broke, and far more than the other; else None.

    TPOT counts as ITL: both are held by small iterations, as TTFT is by large ones.
    """
    first = telemetry.missed.get("ttft", 0.0)
    gaps = sum(telemetry.missed.get(reason, 0.0) for reason in _GAPS)
    often = _OFTEN * telemetry.attainment.samples if isinstance(telemetry.attainment, Value) else inf
    if gaps >= often and gaps > _CLEARLY * first:
        return "itl"
    return "ttft" if first >= often and first > _CLEARLY * gaps else None
