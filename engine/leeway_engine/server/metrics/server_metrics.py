"""All metrics of a pod."""

from collections.abc import Iterable

from leeway_engine.server.channel import Stepped
from leeway_engine.server.metrics.engine_reading import EngineReading
from leeway_engine.server.metrics.event_log_metrics import EventLogMetrics
from leeway_engine.server.metrics.iteration_metrics import IterationMetrics
from leeway_engine.server.metrics.request_metrics import RequestMetrics
from leeway_engine.server.metrics.series import Series


class ServerMetrics:
    """What a pod counts. Prometheus asks for `registry`."""

    def __init__(self, graphs: Iterable[int] = ()) -> None:
        """Register all metrics in a registry of their own; `graphs` are the sizes for which decodes are recorded."""
        series = Series()
        self.registry = series.registry
        self.requests = RequestMetrics(series)
        self.knob_pushes = series.counter(
            "knob_pushes", "Pushes of knobs, by the answer's HTTP status", "status", (200, 400, 401, 409, 422)
        )
        self.knobs_generation = series.gauge(
            "knobs_generation", "Generation of the knobs", "state", ("accepted", "enforced")
        )
        self.stalled = series.gauge("stalled", "1 while requests are in flight and the engine has long done nothing")
        self.event_log = EventLogMetrics(series)
        self._iterations = IterationMetrics(series, graphs)
        self._reading = EngineReading()
        self.registry.register(self._reading)

    def stepped(self, message: Stepped) -> None:
        """Take over what the loop tells."""
        if message.stats.iterations > self._reading.stats.iterations:
            self._iterations.observe(message.stats.last)
        for delay_s in message.cancel_delays_s:
            self.requests.cancel_delay.observe(delay_s)
        self._reading.stats = message.stats
