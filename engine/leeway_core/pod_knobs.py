"""The settings of one engine pod that turn while it serves."""

from typing import Annotated

from pydantic import ConfigDict, Field

from leeway_core.model import Model
from leeway_core.policies import Policies


class PodKnobs(Model):
    """All live settings of a pod, always pushed as a whole."""

    model_config = ConfigDict(extra="forbid", strict=True)

    generation: Annotated[int, Field(ge=1)]
    """Number of this set; a pod takes only a higher one than it has."""

    token_budget: Annotated[int, Field(ge=1)]
    """Most tokens, prefill and decode together, that one iteration schedules."""

    chunk_size: Annotated[int, Field(ge=1)]
    """Most prompt tokens of one request in one iteration."""

    running_sequences: Annotated[int, Field(ge=1)]
    """Most requests that hold KV blocks at a time. A lowered limit drains: nothing is cut off."""

    policies: Policies = Policies()
    """How requests are ranked, protected, limited and preempted."""


class Ceilings(Model):
    """The most that each knob may reach without a restart, fixed when the pod boots."""

    token_budget: Annotated[int, Field(ge=1)]
    chunk_size: Annotated[int, Field(ge=1)]
    running_sequences: Annotated[int, Field(ge=1)]

    def refusal(self, knobs: PodKnobs) -> str | None:
        """Why these knobs cannot be enforced here, or None if they can."""
        for name in ("token_budget", "chunk_size", "running_sequences"):
            value, ceiling = getattr(knobs, name), getattr(self, name)
            if value > ceiling:
                return f"{name} {value} is over this pod's ceiling {ceiling}"
        if knobs.token_budget < knobs.running_sequences:
            return (
                f"token_budget {knobs.token_budget} is under running_sequences {knobs.running_sequences}: "
                "some decodes would not get their token in each iteration"
            )
        return None


class KnobsReply(Model):
    """A pod's answer to a push or a read of its knobs."""

    accepted: PodKnobs
    """The set that the next planned iteration obeys."""

    enforced: PodKnobs
    """The set that the last planned iteration obeyed."""

    ceilings: Ceilings

    refusal: str | None = None
    """Why the push changed nothing, or None if it was accepted."""
