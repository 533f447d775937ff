"""How long outputs turn out to be, by SLO class."""

from bisect import bisect_left, insort
from collections import deque

_WINDOW = 256
_FEWEST = 8
_MOST_CLASSES = 64


class OutputLengths:
    """Quantiles over the last outputs of each class; of a class with too few, over those of all classes."""

    def __init__(self) -> None:
        """Begin without any output seen."""
        self._all = _Window()
        self._by_class: dict[str, _Window] = {}

    def observe(self, slo_class: str, tokens: int) -> None:
        """Note a whole output. Classes beyond the first few dozens count only for all."""
        self._all.add(tokens)
        if slo_class not in self._by_class and len(self._by_class) < _MOST_CLASSES:
            self._by_class[slo_class] = _Window()
        if window := self._by_class.get(slo_class):
            window.add(tokens)

    def expected(self, slo_class: str, max_tokens: int, percent: int = 50) -> int:
        """Return the tokens that a share of the outputs do not exceed; `max_tokens` while too few were seen."""
        window = self._by_class.get(slo_class, self._all)
        if window.size < _FEWEST:
            window = self._all
        return max_tokens if window.size < _FEWEST else min(max_tokens, window.quantile(percent))


class _Window:
    """The last values, also in order of size."""

    def __init__(self) -> None:
        self.size = 0
        self._values: deque[int] = deque()
        self._sorted: list[int] = []
        self._quantiles: dict[int, int] = {}
        """Those that were asked for since the last value came."""

    def add(self, value: int) -> None:
        if self.size == _WINDOW:
            del self._sorted[bisect_left(self._sorted, self._values.popleft())]
        else:
            self.size += 1
        self._values.append(value)
        insort(self._sorted, value)
        self._quantiles.clear()

    def quantile(self, percent: int) -> int:
        known = self._quantiles.get(percent)
        if known is None:
            known = self._quantiles[percent] = self._sorted[max(0, -(-percent * len(self._sorted) // 100) - 1)]
        return known
