"""The keeper's event loop: one thread that waits for readable files and for times to come."""

import heapq
import selectors
import time
import traceback
from collections.abc import Callable
from itertools import count
from typing import NoReturn


class Loop:
    """Calls what was asked for when a descriptor is readable or a time has come."""

    def __init__(self) -> None:
        """Begin with nothing to wait for."""
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def watch(self, descriptor: int, call: Callable[[], None]) -> None:
        """Call whenever the descriptor is readable."""
        self._selector.register(descriptor, selectors.EVENT_READ, call)

    def forget(self, descriptor: int) -> None:
        """Watch a descriptor no more."""
        self._selector.unregister(descriptor)

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call once, later."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), call))

    def run(self) -> NoReturn:
        """Go on for ever."""
        while True:
            timeout = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
            for key, _ in self._selector.select(timeout):
                if self._selector.get_map().get(key.fd) is key:  # else an earlier call of this round ended it
                    _call(key.data)
            while self._timers and self._timers[0][0] <= time.monotonic():
                _call(heapq.heappop(self._timers)[2])


def _call(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:  # noqa: BLE001 - one container's trouble must not end all others
        traceback.print_exc()
