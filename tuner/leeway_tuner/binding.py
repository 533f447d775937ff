"""Which kind of latency holds a profile back."""

from typing import Literal

from leeway_core.snapshot import Telemetry

Binding = Literal["ttft", "itl"]

_GAPS = ("itl", "tpot")
_CLEARLY = 2.0
"""How many times more often than the other a kind must be missed."""


def binding(telemetry: Telemetry) -> Binding | None:
    """Return the kind of bound that by far the most requests of the window broke, or None where no kind stands out.

    TPOT counts as ITL: both are held by small iterations, as TTFT is by large ones.
    """
    first = telemetry.missed.get("ttft", 0.0)
    gaps = sum(telemetry.missed.get(reason, 0.0) for reason in _GAPS)
    if gaps > _CLEARLY * first:
        return "itl"
    return "ttft" if first > _CLEARLY * gaps else None
