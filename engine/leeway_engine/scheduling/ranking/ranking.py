"""What every ranking of the waiting requests answers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator

from leeway_engine.scheduling.request import Request

Retreat = Callable[[], Iterable[Request]]
"""Gives those that run in order of retreat; a function, for to put them in order takes time."""


class Ranking(ABC):
    """The waiting requests, and which of them goes first. `iteration` is the number of the iteration being planned."""

    steady = False
    """Whether the first stays the first as long as no request comes or goes."""

    preempts = False
    """Whether waiting requests may take the place of running ones."""

    @abstractmethod
    def add(self, request: Request, iteration: int, now_s: float) -> None:
        """Take in a request that arrived or was preempted."""

    @abstractmethod
    def discard(self, request: Request) -> None:
        """Let go of a request that was admitted or ended."""

    @abstractmethod
    def first(self, iteration: int, now_s: float) -> Request | None:
        """Return the request to admit next, or None if none waits."""

    @abstractmethod
    def reason(self, request: Request) -> str:
        """Return the ranking's name and what a waiting request ranks by, for people."""

    def displaces(self, request: Request) -> bool:
        """Whether any that run may stand back for a waiting request."""
        return self.preempts

    def in_order_of_retreat(self, running: Iterable[Request]) -> Iterable[Request]:
        """Return running requests in the order in which they stand back; most rankings let none do so."""
        return ()

    def outranked(self, request: Request, retreating: Retreat, now_s: float) -> Iterator[Request]:
        """Give those in order of retreat that stand back for a waiting request."""
        return iter(())

    def last(self, running: Collection[Request]) -> Request:
        """Return the running request to preempt first: unless a ranking knows better, the latest arrival."""
        return max(running, key=lambda request: request.order)
