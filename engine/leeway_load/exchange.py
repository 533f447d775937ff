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
    """The server took the request and then fell silent: the connection broke, or the stream ended without a finish."""

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
