"""`leeway demo`: the same requests before and after a profile has tuned itself."""

import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from leeway_core.errors import UserError
from leeway_core.objective import Objective
from leeway_load.exchange import Exchange
from leeway_standalone.binaries import ALL, ensure
from leeway_standalone.console import print_ready
from leeway_standalone.standalone import Standalone
from leeway_standalone.state import Ports, default_directory
from rich.console import Console
from rich.live import Live

from leeway_demo import html, view
from leeway_demo.cluster import Cluster
from leeway_demo.comparison import compare
from leeway_demo.history import History
from leeway_demo.pace import PROMPT_TOKENS, REFERENCE_S, Pace
from leeway_demo.phase import Phase
from leeway_demo.profile import freed, held_at, manifest, objectives
from leeway_demo.summary import succeeded, summarize
from leeway_demo.traffic import RATE, replay, requests

COMPARED_S = 90.0
TUNING_S = 320.0
LOOK_EVERY_S = 2.5
READY_TIMEOUT_S = 120.0
KNOBS_TIMEOUT_S = 30.0
NICENESS = 5

_out = Console(stderr=True, soft_wrap=True, highlight=False)


def run(*, keep: bool, report: Path, began_at_s: float) -> bool:
    """Run all phases, write the report, print the figures as the last line; return whether tuning helped."""
    binaries = ensure(ALL)
    # So that requests leave on time, this process, which looks and draws, stands back behind the sender, as pods do.
    with _sender() as sender, _folder(keep) as folder:
        os.nice(NICENESS)
        standalone = Standalone(folder)
        try:
            up = standalone.start(
                ports=standalone.state.remembered_ports() or Ports(0, 0, 0),
                binaries=binaries,
                on_ready=partial(print_ready, _out),
            )
            cluster = Cluster(up.launch, standalone.state.kubeconfig, binaries["kubectl"])
            shown = _Demonstration(cluster, sender, manifest())
            shown.serve()
            setup_s = time.time() - began_at_s
            figures, text, helped = shown.phases(setup_s)
            if keep:
                shown.leave_tuned()
        finally:
            if not keep:
                standalone.stop()
    report.write_text(text)
    _out.print(f"The report is in {report}.")
    if keep:
        _tell_how_to_look_around(cluster, binaries["kubectl"])
    print(json.dumps(figures))  # noqa: T201 - the figures are this command's output
    return helped


