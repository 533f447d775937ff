"""`spec.scheduling` of a ServingProfile: the policies of leeway_core in whole numbers and decimals in quotes."""

from typing import Annotated, Literal

from leeway_core.model import Model
from pydantic import Field

from leeway_operator.markers import Rule, field_rules, rule, rules

MOST_CLASSES = 16
MOST_TENANTS = 64

_UNSIGNED = "^[0-9]{1,9}([.][0-9]{1,9})?$"
_SIGNED = "^-?[0-9]{1,9}([.][0-9]{1,9})?$"

NotNegative = Annotated[
    str,
    Field(max_length=20),
    field_rules(rule(f"self.matches('{_UNSIGNED}')", 'must be a decimal of 0 or more, in quotes, such as "0.5"')),
]
Positive = Annotated[
    str,
    Field(max_length=20),
    field_rules(
        rule(
            f"self.matches('{_UNSIGNED}') && double(self) > 0.0", 'must be a decimal above 0, in quotes, such as "0.5"'
        )
    ),
]
Points = Annotated[
    str,
    Field(max_length=20),
    field_rules(rule(f"self.matches('{_SIGNED}')", 'must be a decimal in quotes, such as "10" or "-2.5"')),
]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Milliseconds = Annotated[int, Field(ge=1, le=86_400_000)]
Percent = Annotated[int, Field(ge=0, le=100)]
WhenLate = Literal["Serve", "Downgrade", "Reject"]


class ShortestPrompt(Model):
    """Settings of the ranking `ShortestPrompt`."""

    ageing_tokens: Positive = "8"
    """Tokens by which a request counts as shorter for each iteration since its arrival, so that long prompts get
    their turn. A decimal in quotes."""


class EffectivePriority(Model):
    """Settings of the ranking `EffectivePriority`: points are decimals in quotes."""

    class_points: Annotated[dict[str, Points], Field(max_length=MOST_CLASSES)] | None = None
    """Points of a request by the name of its objective; objectives that are not named have none. The priority that a
    request carries in its header is added."""

    urgency_points: NotNegative = "100"
    """Points of a request whose deadline can be met if it goes now, and not later."""

    urgency_horizon_ms: Milliseconds = 5000
    """Slack before the deadline from which on a request becomes urgent, in milliseconds."""

    age_points: Positive = "0.1"
    """Points for each iteration since a request's arrival."""

    cost_points: NotNegative = "0.01"
    """Points off for each token that is still to be computed: the prefill and the expected output."""


class SkipJoin(Model):
    """Settings of the ranking `SkipJoin`."""

    levels: Annotated[int, Field(ge=1, le=16)] = 6
    """Number of queues; a request joins the highest one whose quantum its prompt fits."""

    first_quantum_tokens: Count = 128
    """Tokens that a request may be served in the top level; each level below has twice the quantum above."""

    promotion_iterations: Count = 500
    """Iterations after which a waiting request moves to the top level."""


def _member(field: str, kind: str) -> Rule:
    return rule(
        f"!has(self.{field}) || self.kind == '{kind}'",
        f"{field} counts with kind {kind} only: set kind to {kind}, or remove {field}",
        f".{field}",
    )


class Ranking(Model):
    """Which waiting request is admitted next."""

    model_config = rules(
        _member("shortestPrompt", "ShortestPrompt"),
        _member("effectivePriority", "EffectivePriority"),
        _member("skipJoin", "SkipJoin"),
    )

    kind: Literal["FirstCome", "ShortestPrompt", "EffectivePriority", "SkipJoin", "TokenCounters"] = "FirstCome"
    """FirstCome: the earliest arrival. ShortestPrompt: the fewest tokens to prefill. EffectivePriority: most points of
    objective, priority, urgency and age, less cost. SkipJoin: feedback queues by service received (FastServe).
    TokenCounters: the tenant that was served least, as `tenancy` counts (VTC)."""

    shortest_prompt: ShortestPrompt | None = None
    """Settings of kind `ShortestPrompt`."""

    effective_priority: EffectivePriority | None = None
    """Settings of kind `EffectivePriority`."""

    skip_join: SkipJoin | None = None
    """Settings of kind `SkipJoin`."""


class Tenancy(Model):
    """What a tenant is charged for. It is counted under every ranking; weights and shares are decimals in quotes."""

    model_config = rules(
        rule(
            f"!self.inputWeight.matches('{_UNSIGNED}') || !self.outputWeight.matches('{_UNSIGNED}')"
            " || double(self.outputWeight) >= double(self.inputWeight)",
            "outputWeight must not be below inputWeight, or the bound between tenants would not hold:"
            " raise outputWeight or lower inputWeight",
            ".outputWeight",
        )
    )

    input_weight: Positive = "1"
    """Charged for each prompt token, at admission."""

    output_weight: Positive = "2"
    """Charged for each generated token; at least `inputWeight`."""

    residency_weight: NotNegative = "0"
    """Charged for each token in KV in each iteration in which the request decodes."""

    tenant_shares: Annotated[dict[str, Positive], Field(max_length=MOST_TENANTS)] | None = None
    """Share of a tenant by its name: one with share "2" pays half. Others have share "1"."""

    class_shares: Annotated[dict[str, Positive], Field(max_length=MOST_CLASSES)] | None = None
    """The same by the name of an objective, for products of different price."""


class AdaptiveChunk(Model):
    """Prefills take the most tokens with which the predicted iteration keeps an ITL bound."""

    itl_ms: Milliseconds
    """Longest iteration that prefills may make, in milliseconds."""

    floor_tokens: Count = 16
    """Tokens that the first prefill of an iteration may have whatever is predicted: fewer would be inefficient."""


