"""What a visit saw and did, for its report."""

from dataclasses import dataclass

from leeway_core.decision import Action, Decision
from leeway_core.record import Record
from leeway_core.snapshot import Snapshot

from leeway_operator.observation import Observation


@dataclass(frozen=True, slots=True)
class Seen:
    """What a visit saw and did."""

    observed: Observation
    """As it was in the end."""
    record: Record
    """As it was left."""
    snapshot: Snapshot
    decision: Decision | None
    tuner: str = ""
    """The tuner's Service, as the status names it."""
    failure: str = ""
    """Why the tuner gave no decision."""
    push_refusal: str = ""
    """Which pods did not take the knobs, and why."""
    child_refusals: tuple[str, ...] = ()
    """What the API server did not take."""
    no_pods_because: str = ""
    """Why a pod could not be made."""

    @property
    def action(self) -> Action | None:
        """What was done: what the tuner decided, or a roll-back where the operator put the incumbent in force instead.

        None where nobody decided anything.
        """
        decided = self.decision.record if self.decision else self.snapshot.record
        if self.decision and self.decision.action != "Hold" and self.record.in_force.same(decided.in_force):
            return self.decision.action
        if self.record.incumbent.generation != decided.incumbent.generation:
            return "RollBack"
        return self.decision.action if self.decision else None
