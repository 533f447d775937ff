"""What an iteration has left for prefills."""

from leeway_core.pod_knobs import PodKnobs
from leeway_core.policies import PrefillCap

from leeway_engine.scheduling.load import Load
from leeway_engine.scheduling.predictor import Predictor
from leeway_engine.scheduling.request import Request


class PrefillRoom:
    """The token budget, the predicted time and the active-prefill cap, less what the iteration already holds."""

    def __init__(self, knobs: PodKnobs, load: Load, predictor: Predictor, prefills: int = 0) -> None:
        """`load` has the decodes of the iteration, and what that many prefills of it compute already."""
        policies = knobs.policies
        adaptive = policies.adaptive_chunk
        limits_s = [limit for limit in (policies.iteration_s, adaptive and adaptive.itl_s) if limit]
        self.left = knobs.token_budget - load.decodes - load.prefill_tokens
        self.load = load
        self.prefills = prefills
        self._chunk_size = knobs.chunk_size
        self._predictor = predictor
        self._limit_s = min(limits_s, default=None)
        self._floor = adaptive.floor_tokens if adaptive else 1
        self._cap = policies.prefill_cap
        self._most = _most_prefills(self._cap, knobs, load.decodes) if self._cap else None

    @property
    def timed(self) -> bool:
        """Whether a predicted time bounds the iteration."""
        return self._limit_s is not None

    @property
    def full(self) -> bool:
        """Whether no further prefill may have tokens."""
        return self.left <= 0 or (self._most is not None and self.prefills > 0 and self.prefills >= self._most)

    def chunk(self, request: Request) -> int:
        """Tokens that the request may prefill now; 0 defers it, and it keeps what it has.

        Liu et al., APC: with other prefills active, only below the cap and never less than min(rest, L_min); without,
        whatever there is.
        """
        if self.full:
            return 0
        pending = request.pending
        tokens = min(pending, self._chunk_size, self.left)
        if self._limit_s is not None:
            fitting = self._predictor.largest_chunk(self.load, request.computed, self._limit_s)
            tokens = min(tokens, max(fitting, 0 if self.prefills else self._floor))
        if self._cap and self.prefills and tokens < min(pending, self._cap.chunk_tokens):
            return 0
        return tokens

    def use(self, request: Request, tokens: int) -> None:
        """Note a chunk in the iteration."""
        self.left -= tokens
        self.prefills += 1
        self.load = self.load.with_chunk(tokens, request.computed)


def _most_prefills(cap: PrefillCap, knobs: PodKnobs, decodes: int) -> int:
    """C_t = min(C_max, S_max - |D_t|, ⌊(T_max - N_t) / L_min⌋), with one token for each decode in N_t."""
    return min(cap.prefills, knobs.running_sequences - decodes, (knobs.token_budget - decodes) // cap.chunk_tokens)
