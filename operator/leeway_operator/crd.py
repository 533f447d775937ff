"""The CustomResourceDefinition of ServingProfile, rendered from the models.

`python -m leeway_operator.crd` writes it to `crds/` and into the chart; with `--check` it only compares.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from leeway_operator.markers import rule
from leeway_operator.schema import structural
from leeway_operator.spec import Spec
from leeway_operator.status import Status

GROUP = "leeway.dev"
VERSION = "v1alpha1"
PLURAL = "servingprofiles"
HEADER = "# Generated from the models in leeway_operator by `python -m leeway_operator.crd`. Do not edit.\n"


def _column(name: str, path: str, description: str, *, kind: str = "string", wide: bool = False) -> dict[str, Any]:
    column = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return column | {"priority": 1} if wide else column


def _condition(kind: str, field: str = "status") -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


COLUMNS = [
    _column("Mode", ".spec.tuning.mode", "Whether Leeway observes, recommends or tunes."),
    _column("Replicas", ".spec.replicas", "How many engine pods are asked for.", kind="integer"),
    _column("Ready", _condition("Ready"), "Whether enough pods serve."),
    _column("SLOMet", _condition("SLOMet"), "Whether every objective meets its target."),
    _column("TTFT(ms)", ".status.objectives[0].ttftP95Ms", "95th percentile, of the first objective.", kind="integer"),
    _column("ITL(ms)", ".status.objectives[0].itlP95Ms", "95th percentile, of the first objective.", kind="integer"),
    _column("Summary", ".status.summary", "State, attainment and mode in a few words."),
    _column("Model", ".spec.model", "The model that is served.", wide=True),
    _column("Reason", _condition("Ready", "reason"), "Why the profile is ready, or not.", wide=True),
    _column("Age", ".metadata.creationTimestamp", "Time since the profile was made.", kind="date"),
]


NAME_RULE = rule(
    "self.metadata.name.matches('^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$')",
    "a profile's name must be at most 40 lower-case letters, digits and dashes, beginning with a letter:"
    " Services and pods are named after it",
)


def crd() -> dict[str, Any]:
    """Return the CustomResourceDefinition as Kubernetes takes it."""
    schema = {
        "type": "object",
        "description": "A model that Leeway serves, the latency objectives that it keeps, and how it may tune.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural(Spec),
            "status": structural(Status),
        },
        "x-kubernetes-validations": [NAME_RULE],
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": COLUMNS,
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
    }
    names = {"kind": "ServingProfile", "plural": PLURAL, "singular": "servingprofile", "shortNames": ["sp"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": names | {"listKind": "ServingProfileList", "categories": ["leeway"]},
            "versions": [version],
        },
    }


def render() -> str:
    """Return the CRD as YAML."""
    plain = json.loads(json.dumps(crd()))  # no object appears twice, so YAML needs no anchors
    return HEADER + yaml.safe_dump(plain, sort_keys=False, width=110)


def render_template() -> str:
    """Return the chart's template of the CRD: the same, installed and kept as the values say."""
    name = f"  name: {PLURAL}.{GROUP}\n"
    keep = "  {{- if .Values.crds.keep }}\n  annotations:\n    helm.sh/resource-policy: keep\n  {{- end }}\n"
    body = render().removeprefix(HEADER).replace(name, name + keep, 1)
    return f"{{{{- if .Values.crds.install }}}}\n{HEADER}{body}{{{{- end }}}}\n"


def main(arguments: list[str]) -> int:
    """Write both files below the working directory, or with `--check` say which differ; return the exit status."""
    files = {
        Path(f"crds/{GROUP}_{PLURAL}.yaml"): render(),
        Path("charts/leeway/templates/crd.yaml"): render_template(),
    }
    if "--check" not in arguments:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return 0
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        sys.stderr.write(f"{path} does not match the models: run `python -m leeway_operator.crd`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
