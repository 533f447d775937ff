"""What the tuner tells of itself to Prometheus."""

from importlib.metadata import version

from prometheus_client import CollectorRegistry, Info, ProcessCollector, start_http_server

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
BUILD = Info("leeway_build", "Version of the component that runs.", registry=REGISTRY)
BUILD.info({"component": "tuner", "version": version("leeway")})


def serve_metrics(host: str, port: int) -> None:
    """Answer on `http://host:port/metrics`; OSError when the port is taken."""
    start_http_server(port, addr=host, registry=REGISTRY)
