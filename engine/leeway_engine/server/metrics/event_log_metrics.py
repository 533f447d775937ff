"""Metrics of the event log."""

from leeway_engine.server.metrics.series import Series


class EventLogMetrics:
    """What became of recorded events."""

    def __init__(self, series: Series) -> None:
        """Make the series."""
        self.written = series.counter("event_log_lines", "Events written to the event log")
        self.lost = series.counter("event_log_lost", "Events that could not be written to the event log")
