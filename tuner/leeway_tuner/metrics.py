"""What the tuner tells of itself to Prometheus."""

from importlib.metadata import version

from prometheus_client import Info

BUILD = Info("leeway_build", "Version of the component that runs.")
BUILD.info({"component": "tuner", "version": version("leeway")})
