"""The policies that a profile asks for, as pods take them."""

from typing import Any

from leeway_core.model import Model
from leeway_core.policies import Policies
from pydantic.alias_generators import to_snake

from leeway_operator.scheduling import Ranking, Scheduling


def policies_of(scheduling: Scheduling) -> Policies:
    """Return them with seconds for milliseconds, numbers for decimals in quotes, and choices in snake_case."""
    return Policies.model_validate(_settings(scheduling))


def _settings(section: Model) -> dict[str, Any]:
    """Return what is given of a section by the names that leeway_core has."""
    if isinstance(section, Ranking):
        return _ranking(section)
    given = ((name, value) for name, value in section if value is not None)
    return dict(_in_seconds(name, value) if name.endswith("_ms") else (name, _plain(value)) for name, value in given)


def _ranking(ranking: Ranking) -> dict[str, Any]:
    """Return the kind with its own settings beside it."""
    kind = to_snake(ranking.kind)
    settings = getattr(ranking, kind, None)
    return {"kind": kind, **(_settings(settings) if settings else {})}


def _in_seconds(name: str, milliseconds: int) -> tuple[str, float]:
    return name.removesuffix("_ms") + "_s", milliseconds / 1000


def _plain(value: Any) -> Any:
    match value:
        case Model():
            return _settings(value)
        case dict():
            return {name: _plain(entry) for name, entry in value.items()}
        case str():
            return float(value) if value[-1].isdigit() else to_snake(value)
    return value
