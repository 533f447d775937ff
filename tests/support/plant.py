"""A profile that exists in arithmetic alone: pods, gateway, Prometheus and operator as far as the tuner can tell."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from leeway_core.decision import Decision
from leeway_core.knobs import Knobs
from leeway_core.objective import Objective
from leeway_core.pod_knobs import PodKnobs
from leeway_core.ranges import KnobRanges, Range
from leeway_core.reading import Idle, Missing, Reading, TooFewSamples, Value
from leeway_core.record import Record
from leeway_core.snapshot import PodSeen, Readings, Snapshot, Telemetry

SCRAPE_S, TICK_S = 5.0, 5.0
CHAT = Objective(name="chat", ttft_ms=1000, itl_ms=100, target_percent="95")
DOCUMENTS = Objective(name="documents", ttft_ms=10_000, itl_ms=150, target_percent="90")
BINDING = {"chat": "itl", "documents": "ttft"}
"""Which bound the requests of an objective break."""
START = Knobs(
    generation=1,
    token_budget=2048,
    prefill_heavy_chunk=2048,
    decode_heavy_chunk=2048,
    prefill_heavy_percent=50,
    running_sequences=16,
)
TOKENS = Range(min=16, max=2048, step=16)
RANGES = KnobRanges(
    token_budget=TOKENS,
    prefill_heavy_chunk=TOKENS,
    decode_heavy_chunk=TOKENS,
    prefill_heavy_percent=Range(min=50, max=50, step=1),
    running_sequences=Range(min=16, max=16, step=1),
)

Attainment = Callable[[Knobs, str, float], float]
"""Share of an objective's requests that are met under knobs at a time."""


def interference(knobs: Knobs, objective: str, at_s: float) -> float:
    """Large chunks break the gaps of chats, small ones and small budgets the TTFT of documents; the load drifts."""
    chunk = min(knobs.prefill_heavy_chunk, knobs.token_budget)
    drift = 0.15 * math.sin(at_s / 200)
    if objective == "chat":
        return 0.05 + 0.93 / (1 + (chunk / 300) ** (2 + drift))
    return 0.96 / (1 + (60 / chunk) ** (2 + drift)) / (1 + (90 / knobs.token_budget) ** 3)


def indifferent(knobs: Knobs, objective: str, at_s: float) -> float:
    """Whatever the knobs are, they do the same."""
    return 0.8 + 0.1 * math.sin(at_s / 150)


@dataclass
class Plant:
    """Serves under the knobs on record, and sees a tuner's decisions carried out at once."""

    attainment: Attainment
    seed: int = 0
    scrape_phase_s: float = 2.0
    """How long after a tick gateways are scraped."""
    rates_rps: dict[str, float] = field(default_factory=lambda: {"chat": 2.0, "documents": 0.5})
    objectives: tuple[Objective, ...] = (CHAT, DOCUMENTS)
    fields: dict[str, Any] = field(default_factory=dict)
    """Of the Snapshot, where they are to be others."""
    now_s: float = 1000.0
    sequence: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.record = Record(incumbent=START, started_at_s=self.now_s)
        self.scrapes: list[tuple[float, dict[str, tuple[int, int]]]] = []
        self.counts = dict.fromkeys(self.rates_rps, (0, 0))
        self.served: list[tuple[float, Knobs]] = []

    def pass_time(self, seconds: float = TICK_S) -> None:
        """Serve for a while."""
        for _ in range(round(seconds)):
            self.now_s += 1
            self.served.append((self.now_s, self.record.in_force))
            for name, rate_rps in self.rates_rps.items():
                met, ended = self.counts[name]
                for _ in range(10):
                    if self.random.random() < rate_rps / 10:
                        ended += 1
                        met += self.random.random() < self.attainment(self.record.in_force, name, self.now_s)
                self.counts[name] = (met, ended)
            if self.now_s % SCRAPE_S == self.scrape_phase_s:
                self.scrapes.append((self.now_s, dict(self.counts)))

    def snapshot(self) -> Snapshot:
        """Return what an operator sees now."""
        self.sequence += 1
        knobs = self.record.in_force
        pod_knobs = PodKnobs(
            generation=knobs.generation,
            token_budget=knobs.token_budget,
            chunk_size=knobs.prefill_heavy_chunk,
            running_sequences=knobs.running_sequences,
        )
        seen: dict[str, Any] = {
            "uid": "plant",
            "namespace": "default",
            "name": "plant",
            "generation": 1,
            "sequence": self.sequence,
            "now_s": self.now_s,
            "mode": "Auto",
            "objectives": self.objectives,
            "ranges": RANGES,
            "window_s": 10.0,
            "exploration_budget_percent": 50,
            "starting": START,
            "record": self.record,
            "pods": tuple(
                PodSeen(name=name, ready=True, since_s=0.0, accepted=pod_knobs, enforced=pod_knobs)
                for name in ("engine-0", "engine-1")
            ),
            "telemetry": self.telemetry(),
        }
        return Snapshot(**{**seen, **self.fields})

    def telemetry(self) -> Telemetry:
        """Return the readings since the knobs in force have settled, and since a candidate's push."""
        record = self.record
        grown = self._grown(record.settled_at_s)
        return Telemetry(
            **dict(self._readings(record.settled_at_s)),
            unsettled=self._readings(record.started_at_s) if record.trying else None,
            missed={BINDING[name]: whole - part for name, (part, whole) in grown.items() if name in BINDING},
        )

    def _since(self, from_s: float) -> list[tuple[float, dict[str, tuple[int, int]]]]:
        return [scrape for scrape in self.scrapes if scrape[0] >= from_s]

    def _grown(self, from_s: float) -> dict[str, tuple[int, int]]:
        """Return how many requests met, and how many ended."""
        scrapes = self._since(from_s)
        if len(scrapes) < 2:
            return {}
        first, last = scrapes[0][1], scrapes[-1][1]
        names = (objective.name for objective in self.objectives)
        return {name: (last[name][0] - first[name][0], last[name][1] - first[name][1]) for name in names}

    def _readings(self, from_s: float) -> Readings:
        scrapes, grown = self._since(from_s), self._grown(from_s)
        if not grown:
            none = TooFewSamples(samples=0, age_s=0) if self.scrapes else Missing()
            names = [objective.name for objective in self.objectives]
            return Readings(attainment=none, objectives=dict.fromkeys(names, none), goodput_rps=none)
        met, ended = (sum(each[place] for each in grown.values()) for place in (0, 1))
        from_s, to_s = scrapes[0][0], scrapes[-1][0]
        return Readings(
            from_s=from_s,
            to_s=to_s,
            attainment=_reading(met / max(1, ended), ended),
            objectives={name: _reading(part / max(1, whole), whole) for name, (part, whole) in grown.items()},
            goodput_rps=_reading(met / (to_s - from_s), ended),
        )

    def apply(self, decision: Decision) -> None:
        """Put a decision on record and in force."""
        self.record = decision.record

    def true_score(self, knobs: Knobs, at_s: float = 0.0) -> float:
        """Return the share of all requests that are met under knobs."""
        total = sum(self.rates_rps.values())
        return sum(self.attainment(knobs, name, at_s) * rate for name, rate in self.rates_rps.items()) / total


def _reading(value: float, samples: int) -> Reading:
    if samples == 0:
        return Idle(age_s=1.0)
    return Value(value=value, samples=samples, age_s=1.0) if samples >= 5 else TooFewSamples(samples=samples, age_s=1.0)
