"""Metrics of a gateway: latencies as clients see them, and every request met or missed."""

from collections.abc import Iterable

from leeway_core.buckets import LATENCY_BUCKETS_S
from leeway_core.objective import Objective
from leeway_core.verdict import REASONS, Timeline, bounds_of, judge
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

BOUND_RESULTS = ("met", "missed")
STATUSES = (200, 400, 404, 405, 408, 413, 429, 499, 500, 502, 503, 504)
"""All that the gateway answers, and what it passes on of pods."""


class GatewayMetrics:
    """Every series of an objective is there as soon as the objective is, at 0."""

    def __init__(self) -> None:
        """Register all metrics in a registry of their own."""
        self.registry = CollectorRegistry()
        self.responses = self._counter("responses", "Responses, by HTTP status; 499 if the client had gone", "status")
        for status in STATUSES:
            self.responses.labels(status)
        self.retries = self._counter("retries", "Tries after the first, by what became of the one before", "reason")
        for reason in ("refused", "broken"):
            self.retries.labels(reason)
        self.requests = self._gauge("requests", "Requests in hand")
        self.ready_pods = self._gauge("ready_pods", "Pods that take requests")
        self.objectives_stale = self._gauge("objectives_stale", "1 while the objectives' file cannot be read")
        self._objectives = self._gauge("objectives_info", "1 for the objectives in force, by their digest", "digest")
        self._verdicts = self._counter(
            "verdicts",
            "Requests that ended, by whether they met their objective and why not",
            "objective",
            "result",
            "reason",
        )
        self._bounds = self._counter(
            "bounds", "Requests that ended, by whether they met each bound", "objective", "bound", "result"
        )
        self._ttft = self._histogram("ttft_seconds", "Time from arrival to the first output leaving for the client")
        self._itl = self._histogram("itl_seconds", "Waits between two pieces of output leaving for the client")
        self._tpot = self._histogram("tpot_seconds", "A request's mean wait for an output token after the first")
        self._duration = self._histogram("request_seconds", "Time from arrival to the end of the response")

    def expect(self, objectives: Iterable[Objective], digest: str) -> None:
        """Make the series of these objectives, by which requests are judged from now on."""
        self._objectives.clear()
        self._objectives.labels(digest).set(1)
        for objective in objectives:
            for result, reasons in REASONS.items():
                for reason in reasons:
                    self._verdicts.labels(objective.name, result, reason)
            for bound in bounds_of(objective):
                for outcome in BOUND_RESULTS:
                    self._bounds.labels(objective.name, bound, outcome)
            for histogram in (self._ttft, self._itl, self._tpot, self._duration):
                histogram.labels(objective.name)

    def count(self, objective: Objective, timeline: Timeline) -> None:
        """Count a request that has ended."""
        name = objective.name
        verdict = judge(objective, timeline)
        self._verdicts.labels(name, verdict.result, verdict.reason).inc()
        for bound, held in verdict.bounds.items():
            self._bounds.labels(name, bound, BOUND_RESULTS[not held]).inc()
        if timeline.ttft_s is not None:
            self._ttft.labels(name).observe(timeline.ttft_s)
        itl = self._itl.labels(name)
        for gap_s in timeline.gaps_s:
            itl.observe(gap_s)
        if len(timeline.output_s) > 1:
            self._tpot.labels(name).observe(timeline.tpot_s)
        if timeline.outcome == "finished":
            self._duration.labels(name).observe(timeline.end_s - timeline.arrival_s)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"leeway_gateway_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"leeway_gateway_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(
            f"leeway_gateway_{name}", text, ("objective",), registry=self.registry, buckets=LATENCY_BUCKETS_S
        )
