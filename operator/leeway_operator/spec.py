"""`spec` of a ServingProfile: what a user asks for. The CRD is generated from these models."""

from typing import Annotated, Literal

from leeway_core.model import Model
from leeway_core.objective import Objective
from pydantic import Field

from leeway_operator.bounds import KnobBounds
from leeway_operator.markers import Rule, list_map, rule, rules
from leeway_operator.scheduling import Scheduling

Quantity = int | Annotated[str, Field(max_length=32)]
Quantities = Annotated[dict[str, Quantity], Field(max_length=16)]


class Resources(Model):
    """What a pod is given of the node, as in any Kubernetes container."""

    model_config = rules(
        *(
            rule(
                f"!has(self.{kind}) || self.{kind}.all(name, isQuantity(string(self.{kind}[name])))",
                f'every entry of {kind} must be a quantity such as 2, "500m" or "8Gi"',
                f".{kind}",
            )
            for kind in ("requests", "limits")
        ),
        rule(
            "!has(self.requests) || !has(self.limits) || self.requests.all(name, !(name in self.limits)"
            " || !isQuantity(string(self.requests[name])) || !isQuantity(string(self.limits[name]))"
            " || !quantity(string(self.requests[name])).isGreaterThan(quantity(string(self.limits[name]))))",
            "no entry of requests may be above its limit: lower the request or raise the limit",
            ".requests",
        ),
    )

    requests: Quantities | None = None
    """What the scheduler sets aside for the pod, by resource name: cpu, memory, nvidia.com/gpu and so on."""

    limits: Quantities | None = None
    """What the pod may use at most, by resource name."""


class Ceilings(Model):
    """The most that knobs may reach without a restart: buffers and captured graphs are made for it at boot."""

    model_config = rules(
        rule(
            "self.runningSequences <= self.tokenBudget",
            "runningSequences must not be above tokenBudget, for each running request takes a token of every iteration:"
            " lower runningSequences or raise tokenBudget",
            ".runningSequences",
        )
    )

    token_budget: Annotated[int, Field(ge=16, le=1_048_576)] = 2048
    """Highest token budget, and so the largest chunk, that a pod can be turned to."""

    running_sequences: Annotated[int, Field(ge=1, le=65_536)] = 128
    """Most requests that a pod can be turned to decode at a time."""


class Engine(Model):
    """The pods that run the model."""

    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Image of the engine pods. Defaults to the image that the operator itself runs."""

    model_claim: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """PersistentVolumeClaim that holds models; the engine pods see it, read-only, as `/models`."""

    args: Annotated[list[Annotated[str, Field(max_length=1024)]], Field(max_length=64)] | None = None
    """Further arguments for the engine's command. A change restarts the pods, one after the other."""

    resources: Resources | None = None
    """What each engine pod is given of its node."""

    ceilings: Ceilings = Field(default_factory=Ceilings)
    """The most that knobs may reach without a restart. A change restarts the pods, one after the other."""


class Gateway(Model):
    """The pods in front of the engine pods: the profile's OpenAI-compatible address."""

    replicas: Annotated[int, Field(ge=1, le=64)] = 1
    """How many gateway pods run."""

    resources: Resources | None = None
    """What each gateway pod is given of its node."""


class ProfileObjective(Objective):
    """A class of requests, the latency bounds that each of them must meet, and the share that must meet them."""

    model_config = rules(
        rule(
            "self.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            'name must be lower-case letters, digits and dashes, such as "chat" or "long-documents"',
            ".name",
        ),
        rule(
            "has(self.ttftMs) || has(self.itlMs) || has(self.tpotMs) || has(self.deadlineSeconds)",
            "an objective needs a bound: set ttftMs, itlMs or tpotMs, or deadlineSeconds",
        ),
        rule(
            "!has(self.itlMs) || !has(self.tpotMs)",
            "itlMs and tpotMs exclude each other: keep itlMs to bound the gaps between tokens, or tpotMs their mean",
        ),
        rule(
            "!has(self.deadlineSeconds) || !(has(self.ttftMs) || has(self.itlMs) || has(self.tpotMs))",
            "deadlineSeconds stands alone: remove ttftMs, itlMs and tpotMs, or give them an objective of their own",
            ".deadlineSeconds",
        ),
        rule(
            r"self.targetPercent.matches('^[0-9]{1,3}([.][0-9]{1,4})?$')"
            " && double(self.targetPercent) > 0.0 && double(self.targetPercent) <= 100.0",
            'targetPercent must be a decimal above 0 and at most 100, in quotes, such as "99.5"',
            ".targetPercent",
        ),
    )


