"""How fast this machine serves, and the load and the bounds that go with it."""

import json
import random
import time
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Any, Self

PROMPT_TOKENS = 1024
PODS = 2
ROUNDS = 4
"""The first of them warms up and does not count."""
REFERENCE_S = 1.0
"""The profile's bounds and the load's rate are written for a machine that takes so long."""
TIMEOUT_S = 60.0
STEADY = 1.2
"""A machine that becomes no slower than by this factor counts as one that did not change."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What an iteration of a long prompt takes while every pod has one to do."""

    iteration_s: float

    @classmethod
    def measure(cls, url: str) -> Self:
        """Send a long prompt to each pod at once, several times; it fits one iteration under the default knobs."""
        model = _ask(f"{url}/v1/models")["data"][0]["id"]
        with ThreadPoolExecutor(PODS) as clients:
            rounds = [list(clients.map(lambda _: _prefill_s(url, model), range(PODS))) for _ in range(ROUNDS)]
        return cls(median(seconds for each in rounds[1:] for seconds in each))

    @property
    def slowness(self) -> float:
        """How many times longer than written for everything takes."""
        return self.iteration_s / REFERENCE_S

    def warning(self, later: "Pace") -> str:
        """Say that the machine has become slower since, and so too slow for load and bounds; nothing if it has not."""
        slower = later.iteration_s / self.iteration_s
        if slower < STEADY:
            return ""
        return (
            f"The machine became {slower:.1f} times slower meanwhile: a prompt of {PROMPT_TOKENS} tokens took "
            f"{self.iteration_s:.2f} s at first and takes {later.iteration_s:.2f} s now. Load and bounds were for "
            "the former, so this run tells little about the knobs: run it again."
        )

    def objectives(self, written: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return objectives with bounds that this machine can meet."""
        return [
            {name: round(value * self.slowness) if name.endswith("Ms") else value for name, value in each.items()}
            for each in written
        ]


def _prefill_s(url: str, model: str) -> float:
    body = {"model": model, "prompt": random.choices(range(1000, 9000), k=PROMPT_TOKENS), "max_tokens": 1}  # noqa: S311 - no secret
    began_s = time.monotonic()
    _ask(f"{url}/v1/completions", body)
    return time.monotonic() - began_s


def _ask(url: str, body: Mapping[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 - our own loopback
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310 - as above
        return json.load(response)
