"""Metrics of a pod."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator

from leeway_core.buckets import LATENCY_BUCKETS_S, TOKEN_BUCKETS
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from leeway_engine.messages import EngineStats
from leeway_engine.server.channel import Stepped
from leeway_engine.server.generation import Piece
from leeway_engine.server.token_stream import GenerationError

ERROR_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)
FINISH_REASONS = ("stop", "length", "cancel", "rejected", "error")


class ServerMetrics(Collector):
    """What a pod counts; every series is there from the start, at 0."""

    def __init__(self) -> None:
        """Register all metrics in a registry of their own."""
        self.registry = CollectorRegistry()
        self._stats = EngineStats(0, 0, 0, 0, 0, 0, 0, 0, 0)
        self.requests = self._counter("requests", "Requests that ended, by how", "finish_reason")
        for reason in FINISH_REASONS:
            self.requests.labels(reason)
        self.knob_pushes = self._counter("knob_pushes", "Pushes of knobs, by the answer's HTTP status", "status")
        for status in (200, 400, 401, 409, 422):
            self.knob_pushes.labels(status)
        self.knobs_generation = Gauge(
            "leeway_engine_knobs_generation", "Generation of the knobs", ("state",), registry=self.registry
        )
        for state in ("accepted", "enforced"):
            self.knobs_generation.labels(state)
        self.ttft = self._histogram("ttft_seconds", "Time from arrival at the pod to the first text", LATENCY_BUCKETS_S)
        self.prompt_tokens = self._histogram("prompt_tokens", "Prompt tokens of a request that ended", TOKEN_BUCKETS)
        self.output_tokens = self._histogram("output_tokens", "Output tokens of a request that ended", TOKEN_BUCKETS)
        self._iteration = self._histogram("iteration_seconds", "Duration of an iteration", LATENCY_BUCKETS_S)
        self._idle_gap = self._histogram(
            "idle_gap_seconds", "Time between two iterations while there was work", LATENCY_BUCKETS_S
        )
        self._prediction_error = self._histogram(
            "prediction_error_ratio", "Error of an iteration's predicted duration, over its duration", ERROR_BUCKETS
        )
        self.registry.register(self)

    def stepped(self, message: Stepped) -> None:
        """Take over what the loop tells."""
        if message.stats.iterations > self._stats.iterations:
            self._iteration.observe(message.stats.last.seconds)
            self._idle_gap.observe(message.stats.last.idle_gap_s)
            if message.stats.last.predicted_s > 0 and message.stats.last.seconds > 0:
                error = abs(message.stats.last.predicted_s - message.stats.last.seconds) / message.stats.last.seconds
                self._prediction_error.observe(error)
        self._stats = message.stats

    async def observed(self, pieces: AsyncIterator[Piece], arrival_s: float) -> AsyncGenerator[Piece]:
        """Pass the pieces of an answer on and count the request by how it ends."""
        reason = "cancel"
        last = None
        try:
            async for piece in pieces:
                if last is None:
                    self.ttft.observe(time.monotonic() - arrival_s)
                last = piece
                reason = piece.finish_reason or reason
                yield piece
        except GenerationError as error:
            reason = "error" if error.code == "engine_died" else "rejected"
            raise
        finally:
            self.requests.labels(reason).inc()
            if last is not None:
                self.prompt_tokens.observe(last.prompt_tokens)
                self.output_tokens.observe(last.output_tokens)

    def collect(self) -> Iterator[Metric]:
        """Yield the engine's last reading."""
        stats = self._stats
        yield GaugeMetricFamily("leeway_engine_running_requests", "Requests that hold KV blocks", stats.running)
        yield GaugeMetricFamily("leeway_engine_waiting_requests", "Requests in the queue", stats.waiting)
        yield GaugeMetricFamily("leeway_engine_waiting_tokens", "Tokens to prefill in the queue", stats.waiting_tokens)
        yield GaugeMetricFamily(
            "leeway_engine_tool_waits",
            "Ended requests whose KV is kept for those that go on from them",
            stats.tool_waits,
        )
        blocks = GaugeMetricFamily("leeway_engine_kv_blocks", "Blocks of the KV cache", labels=("state",))
        blocks.add_metric(("free",), stats.kv_blocks_free - stats.kv_blocks_cached)
        blocks.add_metric(("cached",), stats.kv_blocks_cached)
        blocks.add_metric(("used",), stats.kv_blocks_total - stats.kv_blocks_free)
        yield blocks
        tokens = CounterMetricFamily("leeway_engine_scheduled_tokens", "Tokens computed", labels=("phase",))
        tokens.add_metric(("prefill",), stats.prefill_tokens)
        tokens.add_metric(("decode",), stats.decode_tokens)
        yield tokens
        yield CounterMetricFamily("leeway_engine_preemptions", "Requests that lost their KV blocks", stats.preemptions)
        yield CounterMetricFamily(
            "leeway_engine_prefix_queried_tokens", "Prompt tokens of admitted requests", stats.prefix_queried_tokens
        )
        yield CounterMetricFamily(
            "leeway_engine_prefix_hit_tokens", "Prompt tokens that were found computed", stats.prefix_hit_tokens
        )
        swapped = CounterMetricFamily(
            "leeway_engine_swapped_blocks", "KV blocks moved out to host memory and in again", labels=("way",)
        )
        swapped.add_metric(("out",), stats.swapped_out_blocks)
        swapped.add_metric(("in",), stats.swapped_in_blocks)
        yield swapped
        yield GaugeMetricFamily(
            "leeway_engine_swap_blocks",
            "Blocks of host memory with tokens of preempted requests",
            stats.swap_blocks_used,
        )

    def _counter(self, name: str, text: str, label: str) -> Counter:
        return Counter(f"leeway_engine_{name}", text, (label,), registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"leeway_engine_{name}", text, registry=self.registry, buckets=buckets)
