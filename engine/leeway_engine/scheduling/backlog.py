"""How much output the requests that wait will have."""

from bisect import bisect_left, insort

from leeway_engine.scheduling.lengths import OutputLengths
from leeway_engine.scheduling.request import Request


class Backlog:
    """The `max_tokens` of waiting requests in order, by SLO class, so that a sum of what is expected is cheap.

    Those that were preempted count with their whole output.
    """

    def __init__(self) -> None:
        """Nothing waits."""
        self._classes: dict[str, _Class] = {}

    def add(self, request: Request) -> None:
        """Note a request that waits."""
        of_class = self._classes.get(request.slo_class)
        if of_class is None:
            of_class = self._classes[request.slo_class] = _Class()
        of_class.add(request.max_tokens)

    def remove(self, request: Request) -> None:
        """Note that a request waits no more."""
        of_class = self._classes[request.slo_class]
        of_class.remove(request.max_tokens)
        if not of_class.most:
            del self._classes[request.slo_class]

    def expected(self, lengths: OutputLengths) -> int:
        """Output tokens of all that wait, as outputs are known by now."""
        tokens = 0
        for slo_class, of_class in self._classes.items():
            tokens += of_class.sum_up_to(lengths.expected(slo_class, of_class.most[-1]))
        return tokens


class _Class:
    """Values in order, and their sum where each counts up to a limit."""

    def __init__(self) -> None:
        self.most: list[int] = []
        self._limit = self._sum = 0

    def add(self, value: int) -> None:
        insort(self.most, value)
        self._sum += min(value, self._limit)

    def remove(self, value: int) -> None:
        del self.most[bisect_left(self.most, value)]
        self._sum -= min(value, self._limit)

    def sum_up_to(self, limit: int) -> int:
        if limit != self._limit:
            shorter = bisect_left(self.most, limit)
            self._limit, self._sum = limit, sum(self.most[:shorter]) + limit * (len(self.most) - shorter)
        return self._sum
