"""When a pod is not ready as its engine does no work, and when its loop is ended."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway_engine.messages import EngineStats, GenerationRequest, TokenEvent
from leeway_engine.scheduling.request import FinishReason
from leeway_engine.server.channel import FromLoop, Rejected, Stepped, frame
from leeway_engine.server.engine_process import EngineProcess
from leeway_engine.server.watchdog import Progress, Watchdog

BUSY = Progress(in_flight=2, messages=10, iterations=10, tokens=100)


def watchdog() -> Watchdog:
    return Watchdog(unready_after_s=30, kill_after_s=120, longest_look_s=2)


def watch(dog: Watchdog, *progress: Progress, start_s: float = 0.0) -> None:
    """Look once a second."""
    for second, seen in enumerate(progress):
        dog.look(seen, start_s + second)


def test_a_loop_that_falls_silent_makes_the_pod_unready_and_is_ended_later() -> None:
    dog = watchdog()
    watch(dog, *[BUSY] * 30)
    assert dog.reason is None
    watch(dog, BUSY, start_s=30)
    assert dog.reason is not None
    assert "said nothing for 30 s with 2 requests in flight" in dog.reason
    assert "ended after 120 s" in dog.reason
    watch(dog, *[BUSY] * 89, start_s=31)
    assert not dog.hopeless
    watch(dog, BUSY, start_s=120)
    assert dog.hopeless


def test_a_loop_that_steps_without_scheduling_makes_the_pod_unready_and_is_not_ended() -> None:
    dog = watchdog()
    watch(dog, *[BUSY._replace(messages=10 + second, iterations=10 + second) for second in range(200)])
    assert dog.reason == "the engine has scheduled nothing for 199 s with 2 requests in flight"
    assert not dog.hopeless


def test_a_loop_that_talks_without_stepping_makes_the_pod_unready_and_is_not_ended() -> None:
    dog = watchdog()
    watch(dog, *[BUSY._replace(messages=10 + second) for second in range(30)])
    assert dog.reason is None
    watch(dog, *[BUSY._replace(messages=10 + second) for second in range(30, 200)], start_s=30)
    assert dog.reason == "the engine has scheduled nothing for 199 s with 2 requests in flight"
    assert not dog.hopeless


def test_a_loop_that_only_refuses_what_comes_does_its_work() -> None:
    dog = watchdog()
    for second in range(200):
        dog.look(BUSY._replace(messages=10 + second, ended=second), float(second))
        assert dog.reason is None, second


def test_a_token_makes_the_pod_ready_again() -> None:
    dog = watchdog()
    watch(dog, *[BUSY] * 60)
    assert dog.reason
    watch(dog, BUSY._replace(messages=11, iterations=11, tokens=102), start_s=60)
    assert dog.reason is None


def test_an_idle_loop_may_be_silent_and_a_request_starts_the_count_anew() -> None:
    dog = watchdog()
    idle = BUSY._replace(in_flight=0)
    watch(dog, *[idle] * 300)
    assert dog.reason is None
    watch(dog, *[BUSY] * 30, start_s=300)
    assert dog.reason is None
    watch(dog, BUSY, start_s=330)
    assert dog.reason


def test_long_iterations_are_work() -> None:
    dog = watchdog()
    for second in range(600):
        done = second // 25
        dog.look(BUSY._replace(messages=done, iterations=done, tokens=done * 500), float(second))
        assert dog.reason is None, second


def test_the_time_in_which_nobody_looked_is_not_the_loops() -> None:
    dog = watchdog()
    watch(dog, *[BUSY] * 10)
    dog.look(BUSY, 5000.0)
    assert dog.reason is None


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2), st.floats(0, 10)), min_size=1, max_size=200
    )
)
def test_it_never_bites_before_its_bounds_of_looked_at_time(looks: list[tuple[int, int, int, float]]) -> None:
    dog = watchdog()
    now_s = silent_s = 0.0
    seen = Progress()
    for in_flight, messages, tokens, pause_s in looks:
        now_s += pause_s
        before = seen
        seen = Progress(in_flight, seen.messages + messages, seen.iterations + messages, seen.tokens + tokens)
        dog.look(seen, now_s)
        silent_s = silent_s + pause_s if in_flight and before.in_flight and not messages else 0.0
        if dog.hopeless:
            assert silent_s >= 120
        if not in_flight:
            assert dog.reason is None


@pytest.mark.parametrize("messages", [0, 1])
def test_a_lost_request_counts_by_what_the_loop_says(messages: int) -> None:
    dog = watchdog()
    watch(dog, *[BUSY._replace(messages=second * messages) for second in range(121)])
    assert dog.hopeless == (messages == 0)


def test_an_answer_that_only_its_client_has_still_to_take_is_not_in_flight() -> None:
    async def run() -> None:
        engine = EngineProcess(lambda _: None)
        engine.died.set()
        with engine.stream(GenerationRequest("a", (1,), 1)) as stream:
            assert stream.ended
            assert (engine.idle.is_set(), engine.progress().in_flight) == (False, 0)

    asyncio.run(run())


def test_what_the_loop_refuses_and_ends_is_progress() -> None:
    def told(*events: TokenEvent) -> Stepped:
        return Stepped(list(events), EngineStats(0, 0, 0, 0, 0, 7, 500, 30, 0))

    messages: list[FromLoop] = [
        Rejected("a", "queue_full", "full", 1.0),
        told(TokenEvent("b", (1,), None, 1, 1), TokenEvent("c", (1,), FinishReason.STOP, 1, 1)),
        told(TokenEvent("b", (), FinishReason.ERROR, 1, 1)),
    ]

    async def run() -> Progress:
        engine = EngineProcess(lambda _: None)
        reader = asyncio.StreamReader()
        reader.feed_data(b"".join(frame(message) for message in messages))
        reader.feed_eof()
        await engine._receive(reader)
        return engine.progress()

    assert asyncio.run(run()) == Progress(messages=3, iterations=7, tokens=530, ended=3)