@contextmanager
def _sender() -> Iterator[ProcessPoolExecutor]:
    """Start a process that sends; when something else fails, nobody waits for what it has yet to send."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as sender:
        process = sender.submit(os.getpid).result()
        try:
            yield sender
        except BaseException:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            raise


@contextmanager
def _folder(keep: bool) -> Iterator[Path]:
    if keep:
        yield default_directory()
        return
    with tempfile.TemporaryDirectory(prefix="leeway-demo-") as folder:
        yield Path(folder) / "state"


class _Demonstration:
    def __init__(self, cluster: Cluster, sender: ProcessPoolExecutor, profile: dict[str, Any]) -> None:
        self._cluster = cluster
        self._sender = sender
        self._profile = profile
        self._objectives: dict[str, Objective] = {}
        self._pace = Pace(REFERENCE_S)
        self._rate = RATE
        self._history = History(cluster)
        self._found: Mapping[str, int] = {}

    def serve(self) -> None:
        """Apply the profile, wait until it serves, and give it the bounds that suit this machine."""
        self._cluster.delete()  # of an earlier demonstration that was kept
        self._cluster.apply(self._profile)
        self._cluster.wait(_is_ready, READY_TIMEOUT_S, "Ready")
        pace = Pace.measure(self._cluster.gateway_url)
        self._pace = pace
        self._rate = RATE / pace.slowness
        self._profile["spec"]["objectives"] = pace.objectives(self._profile["spec"]["objectives"])
        self._objectives = objectives(self._profile)
        self._cluster.patch({"spec": {"objectives": self._profile["spec"]["objectives"]}})
        self._cluster.wait(_is_ready, READY_TIMEOUT_S, "Ready")
        gap_ms = next(iter(self._objectives.values())).itl_ms
        _out.print(
            f"The profile is Ready. A prompt of {PROMPT_TOKENS} tokens takes {pace.iteration_s:.2f} s here, "
            f"so its ITL bound is {gap_ms} ms."
        )

    def phases(self, setup_s: float) -> tuple[dict[str, Any], str, bool]:
        """Run the phases; return the figures, the report, and whether tuning helped."""
        began_s = time.monotonic()
        pods = self._cluster.restarts()
        usual = self._history.look().knobs
        before = self._phase("1 default knobs", COMPARED_S)
        self._cluster.patch({"spec": {"tuning": {"mode": "Auto"}}})
        tuning = self._phase("2 tuning", TUNING_S, live=True)
        self._cluster.patch({"spec": {"tuning": {"mode": "Observe"}}})
        self._cluster.wait(_is_settled, KNOBS_TIMEOUT_S, "settled")
        self._found = self._history.look().knobs
        after = self._phase("3 knobs found", COMPARED_S)
        self._cluster.patch(held_at(usual))
        self._cluster.wait(lambda profile: _has(profile, usual), KNOBS_TIMEOUT_S, "back at the default knobs")
        again = self._phase("4 default knobs again", COMPARED_S)
        compared = (before, after, again)
        difference = compare(before.met, after.met, again.met)
        restarts = self._cluster.restarts()
        measured = {
            "prefix_hit_share": self._prefix_hit_share(),
            "knob_changes": self._history.knob_changes,
            "knob_push_ms_p99": self._push_ms_p99(),
            "pod_restarts": sum(count - pods.get(uid, 0) for uid, count in restarts.items())
            + len(pods.keys() ^ restarts.keys()),
            "decisions": len(self._history.decisions),
            "setup_s": round(setup_s, 1),
            "run_s": round(time.monotonic() - began_s, 1),
        }
        phases = (before, tuning, after, again)
        figures = summarize(phases, compared, difference, measured)
        knobs = (usual, self._found, usual)
        _out.print(view.result(compared, knobs, difference))
        for phase in phases:
            if phase.report.void:
                _out.print(f"[yellow]Requests of phase {phase.title} left late: the machine was busy otherwise.[/]")
        helped = succeeded(figures, difference)
        if not helped:
            self._warn_of_slowness()
        moments, decisions = self._history.moments, self._history.decisions
        text = html.page(phases, difference, moments, decisions, list(zip(compared, knobs, strict=True)))
        return figures, text, helped

    def _warn_of_slowness(self) -> None:
        with suppress(OSError):  # the figures count more than this
            if warning := self._pace.warning(Pace.measure(self._cluster.gateway_url)):
                _out.print(f"[yellow]{warning}[/]")

    def leave_tuned(self) -> None:
        """Put the knobs that were found in force again, within the profile's own bounds, and let it go on tuning."""
        self._cluster.patch(held_at(self._found))
        self._cluster.wait(lambda profile: _has(profile, self._found), KNOBS_TIMEOUT_S, "back at the knobs found")
        self._cluster.patch(freed(self._profile))

    def _phase(self, title: str, duration_s: float, *, live: bool = False) -> Phase:
        planned = requests(duration_s, self._rate, *self._objectives.values())
        _out.print(f"Phase {title}: {len(planned)} requests, {self._rate:.2g} a second")
        began_s = time.time()
        future = self._sender.submit(replay, planned, self._cluster.gateway_url, title)
        with Live(console=_out, auto_refresh=False, transient=True) as screen:
            while not future.done():
                with suppress(UserError):  # the next look may succeed, and the requests go on meanwhile
                    moment = self._history.look()
                    if live:
                        left_s, decisions = duration_s - (time.time() - began_s), self._history.decisions
                        screen.update(view.live(moment, decisions, self._objectives, left_s), refresh=True)
                _wait(future)
        return Phase(title, began_s, future.result(), self._objectives)

    def _prefix_hit_share(self) -> float | None:
        """Share of the prompt tokens that the pods found computed."""
        hit, queried = (f"sum(leeway_engine_prefix_{which}_tokens_total)" for which in ("hit", "queried"))
        found = self._cluster.query(f"{hit} / ({queried} > 0)")
        return round(found[0][1], 4) if found else None

    def _push_ms_p99(self) -> float | None:
        buckets = "sum by (le) (leeway_operator_knob_push_seconds_bucket)"
        found = self._cluster.query(f"histogram_quantile(0.99, {buckets})")
        return round(1e3 * found[0][1], 1) if found else None


def _wait(future: "Future[list[Exchange]]") -> None:
    try:
        future.exception(LOOK_EVERY_S)
    except TimeoutError:
        return


def _is_ready(profile: Mapping[str, Any]) -> bool:
    status = profile.get("status", {})
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ()))
    return ready and _is_settled(profile)


def _is_settled(profile: Mapping[str, Any]) -> bool:
    """Whether the status is of the spec at hand, and every pod has the knobs that it should have."""
    status = profile.get("status", {})
    knobs = status.get("knobs", {})
    current: bool = status.get("observedGeneration") == profile["metadata"]["generation"]
    return current and knobs.get("enforced") is not None and knobs["enforced"] == knobs.get("desired")


def _has(profile: Mapping[str, Any], knobs: Mapping[str, int]) -> bool:
    if not _is_settled(profile):
        return False
    enforced = profile["status"]["knobs"]["enforced"]
    return all(enforced[name] == value for name, value in knobs.items() if name != "generation")


def _tell_how_to_look_around(cluster: Cluster, kubectl: Path) -> None:
    _out.print(
        f"It goes on running, in mode Auto, under the knobs it found. Look around:\n"
        f"  export KUBECONFIG={cluster.kubeconfig} PATH={Path(sys.executable).parent}:{kubectl.parent}:$PATH\n"
        f"  kubectl get sp\n"
        f"  kubectl describe sp demo\n"
        f"  leeway explain demo\n"
        f"  curl {cluster.gateway_url}/v1/models\n"
        f"  Prometheus: {cluster.prometheus_url}\n"
        f"  leeway down --purge     # when done",
        markup=False,
    )
