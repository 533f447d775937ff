"""What to do with a profile's knobs, and why."""

from typing import Annotated, Literal

from pydantic import Field

from leeway_core.knobs import Knobs
from leeway_core.model import Model
from leeway_core.record import Record
from leeway_core.snapshot import Snapshot

Action = Literal["Hold", "Try", "Promote", "RollBack", "Restore", "Advise"]


class Evidence(Model):
    """The numbers that a decision rests on. What was not measured is absent."""

    incumbent_attainment: float | None = None
    incumbent_requests: int | None = None
    candidate_attainment: float | None = None
    candidate_requests: int | None = None
    difference: float | None = None
    """Paired score of the candidate less that of the incumbent; above 0 the candidate is better."""
    difference_low: float | None = None
    difference_high: float | None = None
    """Bounds of the difference that hold at all times together."""
    pairs: int | None = None
    """How many windows of the candidate have been compared with the incumbent's around them."""
    boldness: float | None = None
    """How far the candidate is from the incumbent, of the way across the range of the knob that moves most."""
    boldness_cap: float | None = None
    """The furthest that a candidate may be."""


class Decision(Model):
    """The answer to a Snapshot."""

    sequence: Annotated[int, Field(ge=1)]
    """Sequence of the Snapshot that it answers."""

    action: Action
    """Keep the knobs; put a candidate in force; make it the incumbent; go back to the incumbent, for a while or for
    good; go back to the starting knobs; or advise a candidate that waits for approval."""

    record: Record
    """To be on record before any pod is told; `record.in_force` are the knobs to have in force."""

    advised: Knobs | None = None
    """The candidate that waits for approval."""

    reason: Annotated[str, Field(pattern=r"^[A-Z][A-Za-z]*$", max_length=64)]
    message: Annotated[str, Field(max_length=1024)]
    evidence: Evidence = Evidence()


class Decided(Model):
    """A decision together with what it was taken on."""

    snapshot: Snapshot
    decision: Decision


class SequenceBehind(Model):
    """Body of the 409 that a sequence below the last one gets."""

    last_sequence: int
    """Ask again with a sequence above this one."""

    message: str
