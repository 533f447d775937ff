"""What the tuner tells of itself to Prometheus."""

from importlib.metadata import version

from prometheus_client import Info, start_http_server

BUILD = Info("leeway_build", "Version of the component that runs.")
BUILD.info({"component": "tuner", "version": version("leeway")})


def serve_metrics(host: str, port: int) -> None:
    """Answer on `http://host:port/metrics`; OSError when the port is taken."""
    start_http_server(port, addr=host)
