"""The engine loop between its API process and its engine, here one that only counts."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from leeway_core.pod_knobs import Ceilings, KnobsReply, PodKnobs
from leeway_engine.garbage import Garbage
from leeway_engine.messages import EngineStats, GenerationRequest, TokenEvent
from leeway_engine.request_event import RequestEvent
from leeway_engine.scheduling.request import FinishReason, RequestRejected
from leeway_engine.server.channel import (
    Add,
    Cancel,
    FromLoop,
    LoopChannel,
    Rejected,
    Stepped,
    Stop,
    ToLoop,
    Wake,
    frame,
)
from leeway_engine.server.knobs_answer import KnobsAnswer
from leeway_engine.server.loop import Loop
from leeway_engine.server.register import Register

CEILINGS = Ceilings(token_budget=100, chunk_size=100, running_sequences=10)


def knobs(generation: int) -> PodKnobs:
    return PodKnobs(generation=generation, token_budget=100, chunk_size=100, running_sequences=10)


class CountingEngine:
    """Gives each request a token a step; a step waits until the test lets it go on."""

    def __init__(self) -> None:
        self.left: dict[str, int] = {}
        self.late: list[str] = []
        self.stopped: list[str] = []
        self.events: list[RequestEvent] = []
        self.kept = 0
        self.accepted = self.enforced = knobs(1)
        self.steps = 0
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)

    @property
    def has_work(self) -> bool:
        return bool(self.left)

    def add(self, request: GenerationRequest) -> None:
        if request.max_tokens > 1_000_000:
            raise RequestRejected("kv_exceeded", "too long")
        if not request.prompt_token_ids:
            raise IndexError("a request that the engine cannot take")
        self.left[request.request_id] = request.max_tokens
        self.events.append(RequestEvent(1.0, request.request_id, "arrived", "waiting", 2, request.max_tokens))
        self.late += [request.request_id] * (request.deadline_s is not None)

    def cancel(self, request_id: str) -> None:
        self.left.pop(request_id, None)

    def stop(self, request_id: str) -> None:
        self.stopped.append(request_id)
        if self.left.pop(request_id, None):
            self.kept += 1

    @property
    def tool_waits_end_in_s(self) -> float | None:
        return 0.05 if self.kept else None

    def end_tool_waits(self) -> None:
        self.kept = 0

    def set_knobs(self, new: PodKnobs) -> KnobsReply:
        self.accepted = new
        return self.knobs()

    def knobs(self) -> KnobsReply:
        return KnobsReply(accepted=self.accepted, enforced=self.enforced, ceilings=CEILINGS)

    def step(self, before_plan: Callable[[], None]) -> list[TokenEvent]:
        self.steps += 1
        self.plan(before_plan)
        self.begun.release()
        assert self.go_on.acquire(timeout=20)
        events = [TokenEvent(request_id, (), FinishReason.REJECTED, 1, 0) for request_id in self.late]
        for request_id in self.late:
            del self.left[request_id]
        self.late.clear()
        for request_id in list(self.left):
            self.left[request_id] -= 1
            over = not self.left[request_id]
            events.append(TokenEvent(request_id, (65,), FinishReason.LENGTH if over else None, 1, 1))
            if over:
                del self.left[request_id]
        return events

    def take_events(self) -> list[RequestEvent]:
        events, self.events = self.events, []
        return events

    def plan(self, before_plan: Callable[[], None]) -> None:
        before_plan()
        self.enforced = self.accepted

    def stats(self) -> EngineStats:
        return EngineStats(len(self.left), 0, 0, 0, 0, self.steps, 0, 0, 0, tool_waits=self.kept)


class AheadEngine(CountingEngine):
    """Plans the next step while one runs."""

    def plan(self, before_plan: Callable[[], None]) -> None:
        for _ in range(1 if self.steps > 1 else 2):
            super().plan(before_plan)


class ApiSide:
    """The other end of a running loop."""

    def __init__(self, engine: CountingEngine) -> None:
        self.engine = engine
        self.sock, theirs = socket.socketpair()
        self.sock.settimeout(20)
        self.accepted, self.enforced = Register.create(), Register.create()
        loop: Any = Loop
        self._thread = threading.Thread(
            target=lambda: loop(engine, LoopChannel(theirs), self.accepted, self.enforced, Garbage()).run()
        )
        self._theirs = theirs
        self._thread.start()

    def send(self, *messages: ToLoop) -> None:
        self.sock.sendall(b"".join(map(frame, messages)))

    def receive(self) -> FromLoop:
        (length,) = struct.unpack("<I", self._exactly(4))
        message: FromLoop = msgspec.msgpack.decode(self._exactly(length), type=FromLoop)
        return message

    def step(self) -> Stepped:
        """Let one step go on and return what it told."""
        self.engine.go_on.release()
        message = self.receive()
        while not (isinstance(message, Stepped) and message.stats.iterations):
            message = self.receive()
        return message

    def record(self, generation: int) -> None:
        """Leave knobs for the loop, as the API process does."""
        self.accepted.write(knobs(generation).model_dump_json(by_alias=True).encode())

    def push(self, generation: int) -> int:
        """Leave knobs, and return the plans made by then."""
        self.record(generation)
        return self.answer().plans

    def answer(self) -> KnobsAnswer:
        return KnobsAnswer.model_validate_json(self.enforced.read())

    def close(self) -> None:
        self.sock.close()
        self.engine.go_on.release(1000)
        self._thread.join(20)
        assert not self._thread.is_alive()
        self._theirs.close()
        self.accepted.close()
        self.enforced.close()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.sock.recv(size - len(data))
            assert part
            data += part
        return data


@contextmanager
def running_loop(engine: CountingEngine | None = None) -> Iterator[ApiSide]:
    side = ApiSide(engine or CountingEngine())
    try:
        yield side
    finally:
        side.close()


def add(request_id: str, max_tokens: int) -> Add:
    return Add(GenerationRequest(request_id, (1, 2), max_tokens))


def test_requests_get_their_tokens_and_end() -> None:
    with running_loop() as side:
        side.send(add("a", 2))
        first, second = side.step(), side.step()
    assert [event.finish_reason for event in (*first.events, *second.events)] == [None, FinishReason.LENGTH]


def test_what_happened_to_requests_is_handed_over_once_beside_the_tokens() -> None:
    with running_loop() as side:
        side.send(add("a", 2))
        first, second = side.step(), side.step()
    assert (first.log, second.log) == ([RequestEvent(1.0, "a", "arrived", "waiting", 2, 2)], [])


def test_a_refused_request_is_told_so_and_others_go_on() -> None:
    with running_loop() as side:
        side.send(add("endless", 2_000_000), add("a", 1))
        assert side.receive() == Rejected("endless", "kv_exceeded", "too long")
        assert [event.request_id for event in side.step().events] == ["a"]


def test_a_request_that_the_engine_fails_to_take_ends_with_an_error_and_others_go_on() -> None:
    with running_loop() as side:
        side.send(Add(GenerationRequest("odd", (), 5)), add("a", 1))
        events = side.step().events
    assert [(event.request_id, event.finish_reason) for event in events] == [
        ("odd", FinishReason.ERROR),
        ("a", FinishReason.LENGTH),
    ]


def test_a_request_given_up_for_its_deadline_is_told_so_and_others_go_on() -> None:
    with running_loop() as side:
        side.send(Add(GenerationRequest("late", (1, 2), 5, deadline_s=0.0)), add("a", 1))
        side.engine.go_on.release()
        refusal = side.receive()
        assert isinstance(refusal, Rejected)
        assert (refusal.request_id, refusal.code, refusal.retry_after_s) == ("late", "deadline_unreachable", 1.0)
        stepped = side.receive()
        assert isinstance(stepped, Stepped)
        assert [event.request_id for event in stepped.events] == ["a"]


def test_a_cancel_takes_effect_before_the_next_step_and_shows_without_one() -> None:
    with running_loop() as side:
        side.send(add("a", 100))
        assert side.engine.begun.acquire(timeout=20)
        side.send(Cancel("a"))
        side.step()
        message = side.receive()
        assert isinstance(message, Stepped)
        assert (message.stats.running, side.engine.steps) == (0, 1)


def test_how_late_a_cancel_was_heard_is_told_once() -> None:
    with running_loop() as side:
        side.send(add("a", 100), add("b", 100))
        assert side.engine.begun.acquire(timeout=20)
        side.send(Cancel("a", time.monotonic() - 5.0), Cancel("unknown"))
        assert side.step().cancel_delays_s == []
        (delay_s,) = side.step().cancel_delays_s
        assert 5.0 <= delay_s < 60.0
        assert side.step().cancel_delays_s == []


def test_a_stop_is_no_cancel_and_an_idle_loop_lets_go_in_time_of_what_it_keeps() -> None:
    with running_loop() as side:
        side.send(add("a", 100))
        assert side.engine.begun.acquire(timeout=20)
        side.send(Stop("a"))
        side.step()
        stopped, later = side.receive(), side.receive()
        assert isinstance(stopped, Stepped)
        assert isinstance(later, Stepped)
        assert (stopped.stats.running, side.engine.stopped, stopped.cancel_delays_s) == (0, ["a"], [])
        assert (stopped.stats.tool_waits, later.stats.tool_waits) == (1, 0)


def test_knobs_written_during_a_step_hold_for_the_next_one_and_the_last_write_wins() -> None:
    with running_loop() as side:
        side.send(add("a", 100))
        assert side.engine.begun.acquire(timeout=20)
        plans = [side.push(generation) for generation in range(2, 600)]
        assert side.answer().enforced.generation == 1
        side.step()
        assert side.engine.begun.acquire(timeout=20)
        side.step()
        assert side.engine.enforced.generation == 599
        assert side.answer().enforced_since_plan - plans[-1] == 1


def test_where_plans_are_made_ahead_knobs_hold_for_the_next_plan_too() -> None:
    with running_loop(AheadEngine()) as side:
        side.send(add("a", 100))
        for generation in range(2, 6):
            assert side.engine.begun.acquire(timeout=20)
            plans = side.push(generation)
            assert plans == side.engine.steps + 1, "the step that runs and the next one are planned"
            side.step()
            assert side.engine.begun.acquire(timeout=20)
            side.step()
            answer = side.answer()
            assert (answer.enforced.generation, answer.enforced_since_plan) == (generation, plans + 1)


def test_an_idle_loop_takes_knobs_too() -> None:
    with running_loop() as side:
        side.record(2)
        side.send(Wake())
        message = side.receive()
        assert isinstance(message, Stepped)
        assert (side.engine.accepted.generation, side.engine.steps) == (2, 0)


def test_an_api_process_that_does_not_listen_holds_no_step_up() -> None:
    with running_loop() as side:
        side.send(add("a", 3000), add("b", 3000))
        side.engine.go_on.release(3000)
        for _ in range(3000):
            assert side.engine.begun.acquire(timeout=20)
        tokens = 0
        while tokens < 6000:
            message = side.receive()
            assert isinstance(message, Stepped)
            tokens += len(message.events)


def test_a_register_holds_the_last_value() -> None:
    register = Register.create()
    assert register.read() == b""
    for value in (b"long value", b"short", b""):
        register.write(value)
        assert register.read() == value
    register.close()


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5])
def test_messages_come_whole_however_they_are_cut(size: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = LoopChannel(theirs)
        data = frame(Cancel("a")) + frame(Cancel("b"))
        ours.sendall(data[:size])
        assert channel.receive() == []
        ours.sendall(data[size:])
        assert channel.receive() == [Cancel("a"), Cancel("b")]
        ours.close()
        with pytest.raises(EOFError):
            channel.receive()
