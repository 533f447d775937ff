"""When the garbage collector of the engine's process runs."""

import gc
import time
from collections.abc import Callable

PERIOD_S = 10.0


class Garbage:
    """Runs the collector between two iterations, every few seconds, instead of in the middle of any.

    Almost all that an iteration leaves is freed by reference counts; what refers to itself can wait so long.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin the first period."""
        self._clock = clock
        self._collected_s = clock()

    def take_over(self) -> None:
        """Stop Python from collecting by itself, and leave what is here by now, as the model, out of collections."""
        gc.collect()
        gc.freeze()
        gc.disable()

    def collect_if_due(self) -> bool:
        """Collect if the last time is long enough ago; returns whether it did."""
        now_s = self._clock()
        if now_s - self._collected_s < PERIOD_S:
            return False
        gc.collect()
        self._collected_s = now_s
        return True
