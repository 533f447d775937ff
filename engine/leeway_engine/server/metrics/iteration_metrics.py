"""Metrics of single iterations."""

from collections.abc import Iterable

from leeway_core.buckets import TOKEN_BUCKETS

from leeway_engine.decode_buckets import graph_path
from leeway_engine.messages import Iteration
from leeway_engine.server.metrics.series import Series

ERROR_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)
PATHS = ("native", "triton", "eager")


class IterationMetrics:
    """How long iterations take and what they are made of."""

    def __init__(self, series: Series, graphs: Iterable[int]) -> None:
        """Make the series, with those of graphs for so many decodes."""
        self._seconds = series.histogram("iteration_seconds", "Duration of an iteration")
        self._idle_gap = series.histogram("idle_gap_seconds", "Time between two iterations while there was work")
        self._prediction_error = series.histogram(
            "prediction_error_ratio", "Error of an iteration's predicted duration, over its duration", ERROR_BUCKETS
        )
        self._paths = series.counter(
            "iterations",
            "Iterations that computed tokens, by what ran them: compiled kernels, a captured graph, or plain torch "
            "(eager), which is what the others fall back to",
            "path",
            (*PATHS, *map(graph_path, graphs)),
        )
        self._chunks = series.histogram("chunk_tokens", "Prompt tokens of one request in an iteration", TOKEN_BUCKETS)
        self._partial_prefills = series.counter(
            "partial_prefills", "Chunks that left a part of their prompt to later iterations"
        )
        self._queue_delay = series.histogram(
            "queue_delay_seconds", "Time from a request's arrival to the first iteration that computes for it"
        )
        self._admitted = series.counter("admitted_requests", "Requests that got KV blocks for the first time")

    def observe(self, iteration: Iteration) -> None:
        """Count an iteration."""
        self._seconds.observe(iteration.seconds)
        self._idle_gap.observe(iteration.idle_gap_s)
        if iteration.predicted_s > 0 and iteration.seconds > 0:
            self._prediction_error.observe(abs(iteration.predicted_s - iteration.seconds) / iteration.seconds)
        if iteration.path:
            self._paths.labels(iteration.path).inc()
        for tokens in iteration.chunks:
            self._chunks.observe(tokens)
        self._partial_prefills.inc(iteration.partial_prefills)
        for delay_s in iteration.queue_delays_s:
            self._queue_delay.observe(delay_s)
        self._admitted.inc(len(iteration.queue_delays_s))
