"""Pods as Kubernetes shows them, and what is wrong with them in words for people."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from leeway_operator.names import COMPONENT_LABEL

_LAST_WORDS = 300


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a pod does not serve."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of a profile."""

    name: str
    component: str
    address: str
    """Empty until the pod has one."""
    ready: bool
    started_at_s: float
    """When its container last started, 0 before."""
    revision: str
    """Of the template that it was made from."""
    leaving: bool
    trouble: Trouble | None

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        """Take what the API server shows."""
        metadata, status = body["metadata"], body.get("status") or {}
        labels = metadata.get("labels") or {}
        container = (status.get("containerStatuses") or [{}])[0]
        conditions = {item["type"]: item for item in status.get("conditions") or ()}
        running = (container.get("state") or {}).get("running") or {}
        return cls(
            name=metadata["name"],
            component=labels.get(COMPONENT_LABEL, ""),
            address=status.get("podIP") or "",
            ready=conditions.get("Ready", {}).get("status") == "True",
            started_at_s=datetime.fromisoformat(running["startedAt"]).timestamp() if running else 0.0,
            revision=labels.get("controller-revision-hash", ""),
            leaving="deletionTimestamp" in metadata,
            trouble=_trouble(conditions, container, status),
        )


def _trouble(
    conditions: Mapping[str, Mapping[str, Any]], container: Mapping[str, Any], status: Mapping[str, Any]
) -> Trouble | None:
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return Trouble("Unschedulable", scheduled.get("message", "no node takes the pod"))
    state = container.get("state") or {}
    waiting = state.get("waiting") or {}
    reason = waiting.get("reason", "")
    if "Image" in reason:
        return Trouble("ImageUnavailable", waiting.get("message") or reason)
    if reason.startswith(("Create", "PreCreate", "RunContainer")):
        return Trouble("ContainerRefused", waiting.get("message") or reason)
    ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated")
    if ended and "running" not in state:
        return _end(ended)
    if status.get("phase") == "Failed":
        return Trouble(status.get("reason") or "PodFailed", status.get("message") or "the pod failed")
    return None


def _end(ended: Mapping[str, Any]) -> Trouble:
    if ended.get("reason") == "OOMKilled":
        return Trouble("OutOfMemory", "it needs more memory than its limit: raise the memory in its resources.limits")
    words = " ".join((ended.get("message") or "").split())[-_LAST_WORDS:]
    return Trouble("Crashing", words or f"it ended with exit code {ended.get('exitCode')}")
