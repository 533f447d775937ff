"""What is on record of a profile's knobs before any pod is told: the way back."""

from typing import Annotated

from pydantic import Field

from leeway_core.knobs import Knobs
from leeway_core.model import Model
from leeway_core.policies import Policies

SETTLING_S = 5.0
"""Requests that end within this time of a change of knobs were mostly served under the old ones, so they are left out
of what knobs are compared by. They count for a breach, which cannot wait: `Telemetry.unsettled`."""


class Record(Model):
    """The incumbent, the candidate of a running trial, and since when the knobs in force are so."""

    incumbent: Knobs
    """Best knobs known, which pods boot with and every trial goes back to."""

    candidate: Knobs | None = None
    """Knobs under trial: in force while `trying`, and otherwise to be so again."""

    trying: bool = False
    """Whether the candidate is in force, in place of the incumbent."""

    starting: Knobs | None = None
    """Knobs that are in force before anything is tried; None in records older than this."""

    policies: Policies = Policies()
    """How pods schedule, as the profile says: the same under incumbent and candidate."""

    started_at_s: Annotated[float, Field(allow_inf_nan=False)]
    """When the window under measurement began, in Unix time: the knobs in force are the same since then."""

    @property
    def in_force(self) -> Knobs:
        """The knobs that every pod should have."""
        return self.candidate if self.trying and self.candidate is not None else self.incumbent

    @property
    def settled_at_s(self) -> float:
        """From when on requests count for the knobs in force."""
        return self.started_at_s + SETTLING_S

    @property
    def newest_generation(self) -> int:
        """Highest generation in use here; pods take only a higher one."""
        return max(self.incumbent.generation, self.candidate.generation if self.candidate else 0)

    def back(self, now_s: float, above: int = 0) -> "Record":
        """Return the record with the incumbent in force and the trial void.

        `above` is the highest generation that any pod has: somebody else's push is overruled by a higher one.
        """
        if self.trying or above > self.incumbent.generation:
            return self.renewed(self.incumbent, now_s, above)
        return self.only(self.incumbent, now_s)

    def renewed(self, incumbent: Knobs, now_s: float, above: int = 0) -> "Record":
        """Return the record with these knobs in force, under a generation that every pod takes, and no trial.

        `above` is as for `back`.
        """
        generation = max(self.newest_generation, above) + 1
        return self.only(incumbent.model_copy(update={"generation": generation}), now_s)

    def only(self, incumbent: Knobs, now_s: float) -> "Record":
        """Return the record with these knobs in force and no trial."""
        return Record(incumbent=incumbent, starting=self.starting, policies=self.policies, started_at_s=now_s)
