"""Keeps an eye on the engine loop."""

import asyncio
import logging
import time

from prometheus_client import Gauge

from leeway_engine.server.engine_process import EngineProcess
from leeway_engine.server.watchdog import Watchdog

LOOK_S = 0.5
"""How often the loop is looked at."""

logger = logging.getLogger(__name__)


class LoopWatch:
    """Says when the pod is not ready as its loop does no work, and ends a loop that hangs for good."""

    def __init__(self, engine: EngineProcess, unready_after_s: float, kill_after_s: float, stalled: Gauge) -> None:
        """`stalled` is set to 1 while the pod is not ready for that, else 0."""
        self._engine = engine
        self._watchdog = Watchdog(unready_after_s, kill_after_s, longest_look_s=2 * LOOK_S)
        self._stalled = stalled
        self.reason: str | None = None
        """Why the pod is not ready; None if the loop gives no cause."""

    async def run(self) -> None:
        """Look until the loop is ended or this is cancelled."""
        while not self._engine.died.is_set():
            await asyncio.sleep(LOOK_S)
            self._watchdog.look(self._engine.progress(), time.monotonic())
            self._tell(self._watchdog.reason)
            if self._watchdog.hopeless:
                logger.error("the engine loop is ended, as it hangs; the pod ends with it and starts anew")
                self._engine.kill()
                return

    def _tell(self, reason: str | None) -> None:
        """Say in the log when it begins and when it is over."""
        if reason is not None and self.reason is None:
            logger.error("the pod is not ready: %s", reason)
        elif reason is None and self.reason is not None:
            logger.info("the pod is ready again: the engine does its work")
        self.reason = reason
        self._stalled.set(reason is not None)
