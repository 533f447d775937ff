"""Ended requests that keep their KV for the request that goes on from them, as after the call of a tool."""

from collections.abc import Iterator
from itertools import takewhile

from leeway_engine.scheduling.request import Request


class ToolWaits:
    """Who waits, until when, and who goes on from whom. What they hold is the scheduler's to take back."""

    def __init__(self, block_size: int) -> None:
        """Nobody waits at first."""
        self._block_size = block_size
        self._until_s: dict[Request, float] = {}
        self._by_prompt: dict[bytes, list[Request]] = {}

    def __len__(self) -> int:
        """How many wait."""
        return len(self._until_s)

    def __iter__(self) -> Iterator[Request]:
        """Those that wait, the longest first."""
        return iter(self._until_s)

    @property
    def blocks(self) -> int:
        """KV blocks that they hold, where each is counted once for every holder."""
        return sum(len(request.blocks) for request in self._until_s)

    @property
    def next_end_s(self) -> float | None:
        """When the first wait ends; None if nobody waits."""
        return min(self._until_s.values(), default=None)

    def begin(self, request: Request, now_s: float) -> None:
        """Let a request, which holds blocks with keys, wait as long as it asked for, but not past its time-out."""
        self._until_s[request] = min(now_s + request.tool_wait_s, request.expires_s)
        self._by_prompt.setdefault(self._prompt_key(request), []).append(request)

    def end(self, request: Request) -> None:
        """Wait no more."""
        del self._until_s[request]
        key = self._prompt_key(request)
        self._by_prompt[key].remove(request)
        if not self._by_prompt[key]:
            del self._by_prompt[key]

    def before(self, request: Request) -> Request | None:
        """Return the one that a request goes on from, if there is one.

        It begins with the other's prompt and is longer. Of several, it has most in common with that one's answer,
        which a chat template may write in another way.
        """
        if not self._until_s:
            return None
        same = (other for key in request.keys for other in self._by_prompt.get(key, ()))
        shorter = [other for other in same if other.prompt_tokens < request.prompt_tokens]
        return max(shorter, key=lambda other: _common(other.keys, request.keys), default=None)

    def renew(self, request: Request, now_s: float) -> None:
        """Let the one that a request goes on from wait anew, as the request itself may have to."""
        if other := self.before(request):
            self._until_s[other] = max(self._until_s[other], min(now_s + other.tool_wait_s, other.expires_s))

    def over(self, now_s: float) -> list[Request]:
        """Those that have waited for as long as they asked for."""
        return [request for request, until_s in self._until_s.items() if until_s <= now_s]

    def cheapest(self, for_whom: Request | None) -> Request | None:
        """Return who is to give its blocks up first: the one with the fewest tokens to compute again.

        So no more is lost than must be. The one that `for_whom` goes on from is the last.
        """
        own = self.before(for_whom) if for_whom else None
        return min(self._until_s, key=lambda request: (request is own, request.computed), default=None)

    def _prompt_key(self, request: Request) -> bytes:
        """Key of the last full block of its prompt, or of its first block if its prompt fills none."""
        return request.keys[max(0, request.prompt_tokens // self._block_size - 1)]


def _common(keys: list[bytes], others: list[bytes]) -> int:
    """How many blocks two requests begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(keys, others, strict=False)))
