"""What a class of requests is promised."""

from hashlib import sha256
from typing import Annotated

from pydantic import Field

from leeway_core.model import Model

Milliseconds = Annotated[int, Field(ge=1, le=3_600_000)]


class Objective(Model):
    """A class of requests, the latency bounds that each of them must meet, and the share that must meet them.

    Requests choose a class by name in a header; the first objective also holds for those that name none.
    """

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the class, unique in the profile: lower-case letters, digits and dashes."""

    ttft_ms: Milliseconds | None = None
    """Most milliseconds from a request's arrival at the gateway to its first output token leaving it (TTFT)."""

    itl_ms: Milliseconds | None = None
    """Most milliseconds between two consecutive output tokens (ITL), held by `quantilePercent` of a request's own
    gaps. Excludes `tpotMs`."""

    tpot_ms: Milliseconds | None = None
    """Most milliseconds that a request's output tokens may take on average after the first (TPOT). Excludes
    `itlMs`."""

    quantile_percent: Annotated[int, Field(ge=1, le=100)] = 95
    """Which quantile of a request's own gaps must be within `itlMs`: 95 leaves one gap in twenty free, 100 none."""

    deadline_seconds: Annotated[int, Field(ge=1, le=86_400)] | None = None
    """Most seconds from a request's arrival to its last output token. For batch work: excludes the other bounds."""

    target_percent: Annotated[str, Field(max_length=8)] = "99"
    """Share of the requests that must meet all bounds: a decimal in quotes, above "0" and at most "100". What it
    leaves to 100 is the error budget."""


def digest(content: bytes) -> str:
    """Return what tells one version of a file of objectives from any other."""
    return sha256(content).hexdigest()[:16]
