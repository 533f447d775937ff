"""Cancels and faults in an engine: requests end as soon as they are where that is hardest to get right."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from cancel_tally import Tally
from leaks import leaks
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_engine.engine import Engine, EngineOptions
from leeway_engine.messages import GenerationRequest, Sampling, TokenEvent
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.weights import load_decoder
from leeway_engine.runner import Drawn, Flight
from leeway_engine.scheduling.move import Move
from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.request import FinishReason, Request, State
from serving import tiny_model

BLOCK_SIZE = 8
LENGTHS = (3, 8, 17, 24, 31, 40)
OUTPUT = (2, 24)
ALIVE, DOOMED_SHARE, IN_FLIGHT_SHARE = 8, 0.7, 0.4
MOST_REQUESTS = 200
"""For each cancel, until one comes to the border."""
GREEDY = Sampling(temperature=0)


class Questions:
    """A model, prompts that partly begin alike, and what the model says to each of them when it is alone."""

    def __init__(self, folder: Path) -> None:
        """Make the model in a new folder."""
        self.decoder: Decoder = load_decoder(tiny_model(folder, context=128), torch.float64)
        draw = random.Random(1)
        common = [draw.randrange(256) for _ in range(LENGTHS[-1])]
        own = [[draw.randrange(256) for _ in range(length)] for length in LENGTHS]
        self.prompts = own + [common[:length] for length in LENGTHS[2:]]
        self.answers = [self._alone(prompt) for prompt in self.prompts]
        distinct = {token for answer in self.answers for token in answer}
        assert len(distinct) >= 8, f"the model says too little to tell right from wrong: {distinct}"

    def engine(self, *, plan_ahead: bool = False, **options: int) -> Engine:
        """Make an engine on whose clock no time passes, so that moving blocks is never slower than computing them."""
        limits = {"token_budget": 32, "chunk_size": 32, "running_sequences": 6}
        knobs = PodKnobs(generation=1, **{name: options.pop(name, limit) for name, limit in limits.items()})
        settings = {"kv_blocks": 64, "block_size": BLOCK_SIZE, **options}
        made = EngineOptions(knobs=knobs, ceilings=Ceilings(**limits), plan_ahead=plan_ahead, **settings)
        return Engine(self.decoder, made, lambda: 0.0)

    def _alone(self, prompt: Sequence[int]) -> list[int]:
        engine = self.engine()
        engine.add(GenerationRequest("alone", prompt, OUTPUT[1], GREEDY))
        tokens: list[int] = []
        while engine.has_work:
            tokens += [token for event in engine.step() for token in event.token_ids]
        return tokens


class ZombieWatch:
    """Counts what an engine launches for requests whose end its scheduler has heard of."""

    def __init__(self, engine: Engine, before: Callable[[Plan], None] = lambda _: None) -> None:
        """Also call `before` with each plan when it is launched."""
        self.steps: Counter[str] = Counter()
        self._before = before
        self._launch = engine._runner.launch
        engine._runner.launch = self._watched

    def _watched(self, plan: Plan) -> Flight:
        requests = [*plan.decodes, *(chunk.request for chunk in plan.prefills)]
        self.steps.update(request.request_id for request in requests if request.state is State.FINISHED)
        self._before(plan)
        return self._launch(plan)


class Faults:
    """Makes some iterations of an engine fail, never one after the other."""

    SHARE = 0.08

    def __init__(self, engine: Engine, draw: random.Random) -> None:
        """Begin with a good one."""
        self._draw = draw
        self._failed = self._unrun = False
        self._launch, self._collect = engine._runner.launch, engine._runner.collect
        self._move = engine._cache.move
        engine._runner.launch = self._launched
        engine._runner.collect = self._collected
        engine._cache.move = self._moved

    def _fails(self) -> bool:
        self._failed = not self._failed and self._draw.random() < self.SHARE
        return self._failed

    def _moved(self, moves: Sequence[Move]) -> None:
        if self._fails():
            raise RuntimeError("a move fails")
        self._move(moves)

    def _launched(self, plan: Plan) -> Flight:
        if not self._fails():
            return self._launch(plan)
        match self._draw.choice(("before", "after", "unrun")):
            case "before":
                raise RuntimeError("a forward pass fails before it writes anything")
            case "after":
                self._launch(plan)
                raise RuntimeError("a forward pass fails after all is written")
        # Nothing is written, but that shows only when the tokens are waited for, as on a device that works by itself.
        self._unrun = True
        none = np.zeros(0, np.int64)
        return Flight([], torch.zeros((0, 0)), none, none, "eager")

    def _collected(self, flight: Flight) -> list[Drawn]:
        if self._unrun:
            self._unrun = False
            raise RuntimeError("a forward pass turns out to have failed")
        return self._collect(flight)


@dataclass(frozen=True, slots=True)
class Border:
    """Where a request is when it is cancelled, and settings with which many come there."""

    name: str
    reached: Callable[[Request, int], bool]
    """Told the request and the iterations so far."""
    options: dict[str, int]


def _decodes(request: Request) -> bool:
    return request.state is State.DECODING


def _prefills(request: Request) -> bool:
    return request.state is State.PREFILLING


_SCARCE = {"kv_blocks": 14, "chunk_size": 16}
_SWAP = {**_SCARCE, "swap_blocks": 14}
BORDERS = (
    Border("at its arrival", lambda r, _: r.state is State.WAITING, {}),
    Border("in the queue", lambda r, n: r.state is State.WAITING and n > r.arrival_iteration, {"running_sequences": 2}),
    Border("between chunks", lambda r, _: _prefills(r) and r.prefilled > 0 and not r.generated, {"chunk_size": 5}),
    Border("in decode", lambda r, _: _decodes(r) and r.generated >= 3, {}),
    Border("beside others with its prefix", lambda r, _: _decodes(r) and r.cached > 0, {}),
    Border("preempted for recompute", lambda r, _: r.state is State.PREEMPTED and not r.swapped, _SCARCE),
    Border("computed again", lambda r, _: _prefills(r) and r.generated > 0, {**_SCARCE, "chunk_size": 3}),
    Border("swapped out", lambda r, _: bool(r.swapped), _SWAP),
    Border("swapped in", lambda r, _: _decodes(r) and r.admissions > 1, _SWAP),
    Border("before its last iteration", lambda r, _: _decodes(r) and r.generated == r.max_tokens - 1, {}),
)


def label(border: str, *, plan_ahead: bool) -> str:
    """Name of a border in an engine that plans ahead or does not."""
    return f"{border}, planned ahead" if plan_ahead else border


class EngineStorm:
    """Keeps an engine full of requests, most of which are cancelled at one border.

    Where the engine plans ahead, cancels also come while an iteration runs, before and after the next is planned.
    """

    def __init__(
        self, questions: Questions, border: Border, cancels: int, *, faults: bool = False, plan_ahead: bool = False
    ) -> None:
        """Begin with an engine of its own; with `faults`, some of its iterations fail."""
        self._plan_ahead = plan_ahead
        self._questions = questions
        self._border = border
        self._cancels = cancels
        self._engine = questions.engine(plan_ahead=plan_ahead, **border.options)
        if faults:
            Faults(self._engine, random.Random(f"faults {border.name}"))
        self._watch = ZombieWatch(self._engine)
        self._tally = Tally(label(border.name, plan_ahead=plan_ahead))
        self._draw = random.Random(self._tally.border)
        self._asked: dict[str, tuple[int, int]] = {}
        """Prompt and output length of each request."""
        self._doomed: set[str] = set()
        self._answers: dict[str, list[int]] = {}
        """Of those that go on."""
        self._bills: list[tuple[Request, float]] = []
        """What the tenant of each cancelled request that has one to itself owed when it was cancelled."""

    def run(self) -> Tally:
        """Cancel so many, let the others end, and look at what is left."""
        while self._tally.cancels < self._cancels or self._answers:
            if self._tally.cancels < self._cancels:
                assert len(self._asked) < MOST_REQUESTS * self._cancels, f"too few requests come {self._border.name}"
                self._fill()
            self._cancel()
            for event in self._step():
                self._hear(event)
            self._look()
        self._tally.faults += [
            f"{request.request_id}: its tenant paid after the cancel"
            for request, owed in self._bills
            if request.account.counter != owed
        ]
        self._tally.leaked_blocks = leaks(self._engine)
        self._tally.zombie_steps_max = max(self._watch.steps.values(), default=0)
        return self._tally

    def _step(self) -> list[TokenEvent]:
        engine = self._engine
        if not self._plan_ahead:
            return engine.step()
        if engine._next is None:
            engine.plan()
        engine.launch()
        self._cancel_some()
        engine.plan()
        self._cancel_some()
        return engine.collect()

    def _cancel_some(self) -> None:
        """Leave as many to be cancelled at the moments to come."""
        if self._draw.random() < IN_FLIGHT_SHARE:
            self._cancel()

    def _fill(self) -> None:
        while len(self._answers) < ALIVE:
            name, place = str(len(self._asked)), self._draw.randrange(len(self._questions.prompts))
            self._asked[name] = place, self._draw.randint(*OUTPUT)
            self._answers[name] = []
            if self._draw.random() < DOOMED_SHARE:
                self._doomed.add(name)
            # A tenant for each second one, so that it shows who pays; the others find each other's prefixes.
            tenant = name if self._draw.random() < 0.5 else ""
            prompt, length = self._questions.prompts[place], self._asked[name][1]
            self._engine.add(GenerationRequest(name, prompt, length, GREEDY, tenant=tenant))

    def _cancel(self) -> None:
        scheduler = self._engine._scheduler
        for name in [name for name in self._answers if name in self._doomed]:
            request = scheduler.running.get(name) or scheduler.waiting.get(name)
            if request is None:
                assert self._plan_ahead, f"{name} ended unheard"
                continue  # its last token is in flight
            if self._tally.cancels < self._cancels and self._border.reached(request, scheduler.iterations):
                self._engine.cancel(name)
                self._engine.cancel(name)
                if request.account.tenant:
                    self._bills.append((request, request.account.counter))
                del self._answers[name]
                self._tally.cancels += 1

    def _look(self) -> None:
        """See that free and held blocks are all, whatever has just happened."""
        scheduler = self._engine._scheduler
        held = {block for request in scheduler.running.values() for block in request.blocks}
        if scheduler.pool.free + len(held) != scheduler.pool.total:
            self._tally.faults.append("free and held blocks are not all")
        swapped = [block for request in scheduler.waiting.values() for block in request.swapped]
        if scheduler.kv.host.free + len(swapped) != scheduler.kv.host.total:
            self._tally.faults.append("free and held blocks of the host are not all")

    def _hear(self, event: TokenEvent) -> None:
        name = event.request_id
        if name not in self._answers:
            self._tally.faults.append(f"{name} went on after its end")
            return
        if event.finish_reason is FinishReason.ERROR:
            del self._answers[name]
            self._tally.failures += 1
            return
        self._answers[name] += event.token_ids
        if event.finish_reason is not None:
            place, length = self._asked[name]
            if self._answers.pop(name) != self._questions.answers[place][:length]:
                self._tally.faults.append(f"{name}, who survived, says something else than alone")
            self._tally.survivors += 1
