"""What the operator remembers of a profile from visit to visit; losing it costs a few calls and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from leeway_core.record import Record

from leeway_operator.status import Status

RESYNC_S = 60.0
"""How often children are applied again with no sign that they have changed."""
RETRY_S = 15.0
"""How soon again when the API server has refused one."""


@dataclass(slots=True)
class Memory:
    """Of one profile."""

    children_due: bool = True
    """Whether a child may not be as it should."""
    children_applied_at_s: float = 0.0
    children_generation: int = 0
    token: str = ""
    record: Record | None = None
    """As it was last written."""
    boot_data: Mapping[str, str] = field(default_factory=dict)
    """Of the ConfigMap that pods boot from, as it was last seen."""
    sequence: int = 0
    """Of the last question to the tuner."""
    status: Status | None = None
    """As it was last written."""
    failures: int = 0
    """Visits in a row that failed."""
    refusals: list[str] = field(default_factory=list)
    """What the API server said to children that it did not take."""

    def due(self, generation: int, now_s: float) -> bool:
        """Tell whether children are to be applied."""
        return (
            self.children_due
            or generation != self.children_generation
            or now_s - self.children_applied_at_s > (RETRY_S if self.refusals else RESYNC_S)
        )
