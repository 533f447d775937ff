"""A ServingProfile as it was read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pydantic import ValidationError

from leeway_operator.names import Names
from leeway_operator.spec import Spec
from leeway_operator.status import Status


@dataclass(frozen=True, slots=True)
class Profile:
    """One generation of a profile, and the status that it had."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: Spec
    status: Status
    leaving: bool = False
    """Whether it is being deleted."""

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        """Take what the API server shows."""
        metadata = body["metadata"]
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            generation=metadata["generation"],
            spec=Spec.model_validate(dict(body["spec"])),
            status=_status(body.get("status") or {}),
            leaving="deletionTimestamp" in metadata,
        )

    @property
    def names(self) -> Names:
        """The names of its children."""
        return Names(self.name)


def _status(found: Mapping[str, Any]) -> Status:
    """Read the status, which begins anew where another version's, or another writer's, makes no sense."""
    try:
        return Status.model_validate(dict(found))
    except ValidationError:
        return Status()
