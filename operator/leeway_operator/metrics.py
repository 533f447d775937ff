"""What the operator tells of itself to Prometheus."""

from importlib.metadata import version

from prometheus_client import Counter, Info, Summary

BUILD = Info("leeway_build", "Version of the component that runs.")
BUILD.info({"component": "operator", "version": version("leeway")})
VISITS = Summary("leeway_operator_visit_seconds", "Seconds that visits of profiles took.")
VISIT_FAILURES = Counter("leeway_operator_visit_failures", "Visits of profiles that failed and will be repeated.")
