"""The figures of the demonstration, as one flat object. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from leeway_demo.comparison import Difference
from leeway_demo.phase import Phase

BROKEN = ("rejected", "failed", "timed_out", "lost")


def summarize(
    phases: Sequence[Phase],
    compared: Sequence[Phase],
    difference: Difference,
    measured: Mapping[str, float | int | None],
) -> dict[str, Any]:
    """Return the figures; `compared` are the phases before, after and before again, `measured` what else was seen."""
    before, after, again = compared
    exchanges = [one for phase in phases for one in phase.exchanges]
    endings = Counter(one.ending for one in exchanges)
    return {
        "requests": len(exchanges),
        "completed": endings["finished"],
        "errors": sum(endings[kind] for kind in BROKEN),
        "lost": endings["lost"],
        "attainment_before": round(before.attainment, 4),
        "attainment_after": round(after.attainment, 4),
        "attainment_before_again": round(again.attainment, 4),
        "difference_interval": [round(difference.low, 4), round(difference.high, 4)],
        "goodput_before_rps": round(before.report.met_per_s or 0.0, 3),
        "goodput_after_rps": round(after.report.met_per_s or 0.0, 3),
        **measured,
    }


def succeeded(figures: Mapping[str, Any], difference: Difference) -> bool:
    """Whether nothing was lost, nothing restarted, and the knobs that were found are better beyond chance."""
    return figures["lost"] == 0 and figures["pod_restarts"] == 0 and difference.is_gain
