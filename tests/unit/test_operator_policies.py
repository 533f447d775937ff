"""A profile reaches every policy that a pod has, and asks for none that it does not name."""

from typing import Any

import pytest
from leeway_core.model import Model
from leeway_core.policies import (
    AdmissionLimits,
    EffectivePriority,
    FirstCome,
    Policies,
    PrefillCap,
    Protection,
    ShortestPrompt,
    SkipJoin,
    Slack,
    TokenCounters,
    Victim,
)
from leeway_operator.policies import policies_of
from leeway_operator.scheduling import Scheduling

EVERYTHING: dict[str, Any] = {
    "tenancy": {
        "inputWeight": "2.5",
        "outputWeight": "3",
        "residencyWeight": "0.001",
        "tenantShares": {"paying": "3"},
        "classShares": {"chat": "0.5"},
    },
    "adaptiveChunk": {"itlMs": 50, "floorTokens": 32},
    "iterationMs": 75,
    "prefillCap": {"prefills": 2, "chunkTokens": 128},
    "protection": {"prefillPercent": 30, "decodeCap": 9, "boostIterations": 7, "overdueIterations": 70},
    "growth": {"reserve": "Expected", "quantilePercent": 90},
    "slack": {"pressingMs": 750, "doubtPercent": 10, "unreachable": "Reject", "byClass": {"chat": "Serve"}},
    "admission": {
        "waitingRequests": 1,
        "tenantRequests": 2,
        "tenantWaitingTokens": 3,
        "queueDelayMs": 10_000,
        "upstreamDelayMs": 2_500,
        "kvPercent": 150,
    },
    "victim": {
        "blockPoints": "2",
        "recomputePoints": "0.2",
        "swapPoints": "0.03",
        "deadlinePoints": "60",
        "debtPoints": "0.01",
        "nearlyPoints": "0",
    },
}

RANKINGS: dict[str, tuple[dict[str, Any], Model]] = {
    "FirstCome": ({}, FirstCome()),
    "ShortestPrompt": ({"shortestPrompt": {"ageingTokens": "0.5"}}, ShortestPrompt(ageing_tokens=0.5)),
    "EffectivePriority": (
        {
            "effectivePriority": {
                "classPoints": {"chat": "10", "batch": "-2.5"},
                "urgencyPoints": "7",
                "urgencyHorizonMs": 250,
                "agePoints": "0.2",
                "costPoints": "0",
            }
        },
        EffectivePriority(
            class_points={"chat": 10.0, "batch": -2.5},
            urgency_points=7.0,
            urgency_horizon_s=0.25,
            age_points=0.2,
            cost_points=0.0,
        ),
    ),
    "SkipJoin": (
        {"skipJoin": {"levels": 3, "firstQuantumTokens": 64, "promotionIterations": 50}},
        SkipJoin(levels=3, first_quantum_tokens=64, promotion_iterations=50),
    ),
    "TokenCounters": ({}, TokenCounters()),
}


def policies(**sections: Any) -> Policies:
    return policies_of(Scheduling.model_validate(sections))


def left_alone(policy: Model, path: str = "") -> list[str]:
    """Fields that have their default, in the sections too."""
    found = []
    for name, value in policy:
        if isinstance(value, Model):
            found += left_alone(value, f"{path}{name}.")
        elif value == type(policy).model_fields[name].get_default(call_default_factory=True) and name != "kind":
            found.append(path + name)
    return found


def test_a_profile_that_names_none_has_the_pods_defaults() -> None:
    assert policies() == Policies()


def test_a_policy_that_is_only_named_has_the_pods_defaults() -> None:
    named = policies(prefillCap={}, protection={}, slack={}, admission={}, victim={}, tenancy={}, growth={}, ranking={})
    assert named == Policies(
        prefill_cap=PrefillCap(),
        protection=Protection(),
        slack=Slack(),
        admission=AdmissionLimits(),
        victim=Victim(),
    )


def test_every_field_of_every_policy_can_be_reached() -> None:
    reached = policies(**EVERYTHING)
    assert left_alone(reached) == []
    assert (reached.iteration_s, reached.growth.reserve) == (0.075, "expected")
    assert reached.adaptive_chunk is not None
    assert reached.adaptive_chunk.itl_s == 0.05
    assert reached.slack is not None
    assert reached.slack.by_class == {"chat": "serve"}
    assert reached.admission is not None
    assert (reached.admission.queue_delay_s, reached.admission.upstream_delay_s) == (10.0, 2.5)
    assert reached.tenancy.tenant_shares == {"paying": 3.0}


@pytest.mark.parametrize("kind", RANKINGS)
def test_every_ranking_can_be_reached_with_all_its_settings_or_its_defaults(kind: str) -> None:
    settings, expected = RANKINGS[kind]
    assert policies(ranking={"kind": kind, **settings}).ranking == expected
    assert left_alone(expected) == []
    assert policies(ranking={"kind": kind}).ranking == type(expected)()


def test_all_rankings_are_told_of_here() -> None:
    union: Any = Policies.model_fields["ranking"].annotation
    assert {type(expected) for _, expected in RANKINGS.values()} == set(union.__args__)
