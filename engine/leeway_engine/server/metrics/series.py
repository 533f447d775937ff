"""Makes the series of a pod."""

from collections.abc import Iterable

from leeway_core.buckets import LATENCY_BUCKETS_S
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

PREFIX = "leeway_engine_"


class Series:
    """A registry of a pod's own. A series whose label values are known is there from the start, at 0."""

    def __init__(self) -> None:
        """Begin without series."""
        self.registry = CollectorRegistry()

    def counter(self, name: str, text: str, label: str | None = None, values: Iterable[object] = ()) -> Counter:
        """Make a counter, with one label at most; `name` goes without prefix and `_total`."""
        counter = Counter(PREFIX + name, text, (label,) if label else (), registry=self.registry)
        for value in values:
            counter.labels(value)
        return counter

    def gauge(self, name: str, text: str, label: str | None = None, values: Iterable[object] = ()) -> Gauge:
        """Make a gauge, with one label at most."""
        gauge = Gauge(PREFIX + name, text, (label,) if label else (), registry=self.registry)
        for value in values:
            gauge.labels(value)
        return gauge

    def histogram(self, name: str, text: str, buckets: tuple[float, ...] = LATENCY_BUCKETS_S) -> Histogram:
        """Make a histogram, of seconds unless it is given other buckets."""
        return Histogram(PREFIX + name, text, registry=self.registry, buckets=buckets)
