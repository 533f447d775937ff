"""What the terminal shows while the profile tunes itself, and the table at the end."""

from collections.abc import Mapping, Sequence

from leeway_core.objective import Objective
from rich.console import Group, RenderableType
from rich.table import Table

from leeway_demo.comparison import Difference
from leeway_demo.history import Decision, Moment
from leeway_demo.phase import Phase

SHOWN_DECISIONS = 6


def live(
    moment: Moment, decisions: Sequence[Decision], objectives: Mapping[str, Objective], left_s: float
) -> RenderableType:
    """Return the view of one moment."""
    latencies = Table("objective", "TTFT p95", "bound", "ITL p95", "bound", "met of the last 30 s", "target", box=None)
    for name, objective in objectives.items():
        latencies.add_row(
            name,
            _milliseconds(moment.ttft_s.get(name)),
            f"{objective.ttft_ms} ms",
            _milliseconds(moment.itl_s.get(name)),
            f"{objective.itl_ms} ms",
            _share(moment.attainment.get(name)),
            f"{objective.target_percent} %",
        )
    knobs = moment.knobs
    chosen = Table("token budget", "chunk", "running sequences", "generation", box=None)
    if knobs:
        names = ("tokenBudget", "prefillHeavyChunk", "runningSequences", "generation")
        chosen.add_row(*(str(knobs[name]) for name in names))
    taken = Table("decision", "what and why", box=None, show_header=False)
    for decision in list(decisions)[-SHOWN_DECISIONS:]:
        taken.add_row(f"[bold]{decision.action}[/]", decision.message)
    return Group(f"{moment.summary} · {max(0.0, left_s):.0f} s left", "", latencies, "", chosen, "", taken)


def result(phases: Sequence[Phase], knobs: Sequence[Mapping[str, int]], difference: Difference) -> RenderableType:
    """Return the table of the phases that sent the same requests."""
    table = Table("", *(phase.title for phase in phases), title="The same requests, before and after")
    reports = [phase.report for phase in phases]
    everyone = [report.latencies["all"] for report in reports]
    rows: dict[str, Sequence[str]] = {
        "token budget": [str(each["tokenBudget"]) for each in knobs],
        "chunk": [str(each["prefillHeavyChunk"]) for each in knobs],
        "met their objective": [_share(phase.attainment) for phase in phases],
        **{
            f"  {name}": [_share(_attained(report.attainment[place].attained_percent)) for report in reports]
            for place, name in enumerate(phases[0].objectives)
        },
        "goodput": [f"{report.met_per_s:.2f}/s" for report in reports],
        "TTFT p95": [_milliseconds(each.ttft_s.p95 if each.ttft_s else None) for each in everyone],
        "ITL p95": [_milliseconds(each.itl_s.p95 if each.itl_s else None) for each in everyone],
        "ITL p99": [_milliseconds(each.itl_s.p99 if each.itl_s else None) for each in everyone],
    }
    for name, cells in rows.items():
        table.add_row(name, *cells)
    points = f"{100 * difference.mean:+.0f} points, 95 % interval {100 * difference.low:+.0f} to"
    return Group(table, f"Attainment changed by {points} {100 * difference.high:+.0f}.")


def _attained(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.0f} ms"
