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
        self._most: dict[str, list[int]] = {}

    def add(self, request: Request) -> None:
        """Note a request that waits."""
        insort(self._most.setdefault(request.slo_class, []), request.max_tokens)

    def remove(self, request: Request) -> None:
        """Note that a request waits no more."""
        most = self._most[request.slo_class]
        del most[bisect_left(most, request.max_tokens)]
        if not most:
            del self._most[request.slo_class]

    def expected(self, lengths: OutputLengths) -> int:
        """Output tokens of all that wait, as outputs are known by now."""
        tokens = 0
        for slo_class, most in self._most.items():
            usual = lengths.expected(slo_class, most[-1])
            shorter = bisect_left(most, usual)
            tokens += sum(most[:shorter]) + usual * (len(most) - shorter)
        return tokens
