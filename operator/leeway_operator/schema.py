"""From a pydantic model to the structural schema that a CRD takes."""

from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

KEPT = {
    "default", "enum", "format", "maxItems", "maxLength", "maxProperties", "maximum", "minItems",
    "minLength", "minimum", "required", "type", "x-kubernetes-list-map-keys", "x-kubernetes-list-type",
    "x-kubernetes-validations",
}  # fmt: skip
DROPPED = {"title", "$defs"}


def structural(model: type[BaseModel]) -> Schema:
    """Return the schema of `model` with references inlined, and only keywords that a CRD allows.

    A keyword without an equivalent raises ValueError, so that no constraint is lost in silence.
    """
    schema = model.model_json_schema()
    return _convert(schema, schema.get("$defs", {}))


def _convert(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    schema = _resolved(schema, definitions)
    result: Schema = {}
    for key, value in schema.items():
        match key, value:
            case "description", text:
                result[key] = " ".join(text.split())
            case "properties", entries:
                required = schema.get("required", [])
                result[key] = {name: _property(entry, definitions, name in required) for name, entry in entries.items()}
            case (("items" | "additionalProperties"), dict(inner)):
                result[key] = _convert(inner, definitions)
            case "anyOf", [{"type": "integer"}, {"type": "string", "maxLength": limit}]:
                result |= {"x-kubernetes-int-or-string": True, "maxLength": limit}
            case _ if key in KEPT:
                result[key] = value
            case _ if key not in DROPPED:
                raise ValueError(f"{key}: {value!r} has no equivalent in a CRD, so the model must say it otherwise")
    return result


def _property(schema: Schema, definitions: dict[str, Schema], required: bool) -> Schema:
    """Convert a property. An object that need not be given defaults to the defaults of its own properties.

    They are written out because the API server checks rules against a default as it stands, not as it would be filled.
    """
    optional = schema.get("default", ...) is None
    result = _convert(schema, definitions)
    if result.get("type") == "object" and not required and not optional:
        inner = result.get("properties", {})
        result["default"] = {name: entry["default"] for name, entry in inner.items() if "default" in entry}
    return result


def _resolved(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    """Replace a reference by what it names, and `X | None = None` by X: absence needs no null in Kubernetes."""
    match schema:
        case {"anyOf": [inner, {"type": "null"}], **rest}:
            rest.pop("default", None)
            return _resolved(inner, definitions) | rest
        case {"anyOf": [*options, {"type": "null"}], **rest}:
            rest.pop("default", None)
            return {"anyOf": options} | rest
        case {"$ref": reference, **rest}:
            return _resolved(definitions[reference.rsplit("/", 1)[-1]], definitions) | rest
    return schema
