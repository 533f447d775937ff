"""Floods of requests that are each made to starve somebody, and a few ordinary requests among them."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST_TOKENS = 320
"""Most tokens, prompt and output, of any request."""
PATTERN_S = 60.0
"""How long a pattern lasts before the next one."""
WITNESS_S = 1.0
BURST_S = 5.0


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to come."""

    prompt_tokens: int
    max_tokens: int
    tenant: str = "quiet"
    slo_class: str = ""
    priority: int = 0
    budget_s: float | None = None
    """Time from its arrival to its deadline."""


class Adversary:
    """Fills each place in a pod's queue as it falls free; whoever is to starve comes first, once a second."""

    PATTERNS = ("long prompts", "short prompts", "long outputs", "priority inversion", "one loud tenant", "bursts")

    def __init__(self, seed: str, pattern_s: float = PATTERN_S) -> None:
        """Equal seeds ask equally."""
        self._draw = random.Random(seed)
        self._pattern_s = pattern_s
        self._witness_due_s = self._burst_due_s = 0.0

    def asks(self, now_s: float, places: int) -> Iterator[Ask]:
        """The requests that come now; `places` are free in the queue."""
        pattern = self.PATTERNS[int(now_s / self._pattern_s) % len(self.PATTERNS)]
        if places and now_s >= self._witness_due_s:
            self._witness_due_s = now_s + WITNESS_S
            yield self._witness(pattern)
            places -= 1
        if pattern == "bursts":
            if now_s < self._burst_due_s:
                return
            self._burst_due_s = now_s + BURST_S
        for _ in range(places):
            yield self._one_of_flood(pattern)

    def _witness(self, pattern: str) -> Ask:
        if pattern == "priority inversion":
            return Ask(256, 64, priority=-5)
        return Ask(100, 30)

    def _one_of_flood(self, pattern: str) -> Ask:
        between = self._draw.randint
        match pattern:
            case "long prompts":
                return Ask(between(200, 256), between(2, 8))
            case "short prompts":
                return Ask(between(1, 8), between(1, 4), tenant=f"tenant-{between(1, 50)}")
            case "long outputs":
                return Ask(between(1, 8), between(200, 300))
            case "priority inversion":
                return Ask(between(1, 8), between(1, 8), slo_class="gold", priority=5, budget_s=2.0)
            case "one loud tenant":
                return Ask(between(50, 200), between(10, 60), tenant="loud")
            case _:
                return Ask(between(1, 256), between(1, 60), tenant=f"tenant-{between(1, 5)}")
