"""How a pod's API is served."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Where a pod listens and what it holds its clients to."""

    served_model: str
    """Name under which clients ask for the model."""
    knobs_token_file: Path
    """File with the bearer token of the knob endpoint, read anew for each push."""
    knobs_file: Path | None = None
    """Knobs in force, to boot with; without it the pod starts at its ceilings."""
    host: str = "0.0.0.0"
    port: int = 8000
    knobs_port: int = 8001
    max_body_bytes: int = 4 << 20
    max_requests: int = 1024
    """Most requests held at a time, running and waiting; more are turned away with 503."""
    stalled_client_s: float = 60.0
    """How long a client may take nothing of its stream before it is cut off."""
    drain_s: float = 300.0
    """How long a stopping pod waits for its streams to end."""
