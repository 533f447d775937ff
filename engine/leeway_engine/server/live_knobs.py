"""The knobs of a pod as the process that is told them sees them."""

from leeway_core.pod_knobs import PodKnobs
from pydantic import ValidationError

from leeway_engine.server.engine_process import EngineProcess
from leeway_engine.server.knobs_answer import KnobsAnswer


class LiveKnobs:
    """Takes pushes at once, whatever the loop is busy with: it reads the knobs before each plan."""

    def __init__(self, engine: EngineProcess, accepted: PodKnobs) -> None:
        """Begin with the knobs that the loop booted with."""
        self._engine = engine
        self._accepted = accepted

    def read(self, refusal: str | None = None) -> KnobsAnswer:
        """Return what is accepted and what is enforced."""
        enforced = KnobsAnswer.model_validate_json(self._engine.enforced_knobs.read())
        return enforced.model_copy(update={"accepted": self._accepted, "refusal": refusal})

    def push(self, body: bytes) -> tuple[int, KnobsAnswer]:
        """Record knobs for the next plan, or change nothing and say why; returns an HTTP status with the answer.

        Pushing the accepted set again is no error, so a client that missed the answer may repeat itself.
        """
        try:
            knobs = PodKnobs.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            return 400, self.read(f"{place}: {first['msg']}" if place else first["msg"])
        if knobs == self._accepted:
            return 200, self.read()
        if knobs.generation <= self._accepted.generation:
            return 409, self.read(
                f"generation {knobs.generation} is not above the accepted one, {self._accepted.generation}"
            )
        if refusal := self.read().ceilings.refusal(knobs):
            return 422, self.read(refusal)
        self._accepted = knobs
        self._engine.accepted_knobs.write(knobs.model_dump_json(by_alias=True).encode())
        self._engine.wake()
        return 200, self.read()
