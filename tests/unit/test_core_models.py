"""The shared nouns travel in camelCase, refuse what is out of range, and do not change."""

import pytest
from leeway_core.knobs import Knobs
from leeway_core.objective import Objective
from leeway_core.pod_knobs import PodKnobs
from leeway_core.policies import FirstCome, Policies, Tenancy, TokenCounters
from pydantic import ValidationError

KNOBS = {
    "generation": 3,
    "tokenBudget": 256,
    "prefillHeavyChunk": 256,
    "decodeHeavyChunk": 0,
    "prefillHeavyPercent": 50,
    "runningSequences": 8,
}


def test_knobs_come_back_as_they_went() -> None:
    assert Knobs.model_validate(KNOBS).model_dump(by_alias=True) == KNOBS


@pytest.mark.parametrize(
    "wrong", [{"generation": 0}, {"tokenBudget": 0}, {"prefillHeavyPercent": 101}, {"decodeHeavyChunk": 1.5}]
)
def test_knobs_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Knobs.model_validate(KNOBS | wrong)


def test_knobs_in_force_cannot_be_edited_in_place() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Knobs.model_validate(KNOBS).token_budget = 512


def test_an_objective_names_only_the_bounds_it_has() -> None:
    objective = Objective.model_validate({"name": "chat", "ttftMs": 500})
    assert (objective.ttft_ms, objective.itl_ms, objective.deadline_seconds) == (500, None, None)
    assert (objective.quantile_percent, objective.target_percent) == (95, "99")


POD_KNOBS = '{"generation": 1, "tokenBudget": 8, "chunkSize": 8, "runningSequences": 4%s}'


def test_a_pods_policies_travel_with_its_knobs_and_have_defaults() -> None:
    assert PodKnobs.model_validate_json(POD_KNOBS % "").policies == Policies(ranking=FirstCome())
    pushed = ', "policies": {"ranking": {"kind": "token_counters"}, "tenancy": {"tenantShares": {"a": 2}}}'
    knobs = PodKnobs.model_validate_json(POD_KNOBS % pushed)
    assert knobs.policies == Policies(ranking=TokenCounters(), tenancy=Tenancy(tenant_shares={"a": 2.0}))
    assert PodKnobs.model_validate_json(knobs.model_dump_json(by_alias=True)) == knobs


@pytest.mark.parametrize(
    "policies",
    [
        '{"ranking": {"kind": "best"}}',
        '{"ranking": {"kind": "first_come", "agingTokens": 1}}',
        '{"protection": {"prefillPercent": 0}}',
        '{"iterationS": 0}',
        '{"tenancy": {"inputWeight": 3, "outputWeight": 2}}',
        '{"fairness": true}',
    ],
)
def test_policies_that_make_no_sense_are_refused(policies: str) -> None:
    with pytest.raises(ValidationError):
        PodKnobs.model_validate_json(POD_KNOBS % f', "policies": {policies}')
