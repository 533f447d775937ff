"""Finds stop strings in text that comes in pieces."""

from collections.abc import Sequence


class StopStrings:
    """Lets text through up to the first stop string; no character of one goes out, however it is cut into pieces."""

    def __init__(self, stops: Sequence[str]) -> None:
        """Watch for these strings; none of them may be empty."""
        self._stops = stops
        self._held = ""
        self.found = False
        """Whether a stop string has come; nothing goes out after it."""

    def feed(self, text: str) -> str:
        """Return what can go out now."""
        text = self._held + text
        at = min((at for stop in self._stops if (at := text.find(stop)) >= 0), default=-1)
        if at >= 0:
            self.found = True
            self._held = ""
            return text[:at]
        keep = len(text) - max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[keep:]
        return text[:keep]

    def flush(self) -> str:
        """Return what was held back, at the end of the text."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Return how many last characters of the text begin the stop string."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
