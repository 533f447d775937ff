"""When host memory is the quicker way back for a preempted request."""

from leeway_engine.scheduling.kv_memory import KvMemory
from leeway_engine.scheduling.outlook import Outlook
from leeway_engine.scheduling.request import Request

WEIGHT = 0.2
"""Of the newest reading in the moving mean."""


class SwapCost:
    """Weighs moving a request's blocks out and in again against computing its tokens again."""

    def __init__(self, kv: KvMemory, outlook: Outlook) -> None:
        """Until moves are observed they count as taking no time, so that the first ones teach what they take."""
        self._kv = kv
        self._outlook = outlook
        self._move_s = 0.0

    def observe(self, moves: int, seconds: float) -> None:
        """Learn from how long that many moves took together."""
        if moves and seconds > 0:
            reading_s = seconds / moves
            self._move_s = reading_s if not self._move_s else self._move_s + WEIGHT * (reading_s - self._move_s)

    def fits(self, request: Request) -> bool:
        """Whether host memory has room for the request."""
        return self._kv.can_swap(request)

    def quicker(self, request: Request) -> bool:
        """Whether the request had better be swapped out than computed again."""
        blocks = self._kv.pool.blocks_for(request.computed)
        if not self.fits(request):
            return False
        return 2 * blocks * self._move_s <= self._outlook.prefill_s(self._kv.to_recompute(request))
