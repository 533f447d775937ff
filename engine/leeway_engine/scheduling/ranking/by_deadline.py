"""Deadlines before the ranking: pressing ones first, doubtful ones last."""

from collections.abc import Callable, Collection, Iterable, Iterator
from enum import IntEnum
from heapq import heappop, heappush
from itertools import count

from leeway_core.policies import Slack

from leeway_engine.scheduling.outlook import Outlook, Reach
from leeway_engine.scheduling.ranking.ranking import Ranking, Retreat
from leeway_engine.scheduling.request import Request

_LEAST_WAIT_S = 0.001
_DOUBTFUL_AGAIN_S = 1.0


class Tier(IntEnum):
    """What a request's deadline makes of its place; a lower one goes first."""

    PRESSING = 0
    """Its deadline can be met, and not much later."""
    ORDINARY = 1
    """It has no deadline, or a distant one."""
    BEST_EFFORT = 2
    """Its deadline is doubtful, out of reach or given up."""


class DeadlineRanking(Ranking):
    """Three tiers by slack = deadline - now - predicted remaining; within each, the settings' ranking.

    A request changes its tier when time tells, which a heap of times does, so no plan looks at the whole queue. Where
    predictions change meanwhile it does so late, but no later than the old ones gave; a doubtful one is looked at again
    each second.
    """

    def __init__(self, settings: Slack, outlook: Outlook, rank: Callable[[], Ranking]) -> None:
        """`outlook` tells how far a deadline is, `rank` gives an empty ranking."""
        self._settings = settings
        self._outlook = outlook
        self._rankings = [rank() for _ in Tier]
        self.preempts = self._rankings[Tier.ORDINARY].preempts
        self._tiers: dict[Request, Tier] = {}
        self._due_s: dict[Request, float] = {}
        self._looks: list[tuple[float, int, Request]] = []
        self._serial = count()

    def add(self, request: Request, iteration: int, now_s: float) -> None:
        """Rank a request within its tier, and look again when its deadline is to change that."""
        remaining_s = self._outlook.remaining_s(request)
        tier = self._tiers[request] = self._tier(request, remaining_s, now_s)
        self._rankings[tier].add(request, iteration, now_s)
        self._look_again(request, tier, remaining_s, now_s)

    def discard(self, request: Request) -> None:
        """Let go of a request."""
        self._rankings[self._tiers.pop(request)].discard(request)
        self._due_s.pop(request, None)

    def first(self, iteration: int, now_s: float) -> Request | None:
        """Return the first of the first tier that has any."""
        looks = self._looks
        while looks and looks[0][0] <= now_s:
            due_s, _, request = heappop(looks)
            if self._due_s.get(request) != due_s:
                continue
            remaining_s = self._outlook.remaining_s(request)
            tier = self._tier(request, remaining_s, now_s)
            if tier is self._tiers[request]:
                self._look_again(request, tier, remaining_s, now_s)
            else:
                self.discard(request)
                self.add(request, iteration, now_s)
        for ranking in self._rankings:
            if (first := ranking.first(iteration, now_s)) is not None:
                return first
        return None

    def reason(self, request: Request) -> str:
        """Return its tier, if its deadline matters, and what it ranks by there."""
        tier = self._tiers[request]
        reason = self._rankings[tier].reason(request)
        return reason if tier is Tier.ORDINARY else f"{tier.name.lower()}, {reason}"

    def displaces(self, request: Request) -> bool:
        """Whether its tier's ranking says so."""
        return self._rankings[self._tiers[request]].displaces(request)

    def in_order_of_retreat(self, running: Iterable[Request]) -> Iterable[Request]:
        """Return them in the ranking's order."""
        return self._rankings[Tier.ORDINARY].in_order_of_retreat(running)

    def outranked(self, request: Request, retreating: Retreat, now_s: float) -> Iterator[Request]:
        """Give those that the ranking does, but for such as would go first by their deadlines."""
        tier = self._tiers[request]
        others = self._rankings[tier].outranked(request, retreating, now_s)
        if tier is Tier.PRESSING:
            return others
        return (other for other in others if self._tier(other, self._outlook.remaining_s(other), now_s) >= tier)

    def last(self, running: Collection[Request]) -> Request:
        """Return whom the ranking would miss least."""
        return self._rankings[Tier.ORDINARY].last(running)

    def _tier(self, request: Request, remaining_s: float, now_s: float) -> Tier:
        if request.downgraded:
            return Tier.BEST_EFFORT
        if request.deadline_s is None:
            return Tier.ORDINARY
        left_s = request.deadline_s - now_s
        if self._outlook.reach_within(left_s, remaining_s) is not Reach.REACHABLE:
            return Tier.BEST_EFFORT
        return Tier.PRESSING if left_s - remaining_s <= self._settings.pressing_s else Tier.ORDINARY

    def _look_again(self, request: Request, tier: Tier, remaining_s: float, now_s: float) -> None:
        due_s = self._next_look_s(request, tier, remaining_s, now_s)
        if due_s is None:
            self._due_s.pop(request, None)
        else:
            self._due_s[request] = due_s = max(due_s, now_s + _LEAST_WAIT_S)
            heappush(self._looks, (due_s, next(self._serial), request))

    def _next_look_s(self, request: Request, tier: Tier, remaining_s: float, now_s: float) -> float | None:
        """Time at which the request is to be in another tier as things stand now; None if never."""
        if request.deadline_s is None or request.downgraded:
            return None
        doubtful_s = request.deadline_s - remaining_s * (1 + self._outlook.doubt)
        if tier is Tier.ORDINARY:
            return min(doubtful_s, request.deadline_s - remaining_s - self._settings.pressing_s)
        if tier is Tier.PRESSING:
            return doubtful_s
        return now_s + _DOUBTFUL_AGAIN_S if now_s <= request.deadline_s else None
