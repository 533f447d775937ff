"""What became of one planned request, as its client saw it."""

from dataclasses import dataclass

from leeway_core.verdict import Timeline

from leeway_load.schedule import PlannedRequest


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that was sent and is over. Times are seconds since the replay's start."""

    request: PlannedRequest
    timeline: Timeline
    error: str = ""
    lost: bool = False
    """The server took the request and did not finish it, as it broke the connection, ended the stream without a finish
    or sent an error in mid-stream; or it gave no answer at all."""

    @property
    def lag_s(self) -> float:
        """How much later than planned it was sent, which is the load generator's own fault."""
        return self.timeline.arrival_s - self.request.send_s

    @property
    def output_tokens(self) -> int:
        """Tokens received: what the server told, else one for each chunk."""
        return len(self.timeline.output_s) if self.timeline.tokens is None else self.timeline.tokens

    @property
    def ending(self) -> str:
        """How it ended: the timeline's outcome, or lost."""
        return "lost" if self.lost else self.timeline.outcome
