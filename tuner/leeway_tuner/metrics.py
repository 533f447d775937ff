"""What the tuner tells of itself to Prometheus."""

from importlib.metadata import version
from typing import get_args

from leeway_core.buckets import LATENCY_BUCKETS_S
from leeway_core.decision import Action
from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector, start_http_server

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
BUILD = Info("leeway_build", "Version of the component that runs.", registry=REGISTRY)
BUILD.info({"component": "tuner", "version": version("leeway")})
DECISIONS = Counter("leeway_tuner_decisions", "Answers given, by what was decided", ("action",), registry=REGISTRY)
for action in get_args(Action):
    DECISIONS.labels(action)
DECIDING = Histogram(
    "leeway_tuner_decide_seconds", "Time to answer a Snapshot", registry=REGISTRY, buckets=LATENCY_BUCKETS_S
)


def serve_metrics(host: str, port: int) -> None:
    """Answer on `http://host:port/metrics`; OSError when the port is taken."""
    start_http_server(port, addr=host, registry=REGISTRY)
