"""How long answers become, learnt from those that have ended."""

from bisect import bisect_right, insort
from collections import deque

WINDOW = 256
"""Answers remembered of each class; older ones are forgotten."""
MOST_CLASSES = 64
"""Classes kept apart; clients name them, so later ones are counted together."""
QUANTILE = 0.75


class OutputLengths:
    """Exact quantiles of the output tokens of the last answers, for each SLO class."""

    def __init__(self) -> None:
        """Start with no answers."""
        self._by_class: dict[str, _Window] = {}

    def observe(self, slo_class: str, tokens: int) -> None:
        """Note the output tokens of an answer that came to its own end."""
        name = slo_class if slo_class in self._by_class or len(self._by_class) < MOST_CLASSES else ""
        self._by_class.setdefault(name, _Window()).add(tokens)

    def expected(self, slo_class: str, generated: int, max_tokens: int) -> int:
        """Expected output tokens in all of an answer that has `generated` so far and may have `max_tokens`.

        The quantile is of those answers that were longer than this one is now; with none of them it is `generated`.
        """
        window = self._by_class.get(slo_class) or self._by_class.get("")
        longer = generated if window is None else window.quantile_above(generated)
        return min(longer, max_tokens)


class _Window:
    def __init__(self) -> None:
        self._in_order: deque[int] = deque()
        self._sorted: list[int] = []

    def add(self, tokens: int) -> None:
        if len(self._in_order) == WINDOW:
            oldest = self._in_order.popleft()
            del self._sorted[bisect_right(self._sorted, oldest) - 1]
        self._in_order.append(tokens)
        insort(self._sorted, tokens)

    def quantile_above(self, tokens: int) -> int:
        first = bisect_right(self._sorted, tokens)
        count = len(self._sorted) - first
        return self._sorted[first + min(int(QUANTILE * count), count - 1)] if count else tokens
