"""The report: one HTML file that needs nothing else to open."""

import html
import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from leeway_demo.comparison import Difference
from leeway_demo.history import Decision, Moment
from leeway_demo.phase import Phase

COLOURS = ("tab:blue", "tab:orange")
ROLLING = 15
"""Requests that a point of the attainment curve rests on."""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Leeway: before and after</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222 }}
table {{ border-collapse: collapse }} td, th {{ padding: .2rem .8rem; text-align: left; border-bottom: 1px solid #ddd }}
svg {{ width: 100%; height: auto }}
</style></head><body>
<h1>Leeway: before and after</h1>
<p>{summary}</p>
{table}
<h2>Latencies, knobs and decisions</h2>
{chart}
<h2>Decisions</h2>
{decisions}
</body></html>
"""


def page(
    phases: Sequence[Phase],
    difference: Difference,
    moments: Sequence[Moment],
    decisions: Sequence[Decision],
    compared: Sequence[tuple[Phase, Mapping[str, int]]],
) -> str:
    """Return the report of all phases; `compared` are those that sent the same requests, with their knobs."""
    began_s = phases[0].began_s
    summary = (
        f"{compared[0][0].attainment:.0%} of the requests met their objective under the default knobs, and "
        f"{compared[1][0].attainment:.0%} of the same requests under the knobs that the tuner found: "
        f"{100 * difference.mean:+.0f} points, 95 % interval {100 * difference.low:+.0f} to "
        f"{100 * difference.high:+.0f}."
    )
    rows = [
        (
            phase.title,
            str(knobs["tokenBudget"]),
            str(knobs["prefillHeavyChunk"]),
            f"{phase.attainment:.0%}",
            f"{phase.report.met_per_s:.2f}/s",
        )
        for phase, knobs in compared
    ]
    reasons = [(f"{each.time_s - began_s:.0f} s", each.action, each.message) for each in decisions]
    return _PAGE.format(
        summary=html.escape(summary),
        table=_table(("phase", "token budget", "chunk", "met", "goodput"), rows),
        chart=_chart(phases, moments, decisions),
        decisions=_table(("after", "action", "why"), reasons),
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def row(kind: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{kind}>{html.escape(cell)}</{kind}>" for cell in cells) + "</tr>"

    return "<table>" + row("th", head) + "".join(row("td", cells) for cells in rows) + "</table>"


def _chart(phases: Sequence[Phase], moments: Sequence[Moment], decisions: Sequence[Decision]) -> str:
    """Draw everything on one time axis, as SVG."""
    from matplotlib.figure import Figure

    began_s = phases[0].began_s
    figure = Figure(figsize=(12, 11), layout="constrained")
    ttft, itl, attainment, knobs = figure.subplots(4, sharex=True)
    for name, colour in zip(phases[0].objectives, COLOURS, strict=True):
        objective = phases[0].objectives[name]
        own = [(phase, one) for phase in phases for one in phase.exchanges if one.request.class_name == name]
        sent = [phase.began_s - began_s + one.request.send_s for phase, one in own]
        ttft.plot(sent, [one.timeline.ttft_s for _, one in own], ".", color=colour, label=name)
        itl.plot(sent, [max(one.timeline.gaps_s, default=None) for _, one in own], ".", color=colour, label=name)
        for axes, bound_ms in ((ttft, objective.ttft_ms), (itl, objective.itl_ms)):
            if bound_ms is not None:
                axes.axhline(bound_ms / 1e3, color=colour, linestyle="--", linewidth=1)
    for phase in phases:
        over = sorted(phase.exchanges, key=lambda one: one.request.send_s)
        met = [phase.verdict(one).result == "met" for one in over]
        ends = range(ROLLING, len(met) + 1)
        attainment.plot(
            [phase.began_s - began_s + over[end - 1].request.send_s for end in ends],
            [sum(met[end - ROLLING : end]) / ROLLING for end in ends],
            color="tab:green",
        )
    seen = [moment for moment in moments if moment.knobs]
    for knob, label in (("tokenBudget", "token budget"), ("prefillHeavyChunk", "chunk")):
        times = [moment.time_s - began_s for moment in seen]
        knobs.step(times, [moment.knobs[knob] for moment in seen], where="post", label=label)
    titles = ("TTFT, s", "longest ITL, s", f"met, of {ROLLING} requests", "knobs, tokens")
    for axes, title in zip((ttft, itl, attainment, knobs), titles, strict=True):
        axes.set_ylabel(title)
        axes.grid(alpha=0.3)
        for place, phase in enumerate(phases):
            axes.axvspan(phase.began_s - began_s, phase.end_s - began_s, alpha=0.06 + 0.06 * (place % 2), color="grey")
        for decision in decisions:
            axes.axvline(decision.time_s - began_s, color="tab:purple", linewidth=0.7, alpha=0.6)
    for axes in (ttft, itl):
        axes.set_yscale("log")
    for axes in (ttft, knobs):
        axes.legend(loc="upper right")
    attainment.set_ylim(-0.05, 1.05)
    for phase in phases:
        ttft.text(phase.began_s - began_s, 1.02, phase.title, transform=ttft.get_xaxis_transform())
    knobs.set_xlabel(f"seconds since {datetime.fromtimestamp(began_s, UTC):%Y-%m-%d %H:%M:%S} UTC; lines: decisions")
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg")
    text = drawn.getvalue()
    return text[text.index("<svg") :]
