"""What the operator tells of itself to Prometheus."""

from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Info, ProcessCollector, Summary, start_http_server

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
BUILD = Info("leeway_build", "Version of the component that runs.", registry=REGISTRY)
BUILD.info({"component": "operator", "version": version("leeway")})
VISITS = Summary("leeway_operator_visit_seconds", "Seconds that visits of profiles took.", registry=REGISTRY)
VISIT_FAILURES = Counter(
    "leeway_operator_visit_failures", "Visits of profiles that failed and will be repeated.", registry=REGISTRY
)


def serve_metrics(host: str, port: int) -> None:
    """Answer on `http://host:port/metrics`; OSError when the port is taken."""
    start_http_server(port, addr=host, registry=REGISTRY)
