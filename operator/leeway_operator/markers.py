"""What models tell the API server beyond types: rules across fields, and lists that are maps."""

from typing import Any

from pydantic import ConfigDict, Field

Rule = dict[str, str]


def rule(expression: str, message: str, field_path: str | None = None) -> Rule:
    """Return a CEL rule that must hold, what a user reads where it does not, and the field that is at fault."""
    entry = {"rule": expression, "message": message}
    return entry | {"fieldPath": field_path} if field_path else entry


def rules(*entries: Rule) -> ConfigDict:
    """Return the configuration of a model for which `entries` must hold."""
    return ConfigDict(json_schema_extra=lambda schema: schema.update({"x-kubernetes-validations": [*entries]}))


def field_rules(*entries: Rule) -> Any:
    """Return the marker of a field for whose value `entries` must hold."""
    extra: dict[str, Any] = {"x-kubernetes-validations": [*entries]}
    return Field(json_schema_extra=extra)


def list_map(key: str, *, max_length: int, min_length: int | None = None) -> Any:
    """Return the marker of a list whose items are told apart, and merged, by their `key`."""
    extra: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
    return Field(min_length=min_length, max_length=max_length, json_schema_extra=extra)
