"""When running sequences end and so make place for those that wait."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from itertools import accumulate

from leeway_engine.scheduling.lengths import OutputLengths
from leeway_engine.scheduling.request import Request

_ANY = 1 << 60
_REUSED_SHARE = 32


class Slots:
    """The output that running requests still have to generate, by what outputs of their classes are known to be.

    To look at all of them takes time for each, so of many a reading is kept while few have changed since.
    """

    def __init__(self, lengths: OutputLengths) -> None:
        """Nothing runs yet."""
        self._lengths = lengths
        self._left: list[int] = []
        self._sums: list[int] = [0]
        self._read_iteration = 0

    def read(self, running: Collection[Request], iteration: int) -> None:
        """Look at those that run, unless at most one in 32 can have ended or begun since the last reading."""
        changed = iteration - self._read_iteration + abs(len(running) - len(self._left))
        if changed * _REUSED_SHARE <= len(running) and self._left:
            return
        self._read_iteration = iteration
        usual = _UsualOutput(self._lengths)
        left = [(m if (m := r.max_tokens) < (u := usual[r.slo_class]) else u) - r.generated for r in running]
        left.sort()
        over = bisect_left(left, 1)
        left[:over] = [1] * over
        self._left = left
        self._sums = list(accumulate(self._left, initial=0))

    def first_end(self) -> int:
        """Iterations until the first of them ends; 0 if none runs."""
        return self._left[0] if self._left else 0

    def output_left(self) -> int:
        """Output tokens that all of them together will still generate."""
        return self._sums[-1]

    def free_in(self, slots: int, waiting: int, output: int) -> int:
        """Iterations until one of so many slots is free for a request that comes after so many waiting ones.

        These take the slots before it, each the one that is free first, for `output` iterations. Where nobody runs that
        much longer than another, slots take turns. Otherwise the result is off by half of an output at most: the
        waiting fill the slots that are free first up to a level, under which the lowest is by less than an output.
        """
        left, sums, beyond = self._left, self._sums, len(self._left) - slots
        skipped = sums[max(0, beyond)]

        def ends_in(place: int) -> int:
            return left[place + beyond] if place + beyond >= 0 else 0

        def total(count: int) -> int:
            return sums[max(0, count + beyond)] - skipped

        if ends_in(slots - 1) - ends_in(0) <= output:
            rounds, place = divmod(waiting, slots)
            return ends_in(place) + rounds * output

        def work_up_to(count: int) -> int:
            return count * ends_in(count) - total(count)

        work = waiting * output
        # A long queue fills all of them.
        long = work_up_to(slots - 1) <= work
        filled = slots if long else 1 + bisect_right(range(1, slots), work, key=work_up_to)
        return max(ends_in(0), (work + total(filled)) // filled - output // 2)


class _UsualOutput(dict[str, int]):
    """The output that is usual, by SLO class, looked up when it is asked for first."""

    def __init__(self, lengths: OutputLengths) -> None:
        super().__init__()
        self._lengths = lengths

    def __missing__(self, slo_class: str) -> int:
        usual = self[slo_class] = self._lengths.expected(slo_class, _ANY)
        return usual
