"""`status` of a ServingProfile: what Leeway reports. The CRD is generated from these models."""

from datetime import datetime
from typing import Annotated, Literal

from leeway_core.knobs import Knobs
from leeway_core.model import Model
from pydantic import Field

from leeway_operator.markers import list_map

ConditionType = Literal["Ready", "TelemetryHealthy", "SLOMet", "Tuning", "Degraded", "Paused"]
Count = Annotated[int, Field(ge=0)]
Decimal = Annotated[str, Field(max_length=16)]


class Condition(Model):
    """One aspect of the profile, whether it holds, and why."""

    type: ConditionType
    """Ready: enough pods serve. TelemetryHealthy: readings are complete and recent. SLOMet: every objective meets its
    target. Tuning: Leeway measures or tries, to find better knobs. Degraded: something is broken, yet serving goes
    on. Paused: tuning waits for something."""

    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""

    reason: Annotated[str, Field(min_length=1, max_length=128)]
    """Why, in one CamelCase word for machines."""

    message: Annotated[str, Field(max_length=1024)]
    """Why, in a sentence for people."""

    observed_generation: Count
    """Generation of the profile that this was found for."""

    last_transition_time: datetime
    """When `status` last changed."""


class Attainment(Model):
    """How one objective fares."""

    name: Annotated[str, Field(max_length=63)]
    """Name of the objective."""

    attainment_percent: Decimal | None = None
    """Share of its requests that met all bounds. Absent while there is no reading."""

    budget_left_percent: Decimal | None = None
    """Share of its error budget that is left. Absent while there is no reading."""

    requests: Count | None = None
    """How many requests the reading rests on."""

    ttft_p95_ms: Count | None = None
    """95th percentile of its requests' TTFT over the last minute or more, ms. Absent while there is no reading."""

    itl_p95_ms: Count | None = None
    """95th percentile of its requests' ITL over the last minute or more, ms. Absent while there is no reading."""


class KnobsStatus(Model):
    """The knobs that Leeway wants, and how far the pods have come."""

    desired: Knobs
    """The knobs that every pod should have in force."""

    enforced: Knobs | None = None
    """The knobs that every pod has in force. Absent while pods differ."""

    pods: Count = 0
    """How many pods there are to turn."""

    acknowledged_pods: Count = 0
    """How many of them have accepted the desired knobs."""


class DecisionRecord(Model):
    """A decision on the knobs. `leeway explain` tells more of it."""

    sequence: Annotated[int, Field(ge=1)]
    """Number of the decision, by which it can be approved."""

    time: datetime
    """When it was taken."""

    action: Literal["Hold", "Try", "Promote", "RollBack", "Restore", "Advise"]
    """What was decided: keep the knobs, try a candidate, make it the incumbent, go back to the incumbent, restore what
    was best in this kind of traffic, or ask for more pods."""

    message: Annotated[str, Field(max_length=1024)]
    """Why, in a sentence for people."""


class Status(Model):
    """What Leeway reports. Readings that are missing are absent, never zero."""

    observed_generation: Count | None = None
    """Generation of the profile that this status was written for."""

    summary: Annotated[str, Field(max_length=256)] | None = None
    """State, attainment and mode in a few words."""

    conditions: Annotated[list[Condition], list_map("type", max_length=16)] | None = None
    """Whether the profile is Ready, TelemetryHealthy, SLOMet, Tuning, Degraded, Paused, and why."""

    replicas: Count | None = None
    """How many engine pods there are."""

    selector: Annotated[str, Field(max_length=512)] | None = None
    """Label selector of the engine pods, for autoscalers."""

    objectives: Annotated[list[Attainment], list_map("name", max_length=16)] | None = None
    """How each objective fares."""

    tuner: Annotated[str, Field(max_length=128)] | None = None
    """The Service of the tuner that decides on the knobs: its namespace, a slash, its name."""

    knobs: KnobsStatus | None = None
    """The knobs that Leeway wants, and how far the pods have come."""

    decisions: Annotated[list[DecisionRecord], Field(max_length=5)] | None = None
    """The last decisions on the knobs, newest first."""
