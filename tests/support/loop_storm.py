"""Cancels that reach an engine loop while an iteration runs: sent by another thread through the loop's own channel."""

import queue
import random
import select
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
from cancel_tally import Tally
from engine_storm import ALIVE, DOOMED_SHARE, GREEDY, OUTPUT, Questions, ZombieWatch, label
from leaks import leaks
from leeway_engine.garbage import Garbage
from leeway_engine.messages import GenerationRequest, TokenEvent
from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.request import Request
from leeway_engine.server.channel import Add, Cancel, FromLoop, LoopChannel, Stepped, ToLoop, frame
from leeway_engine.server.loop import Loop
from leeway_engine.server.register import Register

PATIENCE_S = 60.0
_decode = msgspec.msgpack.Decoder(FromLoop).decode


@dataclass(frozen=True, slots=True)
class FlightBorder:
    """What the iteration that runs does for a request when its cancel comes."""

    name: str
    reached: Callable[[Request, int], bool]
    """Told the request before the iteration, and its tokens in it."""
    chunk_size: int = 32


FLIGHT_BORDERS = (
    FlightBorder("chunk in flight", lambda r, tokens: r.computed + tokens < r.prompt_tokens, chunk_size=5),
    FlightBorder("first token in flight", lambda r, tokens: not r.generated and r.computed + tokens == r.known),
    FlightBorder("token in flight", lambda r, _: 2 <= r.generated < r.max_tokens - 1),
    FlightBorder("last token in flight", lambda r, _: r.generated == r.max_tokens - 1),
)


@dataclass(slots=True)
class _Call:
    """A request as its client sees it."""

    place: int
    length: int
    doomed: bool
    tokens: list[int] = field(default_factory=list)
    last_token: int | None = None
    """Number of the token that the iteration gives in which it was cancelled."""


class LoopStorm:
    """Plays the API process to a loop in a thread of its own."""

    def __init__(self, questions: Questions, border: FlightBorder, cancels: int, *, plan_ahead: bool = False) -> None:
        """Begin with an engine of its own."""
        self._questions = questions
        self._border = border
        self._cancels = cancels
        self._engine = questions.engine(plan_ahead=plan_ahead, chunk_size=border.chunk_size)
        self._watch = ZombieWatch(self._engine, self._hold)
        self._tally = Tally(label(border.name, plan_ahead=plan_ahead))
        self._draw = random.Random(self._tally.border)
        self._sock, self._theirs = socket.socketpair()
        self._incoming = b""
        self._calls: dict[str, _Call] = {}
        self._alive: set[str] = set()
        self._reached: queue.SimpleQueue[dict[str, int]] = queue.SimpleQueue()
        """For each iteration that waits, the requests to cancel and how many tokens they have."""
        self._go_on = threading.Semaphore(0)
        self._idle = False

    def run(self) -> Tally:
        """Cancel so many, let the others end, and look at what is left."""
        registers = Register.create(), Register.create()
        loop = Loop(self._engine, LoopChannel(self._theirs), *registers, Garbage())
        thread = threading.Thread(target=loop.run)
        thread.start()
        try:
            while self._tally.cancels < self._cancels or self._alive or not self._idle:
                if self._tally.cancels < self._cancels:
                    self._fill()
                self._cancel()
                self._listen()
        finally:
            # The loop ends with the channel.
            self._sock.shutdown(socket.SHUT_RDWR)
            self._go_on.release(1_000_000)
            thread.join(PATIENCE_S)
            for end in (self._sock, self._theirs, *registers):
                end.close()
        self._tally.leaked_blocks = leaks(self._engine)
        self._tally.zombie_steps_max = max(self._watch.steps.values(), default=0)
        return self._tally

    def _hold(self, plan: Plan) -> None:
        """In the loop's thread: an iteration with requests that are to be cancelled in it waits until they are."""
        planned = [(request, 1) for request in plan.decodes] + list(plan.prefills)
        names = {
            request.request_id: request.generated
            for request, tokens in planned
            if self._goes(self._calls[request.request_id]) and self._border.reached(request, tokens)
        }
        if names:
            self._reached.put(names)
            assert self._go_on.acquire(timeout=PATIENCE_S)

    @staticmethod
    def _goes(call: _Call) -> bool:
        return call.doomed and call.last_token is None

    def _fill(self) -> None:
        while len(self._alive) < ALIVE:
            name, place = str(len(self._calls)), self._draw.randrange(len(self._questions.prompts))
            call = _Call(place, self._draw.randint(*OUTPUT), self._draw.random() < DOOMED_SHARE)
            self._calls[name] = call
            self._alive.add(name)
            self._send(Add(GenerationRequest(name, self._questions.prompts[place], call.length, GREEDY)))

    def _cancel(self) -> None:
        with suppress(queue.Empty):
            for name, generated in self._reached.get_nowait().items():
                self._send(Cancel(name))
                self._calls[name].last_token = generated + 1
                self._alive.discard(name)
                self._tally.cancels += 1
            self._go_on.release()

    def _send(self, message: ToLoop) -> None:
        self._idle = False
        self._sock.sendall(frame(message))

    def _listen(self) -> None:
        if not select.select([self._sock], [], [], 0.0005)[0]:
            return
        self._incoming += self._sock.recv(1 << 18)
        while len(self._incoming) >= 4:
            (length,) = struct.unpack_from("<I", self._incoming)
            if len(self._incoming) < 4 + length:
                return
            message, self._incoming = _decode(self._incoming[4 : 4 + length]), self._incoming[4 + length :]
            if isinstance(message, Stepped):
                self._idle = message.stats.running + message.stats.waiting == 0
                for event in message.events:
                    self._hear(event)

    def _hear(self, event: TokenEvent) -> None:
        name = event.request_id
        call = self._calls[name]
        if call.last_token is not None:
            # The iteration that ran when the cancel came may still give its token, and none after it.
            if event.output_tokens > call.last_token:
                self._tally.faults.append(f"{name} went on after its end")
            return
        call.tokens += event.token_ids
        if event.finish_reason is not None:
            self._alive.discard(name)
            self._tally.survivors += 1
            if call.tokens != self._questions.answers[call.place][: call.length]:
                self._tally.faults.append(f"{name}, who survived, says something else than alone")
