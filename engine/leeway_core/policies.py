"""How a pod schedules: the policies that turn while it serves. The defaults are first come, first served."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from leeway_core.model import Model

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Percent = Annotated[int, Field(ge=0, le=100)]


class Policy(Model):
    """A policy's settings."""

    model_config = ConfigDict(extra="forbid", strict=True)


class FirstCome(Policy):
    """The earliest arrival goes first."""

    kind: Literal["first_come"] = "first_come"


class ShortestPrompt(Policy):
    """The request with the fewest tokens to prefill goes first; waiting counts as having fewer."""

    kind: Literal["shortest_prompt"] = "shortest_prompt"

    ageing_tokens: Positive = 8.0
    """Tokens by which a request counts as shorter for each iteration since its arrival."""


class EffectivePriority(Policy):
    """Most points first: class and priority + urgency of the deadline + age - estimated cost."""

    kind: Literal["effective_priority"] = "effective_priority"

    class_points: dict[str, float] = Field(default_factory=dict)
    """Points of an SLO class by its name; other classes have none. A request's own priority is added."""
    urgency_points: NotNegative = 100.0
    """Points of a request whose deadline has no slack left but can be met."""
    urgency_horizon_s: Positive = 5.0
    """Slack from which on a request becomes urgent, in seconds."""
    age_points: Positive = 0.1
    """Points for each iteration since arrival."""
    cost_points: NotNegative = 0.01
    """Points off for each token that is still to be computed: the prefill and the expected output."""


class SkipJoin(Policy):
    """Skip-join multi-level feedback queue (FastServe)."""

    kind: Literal["skip_join"] = "skip_join"

    levels: Annotated[int, Field(ge=1, le=16)] = 6
    first_quantum_tokens: Count = 128
    """Tokens that a request may be served in the top level; each level below has twice the quantum above."""
    promotion_iterations: Count = 500
    """Iterations after which a waiting request moves to the top level."""


class TokenCounters(Policy):
    """The tenant that was served least goes first, and its earliest arrival (VTC); weights are in `tenancy`."""

    kind: Literal["token_counters"] = "token_counters"


Ranking = Annotated[
    FirstCome | ShortestPrompt | EffectivePriority | SkipJoin | TokenCounters, Field(discriminator="kind")
]


class Tenancy(Policy):
    """What a tenant is charged for. It is counted under every ranking, so that a change of ranking finds it counted."""

    input_weight: Positive = 1.0
    """For each prompt token, at admission."""
    output_weight: Positive = 2.0
    """For each generated token; at least `input_weight`, which the bound of the difference between tenants rests on."""
    residency_weight: NotNegative = 0.0
    """For each token in KV in each iteration in which the request decodes."""
    tenant_shares: dict[str, Positive] = Field(default_factory=dict)
    """A tenant with share 2 pays half; others have share 1."""
    class_shares: dict[str, Positive] = Field(default_factory=dict)
    """The same by SLO class, for products of different price."""

    @model_validator(mode="after")
    def _outputs_weigh_most(self) -> Self:
        if self.output_weight < self.input_weight:
            raise ValueError(
                f"output_weight {self.output_weight} is under input_weight {self.input_weight}: "
                "the bound on unfairness would not hold"
            )
        return self


class AdaptiveChunk(Policy):
    """Prefills take the most tokens with which the predicted iteration keeps the ITL objective."""

    itl_s: Positive
    """Longest iteration, in seconds."""
    floor_tokens: Count = 16
    """Tokens that the first prefill of an iteration may have whatever is predicted: fewer would be inefficient."""


class PrefillCap(Policy):
    """Active-prefill cap (Liu et al., APC): few prefills at a time, none of them in crumbs."""

    prefills: Count = 4
    """Most requests that prefill in one iteration (C_max)."""
    chunk_tokens: Count = 64
    """Least tokens worth a chunk, save for the end of a prompt (L_min)."""


class Protection(Policy):
    """Keeps prefills and decodes from starving each other, and the queue from starving anyone."""

    prefill_percent: Annotated[int, Field(ge=1, le=90)] = 20
    """Share of the token budget that decodes leave to prefills while there are any."""
    decode_cap: Count | None = None
    """Most decodes in one iteration while there are prefills; more take turns. None leaves it to the share above."""
    boost_iterations: Count = 100
    """Iterations after its admission from which a prefill goes before all later arrivals."""
    overdue_iterations: Count = 1000
    """Iterations after its arrival from which a waiting request goes before all that the ranking prefers."""


class Growth(Policy):
    """How many output tokens a request's admission keeps KV blocks for."""

    reserve: Literal["none", "expected", "all"] = "none"
    """`none`: one block for each running request. `expected`: a quantile of the outputs seen in the request's class.
    `all`: its max_tokens, so that no request is ever preempted; the bound of TokenCounters needs it."""
    quantile_percent: Percent = 50
    """The quantile of `expected`."""


class Slack(Policy):
    """What deadlines do to places in the queue: a pressing one goes first, a doubtful one last, one out of reach as its
    class says. The ranking orders within each, and those without a deadline come in between."""

    pressing_s: Positive = 5.0
    """Slack from which on a deadline that can be met is pressing, in seconds."""
    doubt_percent: Annotated[int, Field(ge=0, le=99)] = 25
    """How far off a predicted time may be. A deadline that is met even so is reachable, one that is missed even so is
    unreachable, and any other is doubtful."""
    unreachable: Literal["serve", "downgrade", "reject"] = "downgrade"
    """For classes that `by_class` does not name."""
    by_class: dict[str, Literal["serve", "downgrade", "reject"]] = Field(default_factory=dict)


class AdmissionLimits(Policy):
    """When a request is turned away at its arrival; None is no limit."""

    waiting_requests: Count | None = None
    tenant_requests: Count | None = None
    """Most requests of one tenant, running and waiting."""
    tenant_waiting_tokens: Count | None = None
    """Most tokens to prefill that one tenant has in the queue."""
    queue_delay_s: Positive | None = None
    """Longest predicted time from arrival to the first chunk."""
    upstream_delay_s: Positive | None = None
    """Predicted queue delay from which a request had better wait upstream, where another pod may take it."""
    kv_percent: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Most KV, in percent of the pool, that running and waiting requests may be expected to fill; beyond, another pod
    is the better place."""


class Victim(Policy):
    """Which running request loses its KV when blocks run out: the one that frees most at least cost.

    Score = `block_points`·blocks freed - `recompute_points`·tokens to compute again (or to swap)
    - `deadline_points`, if its deadline would be lost + `debt_points`·what its tenant is served beyond others
    - `nearly_points`, as its output nears its expected length.
    """

    block_points: NotNegative = 1.0
    recompute_points: NotNegative = 0.1
    swap_points: NotNegative = 0.02
    deadline_points: NotNegative = 50.0
    debt_points: NotNegative = 0.001
    nearly_points: NotNegative = 20.0


class Policies(Policy):
    """All policies together; each turns alone, and a change loses no request."""

    ranking: Ranking = FirstCome()
    """Who goes first."""
    tenancy: Tenancy = Tenancy()
    adaptive_chunk: AdaptiveChunk | None = None
    """None: chunks of `chunk_size` tokens."""
    iteration_s: Positive | None = None
    """Longest predicted iteration, in seconds; decodes run whatever is predicted."""
    prefill_cap: PrefillCap | None = None
    protection: Protection | None = None
    growth: Growth = Growth()
    slack: Slack | None = None
    admission: AdmissionLimits | None = None
    victim: Victim | None = None
    """None: the request that the ranking would miss least."""
