"""What is still ahead of a request: output, time and its deadline."""

from enum import Enum

from leeway_core.pod_knobs import PodKnobs

from leeway_engine.scheduling.lengths import OutputLengths
from leeway_engine.scheduling.load import Load
from leeway_engine.scheduling.predictor import Predictor
from leeway_engine.scheduling.request import Request

DEFAULT_DOUBT_PERCENT = 25


class Reach(Enum):
    """Whether a deadline can be met."""

    REACHABLE = "reachable"
    DOUBTFUL = "doubtful"
    UNREACHABLE = "unreachable"


class Outlook:
    """Predicts for single requests from the present load. While the predictor is not ready, all takes no time."""

    def __init__(self, predictor: Predictor, lengths: OutputLengths, knobs: PodKnobs) -> None:
        """Predict for an idle pod until `face` tells the load."""
        self._predictor = predictor
        self._lengths = lengths
        self.face(knobs, Load())

    def face(self, knobs: PodKnobs, load: Load) -> None:
        """Take the knobs and the decodes of the iteration at hand as those to come."""
        slack = knobs.policies.slack
        self.doubt = (slack.doubt_percent if slack else DEFAULT_DOUBT_PERCENT) / 100
        """How far off a predicted time may be, as a share of it."""
        self._knobs = knobs
        self._chunk_size = knobs.chunk_size
        self._load = load
        self._times: tuple[float, float] | None = None
        self._full_times: tuple[int, float, float] | None = None

    def output_left(self, request: Request) -> int:
        """Output tokens to be expected still; at least 1."""
        return max(1, self._lengths.expected(request.slo_class, request.max_tokens) - request.generated)

    def prefill_s(self, tokens: int) -> float:
        """Seconds to prefill so many tokens beside the present decodes, one chunk an iteration."""
        return -(-tokens // self._chunk_size) * self._iteration_times()[0]

    def remaining_s(self, request: Request) -> float:
        """Seconds from its next chunk to its last token; the prefill gives the first one."""
        chunk_s, decode_s = self._times or self._iteration_times()
        chunks = -(-request.to_compute // self._chunk_size)
        return chunks * chunk_s + (self.output_left(request) - 1) * decode_s

    def reach(self, request: Request, now_s: float) -> Reach:
        """Whether its deadline is met even if all takes longer than predicted, or missed even if all takes less."""
        if request.deadline_s is None:
            return Reach.REACHABLE
        return self.reach_within(request.deadline_s - now_s, self.remaining_s(request))

    def reach_within(self, left_s: float, remaining_s: float) -> Reach:
        """Whether a deadline that is so far off is met by a request that is predicted to need so long."""
        if left_s >= remaining_s * (1 + self.doubt):
            return Reach.REACHABLE
        return Reach.DOUBTFUL if left_s >= remaining_s * (1 - self.doubt) else Reach.UNREACHABLE

    def rejects(self, request: Request) -> bool:
        """Whether its class is rejected once its deadline is out of reach."""
        return self.when_late(request) == "reject"

    def when_late(self, request: Request) -> str:
        """Return what its class wants once its deadline is out of reach: serve, downgrade or reject."""
        slack = self._knobs.policies.slack
        return "serve" if slack is None else slack.by_class.get(request.slo_class, slack.unreachable)

    def decodes_s(self, running: int) -> float:
        """Seconds of an iteration in which so many requests decode, with the present context."""
        return self._times_beside(running)[0]

    def queue_s(self, waiting_tokens: int, running: int, iterations: int) -> float:
        """Predicted seconds until a request that joins the queue now gets its first chunk, beside so many running ones.

        The prefill tokens ahead of it are computed first, at the budget that decodes leave, and a running sequence must
        end in so many iterations to make place; both go on together.
        """
        per_iteration = self._budget_beside(running)
        decodes_s, full_s = self._times_beside(running)
        prefills = waiting_tokens / per_iteration
        return max(prefills, iterations) * decodes_s + prefills * (full_s - decodes_s)

    def _iteration_times(self) -> tuple[float, float]:
        """Seconds of an iteration with one more chunk, and with one more decode."""
        if self._times is None:
            predict, load = self._predictor.predict, self._load
            one_more = load._replace(decodes=load.decodes + 1)
            self._times = predict(load.with_chunk(self._chunk_size, 0)), predict(one_more)
        return self._times

    def _times_beside(self, running: int) -> tuple[float, float]:
        """Seconds of an iteration of so many decodes, and of one that has all the prefill tokens that they leave."""
        if self._full_times is None or self._full_times[0] != running:
            decodes = Load(running, self._load.context_tokens)
            full = decodes.with_chunk(self._budget_beside(running), 0)
            self._full_times = running, self._predictor.predict(decodes), self._predictor.predict(full)
        _, decodes_s, full_s = self._full_times
        return decodes_s, full_s

    def _budget_beside(self, running: int) -> int:
        """Prefill tokens of an iteration in which so many decode."""
        return max(1, self._knobs.token_budget - running)
