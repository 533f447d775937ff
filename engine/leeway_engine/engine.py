"""The engine of a pod: requests in, tokens out, one iteration at a time."""

from leeway_core.pod_knobs import KnobsReply, PodKnobs

from leeway_engine.messages import EngineStats, GenerationRequest, TokenEvent


class Engine:
    """Schedules, runs and samples in the caller's thread; nothing in it blocks longer than an iteration."""

    @property
    def has_work(self) -> bool:
        """Whether `step` would have something to do."""
        raise NotImplementedError

    def add(self, request: GenerationRequest) -> None:
        """Queue a request, or raise RequestRejected if it can never be served."""
        raise NotImplementedError

    def cancel(self, request_id: str) -> None:
        """End a request at once and free what it holds; unknown or ended ones are ignored."""
        raise NotImplementedError

    def set_knobs(self, knobs: PodKnobs) -> KnobsReply:
        """Take knobs for the next planned iteration, or change nothing and say why in the reply."""
        raise NotImplementedError

    def knobs(self) -> KnobsReply:
        """The knobs accepted and those enforced."""
        raise NotImplementedError

    def step(self) -> list[TokenEvent]:
        """Plan and run one iteration and return the tokens that it gave."""
        raise NotImplementedError

    def stats(self) -> EngineStats:
        """A reading for the metrics."""
        raise NotImplementedError
