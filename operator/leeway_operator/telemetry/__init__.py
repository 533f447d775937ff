"""Telemetry of a profile, read from Prometheus: the IO in `prometheus` and `reader`, all judgement in `window`."""

from leeway_operator.telemetry.reader import read
from leeway_operator.telemetry.window import Scope

__all__ = ["Scope", "read"]
