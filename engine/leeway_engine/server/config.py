"""What a pod is started with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from leeway_core.errors import UserError
from leeway_core.model import Model
from leeway_core.pod_knobs import Ceilings, PodKnobs
from pydantic import Field, ValidationError


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Where a pod listens and what it holds its clients to."""

    served_model: str
    """Name under which clients ask for the model."""
    knobs_token_file: Path
    """File with the bearer token of the knob endpoint, read anew for each push."""
    host: str = "0.0.0.0"
    port: int = 8000
    knobs_port: int = 8001
    max_body_bytes: int = 4 << 20
    max_requests: int = 2048
    """Most requests held at a time, those that are still being read included; more are turned away with 503."""
    stalled_client_s: float = 60.0
    """How long a client may take nothing of its stream, or take to send its request, before it is cut off."""
    drain_s: float = 300.0
    """How long a stopping pod waits for its streams to end."""
    unready_after_s: float = 30.0
    """How long requests may be in flight with nothing heard from the engine loop, or nothing scheduled by it, before
    the pod is not ready; longer than any iteration takes."""
    kill_after_s: float = 120.0
    """How long a loop may say nothing with requests in flight before it is ended, and the pod with it."""
    event_log: Path | None = None
    """File of the event log; None keeps none."""
    event_log_bytes: int = 64 << 20
    """Size at which the event log goes on in a new file."""
    event_log_files: int = 4
    """Most files of the event log, the one written to included; the oldest goes."""


class EngineConfig(Model):
    """What the engine loop loads and how much it may hold, fixed when the pod boots."""

    model: Path
    """A Hugging Face folder or a GGUF file."""
    device: str = "cpu"
    dtype: Literal["float64", "float32", "bfloat16", "float16"] = "float32"
    kernels: Literal["auto", "eager"] = "auto"
    """auto compiles kernels for the CPU where there is a C++ compiler; eager runs on plain torch."""
    threads: Annotated[int, Field(ge=1)] | None = None
    """CPU threads of an iteration; None leaves it to torch."""
    kv_blocks: Annotated[int, Field(ge=1)]
    block_size: Annotated[int, Field(ge=1)] = 16
    context: Annotated[int, Field(ge=1)] | None = None
    """Most tokens of prompt and output together; None takes what the model was trained for."""
    prefix_reuse: bool = True
    """Whether requests take the KV of prompts that begin alike from each other."""
    swap_blocks: Annotated[int, Field(ge=0)] = 0
    """KV blocks that host memory has room for, to keep those of preempted requests."""
    event_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the requests whose events are recorded for the event log."""
    ceilings: Ceilings
    knobs: PodKnobs
    """Knobs to boot with."""


def boot_knobs(file: Path | None, ceilings: Ceilings) -> PodKnobs:
    """Return the knobs of a mounted file, or without one the ceilings themselves; raises UserError if unfit."""
    if file is None:
        return PodKnobs(generation=1, **ceilings.model_dump())
    try:
        knobs = PodKnobs.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise UserError(f"{file} holds no knobs: {error}") from error
    if refusal := ceilings.refusal(knobs):
        raise UserError(f"{file}: {refusal}")
    return knobs