class PrefillCap(Model):
    """Few prefills at a time, none of them in crumbs (Liu et al., APC)."""

    prefills: Count = 4
    """Most requests that prefill in one iteration."""

    chunk_tokens: Count = 64
    """Least tokens worth a chunk, save for the end of a prompt."""


class Protection(Model):
    """Keeps prefills and decodes from starving each other, and the queue from starving anyone."""

    prefill_percent: Annotated[int, Field(ge=1, le=90)] = 20
    """Share of the token budget, in percent, that decodes leave to prefills while there are any."""

    decode_cap: Count | None = None
    """Most decodes in one iteration while there are prefills; more take turns. Defaults to what the share leaves."""

    boost_iterations: Count = 100
    """Iterations after its admission from which a prefill goes before all later arrivals."""

    overdue_iterations: Count = 1000
    """Iterations after its arrival from which a waiting request goes before all that the ranking prefers."""


class Growth(Model):
    """How much KV is kept free at an admission, so that running requests can grow."""

    reserve: Literal["None", "Expected", "All"] = "None"
    """None: one block for each running request. Expected: a quantile of the outputs seen for the request's objective.
    All: its max_tokens, so that no request is ever preempted."""

    quantile_percent: Percent = 50
    """The quantile that `Expected` takes, in percent."""


class Slack(Model):
    """What deadlines do to places in the queue: a pressing one goes first, a doubtful one last, one out of reach as its
    objective says. The ranking orders within each, and requests without a deadline come in between."""

    pressing_ms: Milliseconds = 5000
    """Slack before the deadline from which on one that can be met is pressing, in milliseconds."""

    doubt_percent: Annotated[int, Field(ge=0, le=99)] = 25
    """How far off a predicted time may be, in percent, before a deadline counts as out of reach."""

    unreachable: WhenLate = "Downgrade"
    """Serve: as if it could be met. Downgrade: behind the others, without its priority. Reject: with 503, so that
    another pod or a later deadline can be tried. For objectives that `byClass` does not name."""

    by_class: Annotated[dict[str, WhenLate], Field(max_length=MOST_CLASSES)] | None = None
    """The same by the name of an objective."""


class Admission(Model):
    """When a request is turned away at its arrival. What is left out is no limit."""

    model_config = rules(
        rule(
            "!has(self.upstreamDelayMs) || !has(self.queueDelayMs) || self.upstreamDelayMs < self.queueDelayMs",
            "upstreamDelayMs must be below queueDelayMs, beyond which requests are refused and none waits upstream:"
            " lower upstreamDelayMs or raise queueDelayMs",
            ".upstreamDelayMs",
        )
    )

    waiting_requests: Count | None = None
    """Most requests that wait in a pod; others are sent to another pod (503)."""

    tenant_requests: Count | None = None
    """Most requests of one tenant in a pod, running and waiting; more are refused (429)."""

    tenant_waiting_tokens: Count | None = None
    """Most tokens to prefill that one tenant has in a pod's queue; more are refused (429)."""

    queue_delay_ms: Milliseconds | None = None
    """Longest predicted time from arrival to the first chunk, in milliseconds; beyond, requests are refused (429)."""

    upstream_delay_ms: Milliseconds | None = None
    """Predicted time in the queue, in milliseconds, from which on a request had better wait before the pod (503)."""

    kv_percent: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Most KV, in percent of the pod's, that running and waiting requests may be expected to fill; beyond, another pod
    is the better place (503)."""


class Victim(Model):
    """Which running request loses its KV when blocks run out: the one with most points, decimals in quotes."""

    block_points: NotNegative = "1"
    """Points for each block that it would free."""

    recompute_points: NotNegative = "0.1"
    """Points off for each token that would be computed again."""

    swap_points: NotNegative = "0.02"
    """Points off for each token that would be swapped to host memory instead."""

    deadline_points: NotNegative = "50"
    """Points off if its deadline would be lost."""

    debt_points: NotNegative = "0.001"
    """Points for each weighted token that its tenant was served beyond others."""

    nearly_points: NotNegative = "20"
    """Points off as its output nears the expected length."""


class Scheduling(Model):
    """How the engine pods schedule. A change restarts nothing and loses no request."""

    ranking: Ranking = Field(default_factory=Ranking)
    """Which waiting request is admitted next."""

    tenancy: Tenancy = Field(default_factory=Tenancy)
    """What a tenant is charged for; weights and shares are decimals in quotes."""

    adaptive_chunk: AdaptiveChunk | None = None
    """Prefills take the most tokens with which the predicted iteration keeps an ITL bound. Without it chunks have the
    size that the knobs say."""

    iteration_ms: Milliseconds | None = None
    """Longest predicted iteration that prefills may make, in milliseconds; decodes run whatever is predicted."""

    prefill_cap: PrefillCap | None = None
    """Few prefills at a time, none of them in crumbs. Without it as many as the token budget holds."""

    protection: Protection | None = None
    """Keeps prefills and decodes from starving each other, and the queue from starving anyone."""

    growth: Growth = Field(default_factory=Growth)
    """How much KV is kept free at an admission, so that running requests can grow."""

    slack: Slack | None = None
    """What becomes of a waiting request that cannot meet its deadline any more. Without it, it is served."""

    admission: Admission | None = None
    """When a request is turned away at its arrival. Without it only what no pod could hold is."""

    victim: Victim | None = None
    """Which running request loses its KV when blocks run out, by cost. Without it, whom the ranking would miss
    least."""
