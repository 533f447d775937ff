"""Requests in order of a key, of which any may be taken out."""

from heapq import heapify, heappop, heappush
from itertools import count

from leeway_engine.scheduling.request import Request

_Entry = tuple[float, int, int, Request]
_FEW_STALE = 64


class RequestHeap:
    """A heap by key, then by arrival. What is taken out stays in the heap, stale, until it comes to the top."""

    def __init__(self) -> None:
        """Begin empty."""
        self._heap: list[_Entry] = []
        self._live: dict[Request, _Entry] = {}
        self._serial = count()

    def __len__(self) -> int:
        """How many requests are in it."""
        return len(self._live)

    def __contains__(self, request: Request) -> bool:
        """Whether the request is in it."""
        return request in self._live

    def key(self, request: Request) -> float:
        """Key of a request that is in it."""
        return self._live[request][0]

    def put(self, request: Request, key: float) -> None:
        """Put a request in, or change its key."""
        entry = (key, request.order, next(self._serial), request)
        self._live[request] = entry
        heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._live) + _FEW_STALE:
            self._heap = list(self._live.values())
            heapify(self._heap)

    def discard(self, request: Request) -> None:
        """Take a request out, if it is in."""
        self._live.pop(request, None)

    def first(self) -> Request | None:
        """Return the request with the smallest key, or None if there is none."""
        heap, live = self._heap, self._live
        while heap:
            entry = heap[0]
            if live.get(entry[3]) is entry:
                return entry[3]
            heappop(heap)
        return None
