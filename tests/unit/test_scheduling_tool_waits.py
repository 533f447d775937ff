"""What waits for a tool keeps its KV until what goes on from it is there, its time is over, or others need it."""

import random

from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_core.policies import Growth, Policies
from leeway_engine.scheduling.block_keys import KeySpace
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.request import FinishReason, Request, State
from leeway_engine.scheduling.scheduler import Scheduler
from leeway_engine.scheduling.tool_waits import ToolWaits

SIZE = 4
CEILINGS = Ceilings(token_budget=256, chunk_size=256, running_sequences=8)


class Pod:
    """A scheduler, and what its requests say."""

    def __init__(self, blocks: int, running: int = 8, policies: Policies | None = None) -> None:
        knobs = PodKnobs(
            generation=1,
            token_budget=256,
            chunk_size=256,
            running_sequences=running,
            policies=policies or Policies(),
        )
        self.scheduler = Scheduler(BlockPool(blocks, SIZE), knobs, CEILINGS)
        self.now_s = 0.0

    def ask(self, name: str, text: list[int], output: int, wait_s: float = 0.0) -> Request:
        """Queue a request; its answer, should it be looked for later, is zeros."""
        keys: list[bytes] = []
        KeySpace(SIZE, model="m").extend(keys, text + [0] * output)
        return self.scheduler.add(name, len(text), output, arrival_s=self.now_s, tool_wait_s=wait_s, keys=keys)

    def iterate(self, times: int = 1) -> int:
        """Run some iterations, and return how many requests were preempted."""
        preempted = 0
        for _ in range(times):
            plan = self.scheduler.plan(self.now_s)
            preempted += len(plan.preempted)
            self.scheduler.complete(plan)
        return preempted

    def drain(self) -> None:
        while self.scheduler.running or self.scheduler.waiting:
            self.iterate()

    def serve(self, name: str, text: list[int], output: int, wait_s: float = 0.0) -> Request:
        request = self.ask(name, text, output, wait_s)
        self.drain()
        return request

    @property
    def waiting_for_tools(self) -> list[str]:
        return [request.request_id for request in self.scheduler.tool_waits]


def text(seed: int, length: int) -> list[int]:
    return [seed * 1000 + place for place in range(1, length + 1)]


def churn(pod: Pod, first: int) -> None:
    """Serve as many other prompts as fill the pool twice over."""
    for seed in range(first, first + 8):
        pod.serve(f"other {seed}", text(seed, 12), 2)


def test_what_goes_on_after_a_tool_finds_its_prefix_where_it_would_have_been_evicted() -> None:
    for wait_s, found in ((0.0, 0), (30.0, 20)):
        pod = Pod(blocks=12)
        first = pod.serve("agent", text(1, 16), 6, wait_s)
        assert first.state is (State.TOOL_WAIT if wait_s else State.FINISHED)
        assert first.finish_reason is FinishReason.LENGTH
        churn(pod, 2)
        assert pod.serve("agent goes on", text(1, 16) + [0] * 6 + text(9, 5), 2).cached == found
        assert pod.waiting_for_tools == []
        assert pod.scheduler.pool.free == 12


def test_it_is_kept_no_longer_than_was_asked_for() -> None:
    pod = Pod(blocks=12)
    request = pod.serve("agent", text(1, 16), 2, wait_s=30.0)
    assert pod.scheduler.tool_waits.next_end_s == 30.0
    pod.now_s = 29.9
    pod.serve("other", text(2, 4), 1)
    assert pod.waiting_for_tools == ["agent"]
    pod.now_s = 30.0
    pod.serve("another", text(3, 4), 1)
    assert (pod.waiting_for_tools, request.state, pod.scheduler.pool.free) == ([], State.FINISHED, 12)


def test_what_has_come_but_waits_in_the_queue_is_waited_for_anew() -> None:
    pod = Pod(blocks=16, running=1)
    pod.serve("agent", text(1, 16), 2, wait_s=30.0)
    pod.ask("long", text(2, 4), 20)
    pod.iterate()
    pod.now_s = 25.0
    follow_up = pod.ask("agent goes on", [*text(1, 16), 0, 0, 5], 2)
    pod.now_s = 50.0
    pod.iterate()
    assert pod.waiting_for_tools == ["agent"]
    pod.drain()
    assert follow_up.cached == 16


def test_a_request_of_the_same_prompt_is_no_follow_up() -> None:
    pod = Pod(blocks=16)
    pod.serve("agent", text(1, 16), 2, wait_s=30.0)
    pod.serve("same question", text(1, 16), 2)
    assert pod.waiting_for_tools == ["agent"]


def test_of_two_agents_with_one_prompt_each_goes_on_from_its_own_answer() -> None:
    pod = Pod(blocks=32)
    for name, answer in (("a", 5), ("b", 6)):
        keys: list[bytes] = []
        KeySpace(SIZE, model="m").extend(keys, text(1, 8) + [answer] * 9)
        pod.scheduler.add(name, 8, 9, tool_wait_s=30.0, keys=keys)
    pod.drain()
    pod.serve("b goes on", text(1, 8) + [6] * 9 + [7], 1)
    assert pod.waiting_for_tools == ["a"]


def test_an_answer_that_comes_back_in_another_form_is_known_by_its_prompt() -> None:
    pod = Pod(blocks=16)
    pod.serve("agent", text(1, 16), 6, wait_s=30.0)
    follow_up = pod.serve("goes on", text(1, 16) + text(4, 3), 2)
    assert (follow_up.cached, pod.waiting_for_tools) == (16, [])


