"""The dashboard that the chart brings along, as Grafana's sidecar takes it."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from leeway_standalone.binaries import ensure

CHART = Path(__file__).parents[2] / "charts" / "leeway"


@pytest.fixture(scope="session")
def helm() -> Path:
    return ensure(["helm"])["helm"]


def config_map(helm: Path, release: str, *arguments: str) -> dict[str, Any]:
    """Return the ConfigMap that the chart makes for a release."""
    command = [helm, "template", release, CHART, "--show-only", "templates/dashboard.yaml", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    return found


def dashboard(found: dict[str, Any]) -> dict[str, Any]:
    (text,) = found["data"].values()
    content: dict[str, Any] = json.loads(text)
    return content


def test_grafana_finds_it_by_label_and_keeps_releases_apart(helm: Path) -> None:
    one, other = config_map(helm, "leeway"), config_map(helm, "second")
    assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboard(one)["uid"] != dashboard(other)["uid"]
    assert len(dashboard(one)["uid"]) <= 40
    assert one["data"].keys().isdisjoint(other["data"])


def test_labels_and_annotations_can_be_others(helm: Path) -> None:
    set_both = ("--set-string", "dashboard.labels.team=a", "--set-string", "dashboard.annotations.grafana_folder=b")
    metadata = config_map(helm, "leeway", *set_both)["metadata"]
    assert metadata["labels"]["team"] == "a"
    assert metadata["annotations"] == {"grafana_folder": "b"}


def test_every_panel_says_what_it_shows_and_asks_the_chosen_prometheus(helm: Path) -> None:
    content = dashboard(config_map(helm, "leeway"))
    assert [each["name"] for each in content["templating"]["list"]] == ["datasource", "namespace", "profile"]
    assert "@UID@" not in json.dumps(content)
    for panel in content["panels"]:
        assert panel["title"]
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert "$profile" in target["expr"]
            assert "$namespace" in target["expr"]


def test_the_dashboard_and_the_rules_of_objectives_are_made_for_each_other(helm: Path) -> None:
    panels = dashboard(config_map(helm, "leeway"))["panels"]
    groups = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())["groups"]
    records = [rule for group in groups for rule in group["rules"] if "record" in rule]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    named = {name for expression in asked for name in re.findall(r"leeway:[a-z0-9_:]+", expression)}
    assert named <= {rule["record"] for rule in records}
    everything = [*asked, *(rule.get("expr", "") for group in groups for rule in group["rules"])]
    for rule in records:
        quantile = rule.get("labels", {}).get("quantile", "")
        users = [each for each in everything if rule["record"] in each and quantile in each]
        assert users, f"nobody uses {rule['record']} {quantile}"
