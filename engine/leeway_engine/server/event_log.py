"""Writes the event log."""

import logging
from collections.abc import Sequence
from queue import Full, Queue
from threading import Thread

import msgspec

from leeway_engine.request_event import RequestEvent
from leeway_engine.server.metrics.event_log_metrics import EventLogMetrics
from leeway_engine.server.rotating_file import RotatingFile

MOST_BATCHES = 4096
"""Batches, of one iteration each, that may wait for the disk; what comes beyond is lost."""

CLOSING_S = 5.0
"""How long the disk may take for what is left when the pod ends."""

logger = logging.getLogger(__name__)


class EventLog:
    """One JSON object a line, encoded and written in a thread of the API process.

    The loop hands events over beside the tokens of their iteration, so it neither writes JSON nor waits for a disk, and
    what it has told is written even if it is killed. The API's own thread does no more than put a batch into a queue: a
    disk that hangs, which blocks a thread for good, holds up neither streams nor the pod's end.
    """

    def __init__(self, file: RotatingFile, metrics: EventLogMetrics) -> None:
        """Start the thread."""
        self._file = file
        self._metrics = metrics
        self._batches: Queue[Sequence[RequestEvent] | None] = Queue(MOST_BATCHES)
        self._told = False
        self._thread = Thread(target=self._run, name="event-log", daemon=True)
        self._thread.start()

    def write(self, events: Sequence[RequestEvent]) -> None:
        """Have events written soon, or count them as lost where the disk is too slow."""
        if events:
            try:
                self._batches.put_nowait(events)
            except Full:
                self._metrics.lost.inc(len(events))

    def close(self) -> None:
        """Write what is left, if the disk takes it soon enough."""
        try:
            self._batches.put(None, timeout=CLOSING_S)
        except Full:
            return
        self._thread.join(CLOSING_S)

    def _run(self) -> None:
        encoder = msgspec.json.Encoder()
        while (events := self._batches.get()) is not None:
            try:
                self._file.write(encoder.encode_lines(events))
            except OSError as error:
                self._lost(len(events), error)
            else:
                self._metrics.written.inc(len(events))
        self._file.close()

    def _lost(self, events: int, error: OSError) -> None:
        self._metrics.lost.inc(events)
        if not self._told:
            self._told = True
            logger.error(
                "the event log cannot be written, so events are lost until it can be: %s; "
                "leeway_engine_event_log_lost_total counts them",
                error,
            )
