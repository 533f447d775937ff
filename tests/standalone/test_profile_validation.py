"""What a user reads when a ServingProfile is wrong, and what the API server serves when it is right."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster

Change = dict[str, Any]

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))

CHAT = {"name": "chat", "ttftMs": 500, "itlMs": 100}
VALID: Change = {
    "apiVersion": "leeway.dev/v1alpha1",
    "kind": "ServingProfile",
    "metadata": {"name": "checked"},
    "spec": {"model": "models/tiny", "objectives": [CHAT]},
}


def profile(change: Change) -> str:
    """Return the valid profile with fields of its spec changed (None removes), paths written with dots."""
    changed = deepcopy(VALID)
    for path, value in change.items():
        *parents, field = path.split(".")
        target = changed["spec"]
        for parent in parents:
            target = target.setdefault(parent, {})
        if value is None:
            del target[field]
        else:
            target[field] = value
    return json.dumps(changed)


def objective(**fields: Any) -> Change:
    return {"objectives": [{"name": "chat", "ttftMs": 500, **fields}]}


INVALID: dict[str, tuple[Change, str]] = {
    "no model": ({"model": None}, "spec.model: Required value"),
    "empty model": ({"model": ""}, "spec.model in body should be at least 1 chars long"),
    "no objectives": ({"objectives": None}, "spec.objectives: Required value"),
    "empty objectives": ({"objectives": []}, "spec.objectives in body should have at least 1 items"),
    "two objectives of one name": ({"objectives": [CHAT, CHAT]}, "spec.objectives[1]: Duplicate value"),
    "name in capitals": (
        objective(name="Chat"),
        'name must be lower-case letters, digits and dashes, such as "chat" or "long-documents"',
    ),
    "objective without bound": (
        {"objectives": [{"name": "chat"}]},
        "an objective needs a bound: set ttftMs, itlMs or tpotMs, or deadlineSeconds",
    ),
    "ITL and TPOT": (
        objective(itlMs=50, tpotMs=50),
        "itlMs and tpotMs exclude each other: keep itlMs to bound the gaps between tokens, or tpotMs their mean",
    ),
    "deadline with TTFT": (
        objective(deadlineSeconds=60),
        "deadlineSeconds stands alone: remove ttftMs, itlMs and tpotMs, or give them an objective of their own",
    ),
    "TTFT of zero": (objective(ttftMs=0), "spec.objectives[0].ttftMs in body should be greater than or equal to 1"),
    "TTFT with a fraction": (objective(ttftMs=0.5), "spec.objectives[0].ttftMs in body must be of type integer"),
    "target as a number": (objective(targetPercent=99), "targetPercent in body must be of type string"),
    "target of zero": (
        objective(targetPercent="0.00"),
        'targetPercent must be a decimal above 0 and at most 100, in quotes, such as "99.5"',
    ),
    "target above 100": (objective(targetPercent="100.1"), "targetPercent must be a decimal above 0 and at most 100"),
    "target in words": (objective(targetPercent="most"), "targetPercent must be a decimal above 0 and at most 100"),
    "quantile above 100": (
        objective(quantilePercent=101),
        "quantilePercent in body should be less than or equal to 100",
    ),
    "unknown mode": (
        {"tuning.mode": "Manual"},
        'spec.tuning.mode: Unsupported value: "Manual": supported values: "Observe", "Recommend", "Auto"',
    ),
    "Auto without exploration": (
        {"tuning": {"mode": "Auto", "explorationBudgetPercent": 0}},
        "mode Auto tries nothing with an explorationBudgetPercent of 0: raise it, or set mode to Observe",
    ),
    "approval in Auto": (
        {"tuning": {"mode": "Auto", "approvedDecision": 3}},
        "approvedDecision counts in mode Recommend only: set mode to Recommend, or remove approvedDecision",
    ),
    "window too short": (
        {"tuning.windowSeconds": 5},
        "spec.tuning.windowSeconds in body should be greater than or equal to 10",
    ),
    "min above max": (
        {"tuning.knobs.tokenBudget": {"min": 512, "max": 256}},
        "min must not be above max: lower min or raise max",
    ),
    "start below min": (
        {"tuning.knobs.tokenBudget": {"min": 64, "start": 32}},
        "start must not be below min: raise start or lower min",
    ),
    "start above max": (
        {"tuning.knobs.runningSequences": {"max": 8, "start": 9}},
        "start must not be above max: lower start or raise max",
    ),
    "budget above its ceiling": (
        {"tuning.knobs.tokenBudget.max": 4096},
        "must not be above engine.ceilings.tokenBudget: lower them or raise the ceiling",
    ),
    "chunk above the ceiling": (
        {"tuning.knobs.decodeHeavyChunk.start": 4096},
        "min, start and max of decodeHeavyChunk must not be above engine.ceilings.tokenBudget",
    ),
    "sequences above their ceiling": (
        {"tuning.knobs.runningSequences.min": 200},
        "min, start and max of runningSequences must not be above engine.ceilings.runningSequences",
    ),
    "no budget": ({"tuning.knobs.tokenBudget.min": 0}, "tokenBudget.min must be at least 1"),
    "P-heavy pods that cannot prefill": (
        {"tuning.knobs.prefillHeavyChunk.min": 0},
        "prefillHeavyChunk.min must be at least 1: P-heavy pods must be able to prefill",
    ),
    "larger chunks on D-heavy pods": (
        {"tuning.knobs": {"prefillHeavyChunk": {"start": 64}, "decodeHeavyChunk": {"start": 128}}},
        "decodeHeavyChunk.start must not be above prefillHeavyChunk.start: P-heavy pods have the larger chunks",
    ),
    "disaggregation without P-heavy pods": (
        {"replicas": 2, "tuning.knobs.decodeHeavyChunk.min": 0},
        "so some pods must stay P-heavy: set prefillHeavyPercent.min to 1 or more",
    ),
    "disaggregation on one pod": (
        {"tuning.knobs": {"decodeHeavyChunk": {"min": 0}, "prefillHeavyPercent": {"min": 1}}},
        "disaggregation (decodeHeavyChunk.min of 0) needs a P-heavy and a D-heavy pod: set replicas to 2 or more",
    ),
    "share above 100": (
        {"tuning.knobs.prefillHeavyPercent.max": 101},
        "prefillHeavyPercent.max in body should be less than or equal to 100",
    ),
    "more sequences than tokens": (
        {"engine.ceilings": {"tokenBudget": 64}},
        "runningSequences must not be above tokenBudget, for each running request takes a token of every iteration",
    ),
    "negative replicas": ({"replicas": -1}, "spec.replicas in body should be greater than or equal to 0"),
    "no gateway": ({"gateway.replicas": 0}, "spec.gateway.replicas in body should be greater than or equal to 1"),
    "memory in words": (
        {"engine.resources.requests": {"memory": "lots"}},
        'every entry of requests must be a quantity such as 2, "500m" or "8Gi"',
    ),
    "request above its limit": (
        {"engine.resources": {"requests": {"memory": "8Gi"}, "limits": {"memory": "4Gi"}}},
        "no entry of requests may be above its limit: lower the request or raise the limit",
    ),
    "unknown ranking": (
        {"scheduling.ranking.kind": "Random"},
        'spec.scheduling.ranking.kind: Unsupported value: "Random": supported values: "FirstCome", "ShortestPrompt"',
    ),
    "settings of another ranking": (
        {"scheduling.ranking": {"kind": "SkipJoin", "shortestPrompt": {}}},
        "shortestPrompt counts with kind ShortestPrompt only: set kind to ShortestPrompt, or remove shortestPrompt",
    ),
    "points as a number": (
        {"scheduling.victim": {"blockPoints": 2}},
        "spec.scheduling.victim.blockPoints in body must be of type string",
    ),
    "points in words": (
        {"scheduling.victim": {"blockPoints": "many"}},
        'must be a decimal of 0 or more, in quotes, such as "0.5"',
    ),
    "ageing of zero": (
        {"scheduling.ranking": {"kind": "ShortestPrompt", "shortestPrompt": {"ageingTokens": "0"}}},
        'must be a decimal above 0, in quotes, such as "0.5"',
    ),
    "points of a class in words": (
        {"scheduling.ranking": {"kind": "EffectivePriority", "effectivePriority": {"classPoints": {"chat": "high"}}}},
        'must be a decimal in quotes, such as "10" or "-2.5"',
    ),
    "points of an unknown class": (
        {"scheduling.ranking": {"kind": "EffectivePriority", "effectivePriority": {"classPoints": {"code": "10"}}}},
        "every name in classPoints must be the name of one of the objectives: correct it, or add the objective",
    ),
    "share of an unknown class": (
        {"scheduling.tenancy": {"classShares": {"code": "2"}}},
        "every name in classShares must be the name of one of the objectives: correct it, or add the objective",
    ),
    "slack of an unknown class": (
        {"scheduling.slack": {"byClass": {"code": "Reject"}}},
        "every name in byClass must be the name of one of the objectives: correct it, or add the objective",
    ),
    "outputs cheaper than inputs": (
        {"scheduling.tenancy": {"inputWeight": "3"}},
        "outputWeight must not be below inputWeight, or the bound between tenants would not hold",
    ),
    "share of nothing": (
        {"scheduling.tenancy": {"tenantShares": {"free": "0.0"}}},
        'must be a decimal above 0, in quotes, such as "0.5"',
    ),
    "adaptive chunks without a bound": (
        {"scheduling.adaptiveChunk": {"floorTokens": 32}},
        "spec.scheduling.adaptiveChunk.itlMs: Required value",
    ),
    "no decodes beside prefills": (
        {"scheduling.protection.prefillPercent": 100},
        "spec.scheduling.protection.prefillPercent in body should be less than or equal to 90",
    ),
    "waiting upstream beyond the refusal": (
        {"scheduling.admission": {"queueDelayMs": 1000, "upstreamDelayMs": 2000}},
        "upstreamDelayMs must be below queueDelayMs, beyond which requests are refused and none waits upstream",
    ),
    "unknown fate of late requests": (
        {"scheduling.slack.unreachable": "Drop"},
        'spec.scheduling.slack.unreachable: Unsupported value: "Drop": supported values: "Serve", "Downgrade"',
    ),
    "Prometheus without scheme": (
        {"telemetry.prometheus.url": "prometheus:9090"},
        'url must be an http or https address, such as "http://prometheus.monitoring.svc:9090"',
    ),
    "misspelt field": ({"tuning.windowsSeconds": 60}, 'unknown field "spec.tuning.windowsSeconds"'),
}

VALID_CHANGES: dict[str, Change] = {
    "the least": {},
    "a deadline": {"objectives": [{"name": "batch", "deadlineSeconds": 600, "targetPercent": "95"}]},
    "several classes": {"objectives": [CHAT, {"name": "code", "ttftMs": 900, "tpotMs": 40, "targetPercent": "99.95"}]},
    "a fixed knob": {"tuning.knobs.tokenBudget": {"min": 256, "max": 256}},
    "disaggregation": {
        "replicas": 2,
        "tuning.knobs": {"decodeHeavyChunk": {"min": 0, "max": 0}, "prefillHeavyPercent": {"min": 50}},
    },
    "an approval": {"tuning": {"mode": "Recommend", "approvedDecision": 3}},
    "resources": {"engine.resources": {"requests": {"cpu": 2, "memory": "4Gi"}, "limits": {"memory": "4096Mi"}}},
    "scaled to nothing": {"replicas": 0},
    "points by class": {
        "objectives": [CHAT, {"name": "batch", "deadlineSeconds": 600}],
        "scheduling.ranking": {
            "kind": "EffectivePriority",
            "effectivePriority": {"classPoints": {"chat": "10", "batch": "-2.5"}},
        },
        "scheduling.slack": {"byClass": {"batch": "Reject"}},
    },
    "fair shares": {
        "scheduling.ranking": {"kind": "TokenCounters"},
        "scheduling.tenancy": {"tenantShares": {"paying": "3"}, "classShares": {"chat": "1.5"}},
        "scheduling.growth": {"reserve": "All"},
    },
    "policies by their names alone": {
        "scheduling": {"prefillCap": {}, "protection": {}, "slack": {}, "admission": {}, "victim": {}},
    },
}


@pytest.fixture
def applied(cluster: Cluster, namespace: str) -> Iterator[str]:
    """The namespace that holds the valid profile."""
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=profile({}))
    yield namespace
    cluster.kubectl("delete", "-n", namespace, "sp", "checked")


@pytest.mark.parametrize(("change", "message"), INVALID.values(), ids=INVALID)
def test_a_wrong_profile_is_refused_with_what_to_do(cluster: Cluster, change: Change, message: str) -> None:
    done = cluster.kubectl("create", "--dry-run=server", "-f", "-", input=profile(change), check=False)
    assert done.returncode != 0
    assert message in done.stderr


@pytest.mark.parametrize("change", VALID_CHANGES.values(), ids=VALID_CHANGES)
def test_a_right_profile_is_accepted(cluster: Cluster, change: Change) -> None:
    cluster.kubectl("create", "--dry-run=server", "-f", "-", input=profile(change))


def test_the_documented_profile_is_accepted(cluster: Cluster, namespace: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "servingprofile.md").read_text()
    example = page.split("```yaml\n")[1].split("```")[0]
    cluster.kubectl("create", "--dry-run=server", "-n", namespace, "-f", "-", input=example)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_accepted(cluster: Cluster, namespace: str, example: Path) -> None:
    cluster.kubectl("create", "--dry-run=server", "-n", namespace, "-f", str(example))


def test_defaults_are_served(cluster: Cluster, applied: str) -> None:
    spec = cluster.get("sp", "checked", "-n", applied)["spec"]
    assert spec["replicas"] == spec["gateway"]["replicas"] == 1
    assert spec["engine"]["ceilings"] == {"tokenBudget": 2048, "runningSequences": 128}
    assert spec["objectives"] == [{**CHAT, "quantilePercent": 95, "targetPercent": "99"}]
    assert spec["tuning"]["mode"] == "Observe"
    assert spec["tuning"]["knobs"]["prefillHeavyPercent"] == {"min": 0, "max": 100, "step": 1}
    assert spec["scheduling"] == {
        "ranking": {"kind": "FirstCome"},
        "tenancy": {"inputWeight": "1", "outputWeight": "2", "residencyWeight": "0"},
        "growth": {"reserve": "None", "quantilePercent": 50},
    }


def test_a_part_of_a_default_can_be_named(cluster: Cluster) -> None:
    change = {"tuning.knobs.tokenBudget.max": 512}
    done = cluster.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=profile(change))
    assert json.loads(done.stdout)["spec"]["tuning"]["knobs"]["tokenBudget"] == {"min": 16, "max": 512, "step": 16}


def test_it_scales_like_a_deployment(cluster: Cluster, applied: str) -> None:
    cluster.kubectl("scale", "-n", applied, "sp/checked", "--replicas=3")
    assert cluster.get("sp", "checked", "-n", applied)["spec"]["replicas"] == 3
    path = f"/apis/leeway.dev/v1alpha1/namespaces/{applied}/servingprofiles/checked/scale"
    assert json.loads(cluster.kubectl("get", "--raw", path).stdout)["spec"]["replicas"] == 3


def test_status_is_written_apart_from_spec(cluster: Cluster, applied: str) -> None:
    patch = json.dumps({"spec": {"replicas": 9}, "status": {"summary": "by hand"}})
    cluster.kubectl("patch", "-n", applied, "sp/checked", "--subresource=status", "--type=merge", "-p", patch)
    assert cluster.get("sp", "checked", "-n", applied)["spec"]["replicas"] == 1


def test_columns_show_how_it_stands(cluster: Cluster, applied: str) -> None:
    header, row = cluster.kubectl("get", "-n", applied, "sp").stdout.splitlines()
    assert header.split() == ["NAME", "MODE", "REPLICAS", "READY", "SLOMET", "TTFT(MS)", "ITL(MS)", "SUMMARY", "AGE"]
    assert row.split()[:3] == ["checked", "Observe", "1"]
    wide = cluster.kubectl("get", "-n", applied, "servingprofiles", "-o", "wide").stdout
    assert {"MODEL", "REASON"} <= set(wide.split())
    assert "models/tiny" in wide


def test_it_is_listed_by_its_category(cluster: Cluster, applied: str) -> None:
    assert "checked" in cluster.kubectl("get", "-n", applied, "leeway").stdout


def test_explain_reads_like_documentation(cluster: Cluster) -> None:
    def explained(field: str) -> str:
        return " ".join(cluster.kubectl("explain", field).stdout.split())

    objectives = explained("sp.spec.objectives")
    assert "from a request's arrival at the gateway to its first output token leaving it (TTFT)" in objectives
    assert "name <string> -required-" in objectives
    mode = explained("sp.spec.tuning.mode")
    assert "ENUM: Observe Recommend Auto" in mode
    assert "Observe measures and turns nothing" in mode
    ranking = explained("sp.spec.scheduling.ranking.kind")
    assert "TokenCounters: the tenant that was served least" in ranking
    assert "decimals in quotes" in explained("sp.spec.scheduling.tenancy")
