"""Shows a replay's progress and its report on a terminal."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from leeway_load.ramp import RampReport
from leeway_load.report import MOST_SEND_LAG_MS, Report
from leeway_load.runner import Progress as TellProgress
from leeway_load.sender import Watch
from leeway_load.summary import Summary


@contextmanager
def progress_bar(console: Console) -> Iterator[TellProgress]:
    """A bar for each replay: requests that are over, of all, and how many are in flight."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[in_flight]} in flight"),
        TimeElapsedColumn(),
    )
    # Few repaints: each takes the interpreter away from the sender for a moment.
    with Progress(*columns, console=console, refresh_per_second=2) as bars:

        def begin(name: str, requests: int) -> Watch:
            task = bars.add_task(name, total=requests, in_flight=0)
            return lambda sent, over: bars.update(task, completed=over, in_flight=sent - over)

        yield begin


def print_result(result: Report | RampReport, console: Console) -> None:
    """Print what came out, as tables."""
    if isinstance(result, Report):
        _print_report(result, console)
    else:
        _print_ramp(result, console)


def _print_report(report: Report, console: Console) -> None:
    _print_void(report, console)
    console.print(_overview(report))
    console.print(_latencies(report))
    if report.attainment:
        console.print(_attainment(report))
        console.print(_breaches(report))
    for message, count in report.errors.items():
        console.print(f"{count} x {message}", markup=False)


def _print_ramp(ramp: RampReport, console: Console) -> None:
    table = Table("requests/s", "met/s", "attained %", "TTFT p99 s", "ITL p99 s", "settled", title="Ramp")
    for step in ramp.steps:
        attained = ", ".join(f"{one.objective} {_number(one.attained_percent)}" for one in step.report.attainment)
        everyone = step.report.latencies["all"]
        table.add_row(
            f"{step.rate:.2f}",
            _number(step.report.met_per_s),
            attained,
            _p99(everyone.ttft_s),
            _p99(everyone.itl_s),
            "void" if step.report.void else "yes" if step.settled else "no",
        )
    console.print(table)
    found = "none"
    if ramp.highest_rate is not None:
        found = f"{ramp.highest_rate:.2f} requests/s, goodput {_number(ramp.goodput_per_s)}/s"
    console.print(f"Highest rate that met the objectives: {found}. Stopped as {ramp.stopped}.")


def _print_void(report: Report, console: Console) -> None:
    if report.void:
        console.print(
            f"[bold red]Void:[/] the send lag's p99 exceeds {MOST_SEND_LAG_MS:.0f} ms, so this was not the planned "
            "load. Give the load generator a core of its own, or lower the rate."
        )


def _overview(report: Report) -> Table:
    table = Table("", "", title="Replay", show_header=False)
    table.add_row("requests", str(report.requests))
    table.add_row("seconds", _number(report.duration_s))
    table.add_row("sent/s", _number(report.sent_per_s))
    table.add_row("met/s (goodput)", _number(report.met_per_s))
    table.add_row("output tokens/s", _number(report.output_tokens_per_s))
    table.add_row("send lag p99 ms", _p99(report.send_lag_ms))
    for ending, count in report.endings.items():
        table.add_row(ending.replace("_", " "), str(count))
    return table


def _latencies(report: Report) -> Table:
    table = Table("group", "of", "count", "mean", "p50", "p90", "p95", "p99", "max", title="Latencies, s")
    for name, group in report.latencies.items():
        rows = {"TTFT": group.ttft_s, "ITL": group.itl_s, "TPOT": group.tpot_s, "e2e": group.e2e_s}
        for kind, summary in rows.items():
            table.add_row(name if kind == "TTFT" else "", kind, *_cells(summary), end_section=kind == "e2e")
    return table


def _cells(summary: Summary | None) -> list[str]:
    if summary is None:
        return ["0"]
    values = (summary.mean, summary.p50, summary.p90, summary.p95, summary.p99, summary.max)
    return [str(summary.count), *(_number(value) for value in values)]


def _attainment(report: Report) -> Table:
    table = Table("objective", "target %", "attained %", "reached", "met", "missed", "cancelled", title="Attainment")
    for one in report.attainment:
        table.add_row(
            one.objective,
            one.target_percent,
            _number(one.attained_percent),
            "yes" if one.reached else "no",
            str(one.met),
            _counts(one.missed),
            str(one.cancelled),
        )
    return table


def _breaches(report: Report) -> Table:
    table = Table("in flight", "requests", "missed", title="Breaches against concurrency")
    for one in report.breaches:
        few, many = one.least_in_flight, one.most_in_flight
        table.add_row(f"{few}-{many}" if many > few else str(few), str(one.requests), str(one.missed))
    return table


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(counts.items())) or "0"


def _p99(summary: Summary | None) -> str:
    return _number(None if summary is None else summary.p99)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
