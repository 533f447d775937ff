"""Every query of the dashboard, run as Grafana does against the Prometheus of a profile that serves."""

import json
import math
import urllib.parse
import urllib.request
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from clusters import Cluster, eventually
from profiles import Served, models_claim, profile

NAMESPACE = "loop-dashboard"
SEND = """
import json, urllib.request
body = json.dumps({"model": "chat", "prompt": "Hello", "max_tokens": 8, "ignore_eos": True, "stream": True}).encode()
for _ in range(12):
    url, headers = "http://chat-gateway/v1/completions", {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url, body, headers)).read()
"""
IMPOSSIBLE = {"name": "hasty", "ttftMs": 1, "targetPercent": "90"}
"""So that there are misses to show."""


@pytest.fixture(scope="module")
def queries(cluster: Cluster) -> list[str]:
    """All expressions, variables filled in."""
    found = cluster.get("configmap", "leeway-dashboard", "-n", "leeway-system")
    (text,) = found["data"].values()
    variables = {"$__rate_interval": "2m", "$__range": "2m", "$namespace": NAMESPACE, "$profile": "chat"}
    expressions = [target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]]
    for name, value in variables.items():
        expressions = [expression.replace(name, value) for expression in expressions]
    return expressions


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Iterator[Served]:
    """A profile that tunes itself and has been asked something."""
    cluster.kubectl("create", "namespace", NAMESPACE)
    models_claim(cluster, NAMESPACE)
    objectives = [IMPOSSIBLE, {"name": "calm", "deadlineSeconds": 3600}]
    cluster.apply(profile("chat", mode="Auto", objectives=objectives), namespace=NAMESPACE)
    served = Served(cluster, NAMESPACE)
    served.wait("Ready", "True", timeout_s=200)
    served.wait("TelemetryHealthy", "True")
    cluster.exec(NAMESPACE, "chat-engine-0", "python", "-c", SEND)
    yield served
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def ask(cluster: Cluster, path: str, **parameters: str) -> Any:
    """Return the data of an answer of Prometheus."""
    url = f"http://127.0.0.1:{cluster.up.launch.ports.prometheus}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.load(response)["data"]


def finds_data(cluster: Cluster, query: str) -> bool:
    found = ask(cluster, "query", query=query)["result"]
    return any(math.isfinite(float(series["value"][1])) for series in found)


def test_every_query_finds_data(served: Served, queries: list[str]) -> None:
    assert len(queries) > 10
    for query in queries:
        eventually(partial(finds_data, served.cluster, query), 60, what=query)


def test_the_variables_offer_the_profile(served: Served) -> None:
    selector = f'leeway_operator_knobs{{profile_namespace="{NAMESPACE}"}}'
    assert ask(served.cluster, "label/profile/values", **{"match[]": selector}) == ["chat"]
