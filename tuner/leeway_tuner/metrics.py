"""What the tuner tells of itself to Prometheus."""

from importlib.metadata import version

from prometheus_client import Info, start_http_server


def serve_metrics(host: str, port: int) -> None:
    """Answer on `http://host:port/metrics`; OSError when the port is taken."""
    build = Info("leeway_build", "Version of the component that runs.")
    build.info({"component": "tuner", "version": version("leeway")})
    start_http_server(port, addr=host)
