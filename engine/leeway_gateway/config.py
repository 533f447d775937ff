"""What a gateway is started with."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Service:
    """The Kubernetes Service whose ready pods take the requests, found by its EndpointSlices."""

    name: str
    port: str = "http"
    """Name of the port that the pods serve OpenAI's API on."""
    namespace: str | None = None
    """None takes the gateway's own."""


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Where a gateway listens, whom it serves and how long it waits."""

    pods: Service | tuple[str, ...]
    """A Service, or without Kubernetes the pods' addresses."""
    objectives_file: Path
    """A JSON list of objectives, followed while it changes."""
    host: str = "0.0.0.0"
    port: int = 8000
    metrics_port: int = 8001
    """Metrics and probes, apart from what clients reach."""
    max_body_bytes: int = 4 << 20
    wait_s: float = 10.0
    """How long a request waits, over all its tries, for a pod that takes it; then it gets 503."""
    max_broken_tries: int = 3
    """How many pods may break a request off, before anything went to the client, until it fails."""
    silence_s: float = 300.0
    """How long a pod may send nothing before its request has timed out."""
    stalled_client_s: float = 60.0
    """How long a client may take nothing of its answer before it is cut off."""
    leave_s: float = 3.0
    """How long a stopping gateway still takes requests, until everybody knows that it stops."""
    drain_s: float = 300.0
    """How long a stopping gateway waits for its answers to end."""
