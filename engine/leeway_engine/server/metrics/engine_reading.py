"""Metrics of which the engine tells the state or the total."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from leeway_engine.messages import EngineStats
from leeway_engine.scheduling.request import PHASES
from leeway_engine.server.metrics.series import PREFIX


class EngineReading(Collector):
    """The engine's last reading; series of tenants that wait no more end."""

    def __init__(self) -> None:
        """Begin with an engine that has done nothing."""
        self.stats = EngineStats(0, 0, 0, 0, 0, 0, 0, 0, 0)

    def collect(self) -> Iterator[Metric]:
        """Yield all of it."""
        yield from self._queue(self.stats)
        yield from self._kv(self.stats)
        yield from self._work(self.stats)

    def _queue(self, stats: EngineStats) -> Iterator[Metric]:
        yield _gauge("running_requests", "Requests that hold KV blocks", stats.running)
        yield _gauge("waiting_requests", "Requests in the queue", stats.waiting)
        yield _gauge("waiting_tokens", "Tokens to prefill in the queue", stats.waiting_tokens)
        text = "Ended requests whose KV is kept for those that go on from them"
        yield _gauge("tool_waits", text, stats.tool_waits)
        yield _gauges(
            "tenant_debt_tokens",
            "What a tenant that waits was served less than the most served one that waits, in weighted tokens; the "
            "largest debt of those that have no series of their own is that of others",
            "tenant",
            stats.tenant_debts,
        )

    def _kv(self, stats: EngineStats) -> Iterator[Metric]:
        blocks = {
            "free": stats.kv_blocks_free - stats.kv_blocks_cached,
            "cached": stats.kv_blocks_cached,
            "used": stats.kv_blocks_total - stats.kv_blocks_free,
        }
        yield _gauges("kv_blocks", "Blocks of the KV cache", "state", blocks)
        yield _gauge("swap_blocks", "Blocks of host memory with tokens of preempted requests", stats.swap_blocks_used)
        moved = {"out": stats.swapped_out_blocks, "in": stats.swapped_in_blocks}
        yield _counters("swapped_blocks", "KV blocks moved out to host memory and in again", "way", moved)
        yield _counter("prefix_queried_tokens", "Prompt tokens of admitted requests", stats.prefix_queried_tokens)
        yield _counter("prefix_hit_tokens", "Prompt tokens that were found computed", stats.prefix_hit_tokens)

    def _work(self, stats: EngineStats) -> Iterator[Metric]:
        tokens = {"prefill": stats.prefill_tokens, "decode": stats.decode_tokens}
        yield _counters("scheduled_tokens", "Tokens computed", "phase", tokens)
        text = "Iterations that failed, and ended their requests"
        yield _counter("failed_iterations", text, stats.failed_iterations)
        swapped = stats.preemptions_by_swap
        preemptions = {"recompute": stats.preemptions - swapped, "swap": swapped}
        text = "Requests that lost their KV blocks, by how their tokens come back"
        yield _counters("preemptions", text, "way", preemptions)
        cancels = {phase: stats.cancels.get(phase, 0) for phase in PHASES}
        text = "Requests that the scheduler was told to drop, by where they were; a stop string is no cancel"
        yield _counters("cancels", text, "phase", cancels)
        yield _counter("cancelled_tokens", "Tokens computed for requests that were cancelled", stats.cancelled_tokens)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, text, value)


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(PREFIX + name, text, labels=(label,))
    for value, number in values.items():
        family.add_metric((value,), number)
    return family


def _counters(name: str, text: str, label: str, values: Mapping[str, float]) -> CounterMetricFamily:
    family = CounterMetricFamily(PREFIX + name, text, labels=(label,))
    for value, number in values.items():
        family.add_metric((value,), number)
    return family