class Tuning(Model):
    """How Leeway turns the knobs."""

    model_config = rules(
        rule(
            "self.mode != 'Auto' || self.explorationBudgetPercent > 0",
            "mode Auto tries nothing with an explorationBudgetPercent of 0: raise it, or set mode to Observe",
            ".explorationBudgetPercent",
        ),
        rule(
            "!has(self.approvedDecision) || self.mode == 'Recommend'",
            "approvedDecision counts in mode Recommend only: set mode to Recommend, or remove approvedDecision",
            ".approvedDecision",
        ),
    )

    mode: Literal["Observe", "Recommend", "Auto"] = "Observe"
    """Observe measures and turns nothing. Recommend also says in `status.decisions` what it would turn, and turns what
    `approvedDecision` names. Auto turns knobs by itself, inside `knobs`."""

    approved_decision: Annotated[int, Field(ge=1)] | None = None
    """Sequence number of the decision in `status.decisions` that may be carried out. Mode Recommend only."""

    window_seconds: Annotated[int, Field(ge=10, le=3600)] = 60
    """Length of the windows over which knobs are measured and compared."""

    exploration_budget_percent: Annotated[int, Field(ge=0, le=100)] = 50
    """Most of an objective's error budget that trials may spend. Beyond it the best known knobs stay in force."""

    knobs: KnobBounds = Field(default_factory=KnobBounds)
    """How far each knob may be turned."""


class Prometheus(Model):
    """The Prometheus that scrapes the profile's pods."""

    model_config = rules(
        rule(
            "!has(self.url) || (isURL(self.url) && url(self.url).getScheme() in ['http', 'https'])",
            'url must be an http or https address, such as "http://prometheus.monitoring.svc:9090"',
            ".url",
        )
    )

    url: Annotated[str, Field(max_length=2048)] | None = None
    """Address of its HTTP API. Without one Leeway serves, but measures and tunes nothing."""


class Telemetry(Model):
    """Where Leeway reads what it measures by."""

    prometheus: Prometheus = Field(default_factory=Prometheus)
    """The Prometheus that scrapes the profile's pods."""


def _below_ceiling(knob: str, ceiling: str) -> Rule:
    bounds, limit = f"self.tuning.knobs.{knob}", f"self.engine.ceilings.{ceiling}"
    return rule(
        f"{bounds}.min <= {limit} && (!has({bounds}.max) || {bounds}.max <= {limit})"
        f" && (!has({bounds}.start) || {bounds}.start <= {limit})",
        f"min, start and max of {knob} must not be above engine.ceilings.{ceiling}: lower them or raise the ceiling",
        f".tuning.knobs.{knob}",
    )


def _known_classes(section: str, names: str) -> Rule:
    """Refuse a name by which no request will ever come."""
    path = f"self.scheduling.{section}"
    given = f"has({path}) && has({path}.{names})"
    return rule(
        f"!({given}) || {path}.{names}.all(name, self.objectives.exists(objective, objective.name == name))",
        f"every name in {names} must be the name of one of the objectives: correct it, or add the objective",
        f".scheduling.{section}.{names}",
    )


class Spec(Model):
    """What a user asks for. Leeway never writes it."""

    model_config = rules(
        _below_ceiling("tokenBudget", "tokenBudget"),
        _below_ceiling("prefillHeavyChunk", "tokenBudget"),
        _below_ceiling("decodeHeavyChunk", "tokenBudget"),
        _below_ceiling("runningSequences", "runningSequences"),
        rule(
            "self.tuning.knobs.decodeHeavyChunk.min >= 1 || self.replicas != 1",
            "disaggregation (decodeHeavyChunk.min of 0) needs a P-heavy and a D-heavy pod: set replicas to 2 or more,"
            " or decodeHeavyChunk.min to 1 or more",
            ".replicas",
        ),
        _known_classes("ranking.effectivePriority", "classPoints"),
        _known_classes("tenancy", "classShares"),
        _known_classes("slack", "byClass"),
    )

    model: Annotated[str, Field(min_length=1, max_length=512)]
    """The model to serve: the path of a folder or GGUF file that the engine pods see. Nothing is fetched."""

    engine: Engine = Field(default_factory=Engine)
    """The pods that run the model."""

    replicas: Annotated[int, Field(ge=0, le=512)] = 1
    """How many engine pods run; 0 stops serving. `kubectl scale` and autoscalers turn it too."""

    gateway: Gateway = Field(default_factory=Gateway)
    """The pods in front of the engine pods: the profile's OpenAI-compatible address."""

    objectives: Annotated[list[ProfileObjective], list_map("name", min_length=1, max_length=16)]
    """The classes of requests and what each is promised. The first one also holds for requests that name none."""

    tuning: Tuning = Field(default_factory=Tuning)
    """How Leeway turns the knobs."""

    scheduling: Scheduling = Field(default_factory=Scheduling)
    """How the engine pods schedule: who goes first, who is protected, limited and preempted. A change restarts
    nothing."""

    telemetry: Telemetry = Field(default_factory=Telemetry)
    """Where Leeway reads what it measures by."""