def test_a_running_request_grows_into_what_is_kept_before_anything_is_preempted() -> None:
    pod = Pod(blocks=12)
    pod.serve("agent", text(1, 24), 2, wait_s=30.0)
    grows = pod.ask("grows", text(2, 4), 40)
    preempted = pod.iterate(45)
    assert (preempted, grows.finish_reason) == (0, FinishReason.LENGTH)
    assert pod.waiting_for_tools == []


def test_the_fewest_tokens_to_compute_again_give_way_first_and_no_more_than_must() -> None:
    pod = Pod(blocks=22)
    for name, length in (("long", 40), ("short", 8), ("middle", 16)):
        pod.serve(name, text(length, length), 2, wait_s=30.0)
    pod.serve("new", text(7, 28), 2)
    assert pod.waiting_for_tools == ["long", "middle"]


def test_nothing_gives_way_where_it_would_not_be_enough() -> None:
    pod = Pod(blocks=16, policies=Policies(growth=Growth(reserve="all")))
    pod.serve("agent", text(1, 16), 2, wait_s=30.0)
    pod.ask("runs", text(2, 20), 20)
    pod.iterate()
    large = pod.ask("large", text(3, 40), 2)
    pod.iterate()
    assert (large.state, pod.waiting_for_tools) == (State.WAITING, ["agent"])
    pod.drain()
    assert large.state is State.FINISHED


def test_an_agents_own_prefix_is_the_last_to_give_way_to_what_goes_on_from_it() -> None:
    pod = Pod(blocks=12)
    pod.serve("own", text(1, 8), 2, wait_s=30.0)
    pod.serve("other", text(2, 24), 2, wait_s=30.0)
    goes_on = pod.ask("goes on", text(1, 8) + text(3, 22), 2)
    pod.iterate()
    assert (goes_on.cached, goes_on.state, pod.waiting_for_tools) == (8, State.DECODING, [])


def test_even_an_own_prefix_gives_way_where_the_pod_could_not_go_on_otherwise() -> None:
    pod = Pod(blocks=12)
    pod.serve("own", text(1, 24), 16, wait_s=30.0)
    goes_on = pod.serve("goes on", text(1, 24) + text(3, 20), 2)
    assert (goes_on.cached, goes_on.state) == (24, State.FINISHED)


def test_what_was_stopped_keeps_its_kv_too_and_what_was_cancelled_does_not() -> None:
    pod = Pod(blocks=16)
    pod.ask("stopped", text(1, 8), 9, wait_s=30.0)
    pod.ask("cancelled", text(2, 8), 9, wait_s=30.0)
    pod.iterate(2)
    stopped, cancelled = pod.scheduler.stop("stopped"), pod.scheduler.cancel("cancelled")
    assert stopped is not None
    assert cancelled is not None
    assert (stopped.finish_reason, cancelled.state) == (FinishReason.STOP, State.FINISHED)
    assert pod.waiting_for_tools == ["stopped"]


def test_a_request_without_keys_keeps_nothing() -> None:
    pod = Pod(blocks=16)
    request = pod.scheduler.add("no keys", 16, 2, tool_wait_s=30.0)
    pod.drain()
    assert (request.state, pod.scheduler.pool.free) == (State.FINISHED, 16)


def test_of_many_that_begin_end_and_are_renewed_the_times_costs_and_blocks_are_those_of_a_look_at_all() -> None:
    draw, waits = random.Random(1), ToolWaits(SIZE)
    until_s: dict[Request, float] = {}
    for number in range(4000):
        now_s = number / 10
        if draw.random() < 0.6:
            length = draw.randrange(8, 40)
            keys = [f"{number} {place}".encode() for place in range(length // SIZE)]
            request = Request(str(number), length, 1, number, tool_wait_s=draw.choice((1.0, 30.0, 300.0)), keys=keys)
            request.computed, request.blocks = length, list(range(length // SIZE))
            waits.begin(request, now_s)
            until_s[request] = now_s + request.tool_wait_s
        known = draw.choice([None, *list(until_s)[-20:]])
        follow_up = known and Request("goes on", known.prompt_tokens + 1, 1, number, keys=known.keys)
        if follow_up and known and draw.random() < 0.5:
            waits.renew(follow_up, now_s)
            until_s[known] = max(until_s[known], now_s + known.tool_wait_s)
        over = {request for request, end_s in until_s.items() if end_s <= now_s}
        assert set(waits.over(now_s)) == over
        first = min(until_s.keys() - over, key=lambda one: (one is known, one.computed, one.order), default=None)
        for request in over:
            waits.end(request)
            del until_s[request]
        assert waits.cheapest(None if known in over else follow_up) is first or known in over
        if first and draw.random() < 0.3:
            waits.end(first)
            del until_s[first]
        assert (len(waits), list(waits)) == (len(until_s), list(until_s))
        assert waits.blocks == sum(len(request.blocks) for request in until_s)
        assert waits.next_end_s == min(until_s.values(), default=None)
    assert max(len(waits._ends), len(waits._costs)) < 2 * len(waits) + 100, "what has ended is let go of"


def test_a_wait_ends_with_the_time_out_of_the_request_that_asked_for_it() -> None:
    scheduler = Pod(8).scheduler
    keys: list[bytes] = []
    KeySpace(SIZE, model="m").extend(keys, range(8))
    scheduler.add("a", 8, 1, tool_wait_s=30.0, expires_s=12.0, keys=keys)
    scheduler.complete(scheduler.plan(10.0))
    assert scheduler.tool_waits.next_end_s == 12.0
    scheduler.end_tool_waits(11.9)
    assert len(scheduler.tool_waits) == 1
    scheduler.end_tool_waits(12.0)
    assert (len(scheduler.tool_waits), scheduler.pool.free) == (0, 8)
