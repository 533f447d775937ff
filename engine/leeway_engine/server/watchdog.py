"""Tells a loop that hangs, or schedules nothing, from one that is idle or slow."""

from typing import NamedTuple


class Progress(NamedTuple):
    """What is known of the loop; but for the requests, totals since it started."""

    in_flight: int = 0
    """Requests that the loop was given and has not ended."""
    messages: int = 0
    """Messages heard from it."""
    iterations: int = 0
    tokens: int = 0
    """Tokens scheduled."""
    ended: int = 0
    """Requests that it ended or refused."""


class Watchdog:
    """Adds up the time in which requests were in flight and nothing came of it.

    Only time between looks counts, and no more of it than is usual: if the looking process itself stood still, the loop
    is not to blame for what it could not be heard saying.
    """

    def __init__(self, unready_after_s: float, kill_after_s: float, longest_look_s: float) -> None:
        """Bound the silence, or time without a token, that a pod stays ready for, and the silence that ends its loop.

        An iteration may legally take seconds, in which a loop says nothing, so the bounds must be longer than any.
        """
        self._unready_after_s = unready_after_s
        self._kill_after_s = kill_after_s
        self._longest_look_s = longest_look_s
        self._looked_s: float | None = None
        self._progress = Progress()
        self._silent_s = self._empty_s = 0.0

    def look(self, progress: Progress, now_s: float) -> None:
        """Compare with the last look."""
        passed_s = 0.0 if self._looked_s is None else min(now_s - self._looked_s, self._longest_look_s)
        before, self._progress, self._looked_s = self._progress, progress, now_s
        if not (before.in_flight and progress.in_flight):
            self._silent_s = self._empty_s = 0.0
            return
        self._silent_s = 0.0 if progress.messages > before.messages else self._silent_s + passed_s
        if progress.tokens > before.tokens:
            self._empty_s = 0.0
        elif progress.iterations > before.iterations or progress.ended == before.ended:
            # What it refuses on arrival needs no iteration, and whatever else it says is no work.
            self._empty_s += passed_s

    @property
    def reason(self) -> str | None:
        """Why the pod is not ready; None if it is."""
        requests = self._progress.in_flight
        if self._silent_s >= self._unready_after_s:
            return (
                f"the engine loop has said nothing for {self._silent_s:.0f} s with {requests} requests in flight; "
                f"it is ended after {self._kill_after_s:g} s"
            )
        if self._empty_s >= self._unready_after_s:
            return f"the engine has scheduled nothing for {self._empty_s:.0f} s with {requests} requests in flight"
        return None

    @property
    def hopeless(self) -> bool:
        """Whether the loop has been silent for so long that only its end helps."""
        return self._silent_s >= self._kill_after_s
