"""The CRD says all that the models say, in the words that the API server takes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from leeway_core.model import Model
from leeway_operator import crd
from leeway_operator.schema import structural
from pydantic import Field

ROOT = Path(__file__).parents[2]


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, entry in schema.get("properties", {}).items():
        yield from nodes(entry, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if inner in schema:
            yield from nodes(schema[inner], f"{path}[]")


@pytest.fixture(scope="module")
def version() -> dict[str, Any]:
    return yaml.safe_load(crd.render())["spec"]["versions"][0]


@pytest.fixture(scope="module")
def fields(version: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return dict(nodes(version["schema"]["openAPIV3Schema"]))


def test_checked_in_files_match_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert crd.main(["--check"]) == 0


def test_check_names_what_is_stale_and_writing_puts_it_right(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert crd.main(["--check"]) == 1
    assert "crds/leeway.dev_servingprofiles.yaml does not match the models: run" in capsys.readouterr().err
    assert crd.main([]) == 0
    assert crd.main(["--check"]) == 0


def test_rendering_is_deterministic() -> None:
    assert crd.render() == crd.render()


def test_every_field_is_explained(fields: dict[str, dict[str, Any]]) -> None:
    named = {
        path: entry for path, entry in fields.items() if path.startswith((".spec", ".status")) and "[]" not in path[-2:]
    }
    assert [path for path, entry in named.items() if len(entry.get("description", "")) < 15] == []


def test_no_field_is_a_float(fields: dict[str, dict[str, Any]]) -> None:
    assert [path for path, entry in fields.items() if entry.get("type") == "number"] == []


def test_lists_texts_and_maps_are_bounded_so_that_rules_stay_cheap(fields: dict[str, dict[str, Any]]) -> None:
    spec = {path: entry for path, entry in fields.items() if path.startswith(".spec")}
    limits = {"array": "maxItems", "string": "maxLength"}
    unbounded = [
        path
        for path, entry in spec.items()
        if (limit := limits.get(entry.get("type", ""))) and limit not in entry and "enum" not in entry
    ]
    assert unbounded == []
    assert [
        path for path, entry in spec.items() if "additionalProperties" in entry and "maxProperties" not in entry
    ] == []


def test_rules_tell_what_to_do_and_inherited_ones_are_kept(fields: dict[str, dict[str, Any]]) -> None:
    rules = {
        path: entry["x-kubernetes-validations"] for path, entry in fields.items() if "x-kubernetes-validations" in entry
    }
    assert all(len(rule["message"]) > 20 for entries in rules.values() for rule in entries)
    for knob in ("tokenBudget", "prefillHeavyChunk", "decodeHeavyChunk", "prefillHeavyPercent", "runningSequences"):
        assert len(rules[f".spec.tuning.knobs.{knob}"]) == 3


def test_defaults_are_filled_where_a_user_names_nothing(fields: dict[str, dict[str, Any]]) -> None:
    assert fields[".spec.tuning"]["default"]["mode"] == "Observe"
    assert fields[".spec.tuning"]["default"]["knobs"]["tokenBudget"] == {"min": 16, "step": 16}
    assert fields[".spec.engine"]["default"] == {"ceilings": {"tokenBudget": 2048, "runningSequences": 128}}
    assert "default" not in fields[".spec.engine.resources"]


def test_conditions_merge_by_type_and_decisions_are_capped(fields: dict[str, dict[str, Any]]) -> None:
    assert fields[".status.conditions"]["x-kubernetes-list-map-keys"] == ["type"]
    assert fields[".status.decisions"]["maxItems"] == 5


def test_columns_show_scalars(version: dict[str, Any], fields: dict[str, dict[str, Any]]) -> None:
    plain = [column["jsonPath"] for column in version["additionalPrinterColumns"] if "[?" not in column["jsonPath"]]
    known = [re.sub(r"\[\d+\]", "[]", path) for path in plain if path != ".metadata.creationTimestamp"]
    assert {fields[path]["type"] for path in known} <= {"string", "integer"}


def test_quantities_are_numbers_or_text() -> None:
    class Pod(Model):
        cpu: int | Annotated[str, Field(max_length=8)]

    assert structural(Pod)["properties"]["cpu"] == {"x-kubernetes-int-or-string": True, "maxLength": 8}


@pytest.mark.parametrize("unsupported", [tuple[int, str], set[str], Annotated[int, Field(gt=0)], int | list[str]])
def test_what_a_crd_cannot_say_is_refused_not_dropped(unsupported: Any) -> None:
    class Odd(Model):
        field: unsupported

    with pytest.raises(ValueError, match="no equivalent in a CRD"):
        structural(Odd)
