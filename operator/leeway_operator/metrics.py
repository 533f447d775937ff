"""What the operator tells of itself to Prometheus."""

from importlib.metadata import version
from typing import get_args

from leeway_core.buckets import LATENCY_BUCKETS_S
from leeway_core.decision import Action
from leeway_core.knobs import Knobs
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, start_http_server

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
BUILD = Info("leeway_build", "Version of the component that runs.", registry=REGISTRY)
BUILD.info({"component": "operator", "version": version("leeway")})
VISITS = Histogram(
    "leeway_operator_visit_seconds",
    "Seconds that visits of profiles took.",
    registry=REGISTRY,
    buckets=LATENCY_BUCKETS_S,
)
VISIT_FAILURES = Counter(
    "leeway_operator_visit_failures", "Visits of profiles that failed and will be repeated.", registry=REGISTRY
)
API_CALLS = Counter(
    "leeway_operator_api_calls", "Calls of the API server, but for kopf's watches.", ("method",), registry=REGISTRY
)
PUSHES = Histogram(
    "leeway_operator_knob_push_seconds",
    "Seconds from a push of knobs to the pod's answer.",
    registry=REGISTRY,
    buckets=LATENCY_BUCKETS_S,
)
# Not `namespace`: Prometheus gives that name to the operator's own.
_PROFILE = ("profile_namespace", "profile")
KNOBS = Gauge(
    "leeway_operator_knobs", "Knobs that every pod of a profile should have.", (*_PROFILE, "knob"), registry=REGISTRY
)
DECISIONS = Counter(
    "leeway_operator_decisions", "Decisions carried out, by what was done.", (*_PROFILE, "action"), registry=REGISTRY
)


def tell(namespace: str, profile: str, knobs: Knobs, done: Action | None) -> None:
    """Tell what a visit of a profile came to."""
    for knob, value in knobs.model_dump().items():
        KNOBS.labels(namespace, profile, knob).set(value)
    for action in get_args(Action):
        DECISIONS.labels(namespace, profile, action).inc(action == done)


def forget(namespace: str, profile: str) -> None:
    """Tell no more of a profile that is gone."""
    for metric in (KNOBS, DECISIONS):
        metric.remove_by_labels(dict(zip(_PROFILE, (namespace, profile), strict=True)))


def serve_metrics(host: str, port: int) -> None:
    """Answer on `http://host:port/metrics`; OSError when the port is taken."""
    start_http_server(port, addr=host, registry=REGISTRY)
