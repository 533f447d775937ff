"""What a pod answers about its knobs."""

from typing import Annotated

from leeway_core.pod_knobs import KnobsReply
from pydantic import Field


class KnobsAnswer(KnobsReply):
    """A pod's knobs, and when they took effect, counted in planned iterations since it booted."""

    plans: Annotated[int, Field(ge=0)]
    """Iterations planned so far."""

    enforced_since_plan: Annotated[int, Field(ge=0)]
    """Number of the first plan that obeyed the enforced set, or is to, if the pod was idle."""
