"""The pods that take requests, and what each of them has in hand."""

import asyncio
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from leeway_gateway.placement.least_loaded import PodLoad, least_loaded


@dataclass(frozen=True, slots=True)
class Pod:
    """An engine pod and the address of its API."""

    name: str
    url: str


class Roster:
    """Kept up to date by whoever knows the pods; a request in hand outlives its pod's place here."""

    def __init__(self, pods: Iterable[Pod] = ()) -> None:
        """Start with these pods."""
        self.pods: dict[str, Pod] = {pod.name: pod for pod in pods}
        self._requests: dict[Pod, int] = {}
        self._last_placed: dict[Pod, int] = {}
        self._placements = 0
        self._changed = asyncio.Event()

    def replace(self, pods: Iterable[Pod]) -> None:
        """Take these pods for all that are ready."""
        self.pods = {pod.name: pod for pod in pods}
        self._last_placed = {pod: last for pod, last in self._last_placed.items() if self.pods.get(pod.name) == pod}
        self._changed.set()

    def choose(self, passed_over: Collection[Pod]) -> Pod | None:
        """Return the pod for a request that these pods did not take."""
        candidates = [pod for pod in self.pods.values() if pod not in passed_over]
        loads = (PodLoad(self._requests.get(pod, 0), self._last_placed.get(pod, 0), pod.name) for pod in candidates)
        name = least_loaded(loads)
        return self.pods[name] if name else None

    @contextmanager
    def request_on(self, pod: Pod) -> Iterator[None]:
        """Count a request to the pod's load while it is in hand there."""
        self._placements += 1
        self._last_placed[pod] = self._placements
        self._requests[pod] = self._requests.get(pod, 0) + 1
        try:
            yield
        finally:
            self._requests[pod] -= 1
            if not self._requests[pod]:
                del self._requests[pod]

    async def wait_for_change(self, longest_s: float) -> None:
        """Wait until the pods change, but not longer than this."""
        self._changed.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), longest_s)
