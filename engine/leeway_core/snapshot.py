"""All that a decision rests on: what the operator observed of a profile at one moment."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from leeway_core.knobs import Knobs
from leeway_core.model import Model
from leeway_core.objective import Objective
from leeway_core.pod_knobs import PodKnobs
from leeway_core.ranges import KnobRanges
from leeway_core.reading import Reading
from leeway_core.record import Record

Time = Annotated[float, Field(allow_inf_nan=False)]
"""Unix time in seconds, of the operator's clock."""

Disturbance = Literal["ReplicasChanging", "PodsNotReady", "KnobsPending", "KnobsEdited"]
"""Why the pods are not to be judged by now: replicas come or go, a pod is not ready, a pod has not yet accepted the
knobs in force, or somebody else has turned knobs."""


class PodSeen(Model):
    """One engine pod."""

    name: str
    ready: bool
    since_s: Time
    """When its container last started."""
    accepted: PodKnobs | None = None
    """Absent while the pod does not answer."""
    enforced: PodKnobs | None = None


class Readings(Model):
    """What requests came to between two scrapes."""

    from_s: Time | None = None
    to_s: Time | None = None
    """First and last scrape that the readings rest on; absent while there are not two."""

    attainment: Reading
    """Share of all requests of the window that met their objective."""

    objectives: dict[str, Reading]
    """The same for each objective, by name."""

    goodput_rps: Reading
    """Requests a second that met their objective."""

    @property
    def span_s(self) -> float:
        """How long the readings reach."""
        return 0.0 if self.from_s is None or self.to_s is None else self.to_s - self.from_s


class Telemetry(Readings):
    """Readings of the window under measurement."""

    unsettled: Readings | None = None
    """The same from the first scrape after a candidate's push on, though some requests then were served under the
    incumbent for the most part; absent while no candidate is in force."""

    missed: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    """Requests of the window that missed, by the reason of their verdict; reasons without any are left out."""

    ttft_s: dict[str, Reading] = Field(default_factory=dict)
    """95th percentile for each objective, for people."""

    itl_s: dict[str, Reading] = Field(default_factory=dict)
    """95th percentile for each objective, for people."""


class Snapshot(Model):
    """A profile at one moment. The same uid and sequence always stand for the same question."""

    uid: Annotated[str, Field(min_length=1, max_length=64)]
    namespace: str
    name: str
    generation: Annotated[int, Field(ge=1)]
    """Generation of the profile's spec."""

    sequence: Annotated[int, Field(ge=1)]
    """Grows with each question; what is approved is named by it."""

    now_s: Time
    """When all this was seen."""

    mode: Literal["Observe", "Recommend", "Auto"]
    approved_decision: int | None = None
    objectives: Annotated[tuple[Objective, ...], Field(min_length=1)]
    ranges: KnobRanges
    window_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    exploration_budget_percent: Annotated[int, Field(ge=0, le=100)]
    starting: Knobs
    """The knobs that are in force until better ones are found."""

    record: Record
    pods: tuple[PodSeen, ...]
    disturbance: Disturbance | None = None
    telemetry: Telemetry

    @model_validator(mode="after")
    def _starts_inside(self) -> Self:
        if not self.ranges.hold(self.starting):
            raise ValueError("the starting knobs are outside the ranges")
        return self
