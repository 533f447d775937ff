"""After any storm no KV block is lost, doubled or read with another's values in it.

The machine keeps what each block would hold. The keys and values of a token hang on all tokens before it, so a slot's
content is that whole prefix, with the salt of its tenant.
"""

from collections import Counter
from dataclasses import dataclass
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from leeway_core.policies import Growth
from leeway_engine.scheduling.block_keys import KeySpace
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.kv_memory import KvMemory
from leeway_engine.scheduling.lengths import OutputLengths
from leeway_engine.scheduling.move import Move, Way
from leeway_engine.scheduling.request import FinishReason, Request

BLOCKS, SWAP_BLOCKS, SIZE, MOST_RUNNING = 10, 5, 3, 4
CAPACITY = BLOCKS * SIZE

Content = tuple[str, ...] | None


@dataclass(eq=False, slots=True)
class Text:
    """A request's tokens and its salt."""

    salt: str
    token_ids: list[int]
    keys: KeySpace

    def at(self, position: int) -> Content:
        return (self.salt, *map(str, self.token_ids[: position + 1]))


@dataclass(slots=True)
class Work:
    """What an iteration computes of a request, with its block table as it was planned."""

    request: Request
    text: Text
    blocks: list[int]
    start: int
    end: int


class KvMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.lengths = OutputLengths()
        self.kv = KvMemory(BlockPool(BLOCKS, SIZE), self.lengths, SWAP_BLOCKS)
        self.device: list[Content] = [None] * CAPACITY
        self.host: list[Content] = [None] * (SWAP_BLOCKS * SIZE)
        self.texts: dict[Request, Text] = {}
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.kept: list[Request] = []
        """Ended requests that keep what can be found of them."""
        self.moves: list[Move] = []
        self.work: list[Work] | None = None

    @rule(seed=st.integers(0, 2**16), count=st.integers(1, 5))
    def arrive(self, seed: int, count: int) -> None:
        """Prompts differ in their length, and some in their last token."""
        draw = Random(seed)
        for number in range(len(self.texts), len(self.texts) + count):
            prompt, salt = draw.randint(1, 14), draw.choice("  s")
            request = Request(str(number), prompt, draw.randint(1, 14), number, slo_class=salt)
            keys = KeySpace(SIZE, model="m", salt=salt)
            text = self.texts[request] = Text(salt, [0] * (prompt - 1) + [draw.randint(0, 1)], keys)
            keys.extend(request.keys, text.token_ids)
            self.waiting.append(request)

    @rule(seed=st.integers(0, 2**16))
    def plan(self, seed: int) -> None:
        if self.work is None:
            draw = Random(seed)
            for request in list(self.running):
                if request in self.running and request.computed == len(request.blocks) * SIZE:
                    self.grow(request, draw)
            self.admit(Growth(reserve=draw.choice(("none", "expected", "all"))))
            self.work = []
            for request in self.running:
                end = request.computed + draw.randint(1, request.pending)
                assert end <= len(request.blocks) * SIZE
                self.work.append(Work(request, self.texts[request], list(request.blocks), request.computed, end))

    def grow(self, request: Request, draw: Random) -> None:
        while not self.kv.pool.free:
            if self.kept:
                self.kv.release(self.kept.pop())
                continue
            victim = self.running.pop()
            if self.kv.can_swap(victim) and draw.random() < 0.7:
                self.moves += self.kv.swap_out(victim)
            else:
                self.kv.drop(victim)
            self.waiting.insert(0, victim)
            if victim is request:
                return
        self.kv.grow([request])

    def admit(self, growth: Growth) -> None:
        while self.waiting and len(self.running) < MOST_RUNNING:
            request = self.waiting[0]
            if self.kv.lacking(request, growth, len(self.running)) > 0:
                if not self.kept:
                    break
                self.kv.release(self.kept.pop())
                continue
            del self.waiting[0]
            self.moves += self.kv.admit(request, growth)
            assert 0 < request.pending <= request.known
            assert request.cached < request.prompt_tokens
            self.running.append(request)
        assert self.running or not self.waiting, "what fits alone is never held up"

    @rule(seed=st.integers(0, 2**16), times=st.integers(1, 12))
    def iterate(self, seed: int, times: int) -> None:
        for number in range(times):
            self.plan(seed + number)
            self.run(seed + number)

    @rule(seed=st.integers(0, 2**16))
    def run(self, seed: int) -> None:
        draw = Random(seed)
        for work in self.compute():
            request, text = work.request, work.text
            request.computed = work.end
            self.kv.book((request,))
            if request.pending:
                continue
            text.token_ids.append(int(draw.random() < 0.1))
            request.generated += 1
            if request.generated == request.max_tokens:
                self.end(request, FinishReason.LENGTH, keep=draw.random() < 0.5)
            elif draw.random() < 0.05:
                self.end(request, FinishReason.STOP)
            else:
                text.keys.extend(request.keys, text.token_ids)

    @rule()
    def fail(self) -> None:
        """The forward pass breaks off: whatever it wrote, nothing of it is booked, and its requests end."""
        for work in self.compute():
            for position in range(work.start, work.end):
                self.device[self.slot(work.blocks, position)] = None
            self.end(work.request, FinishReason.CANCEL)

    @rule(seed=st.integers(0, 2**16))
    def cancel(self, seed: int) -> None:
        if here := self.running + self.waiting:
            self.end(here[seed % len(here)], FinishReason.CANCEL)

    def compute(self) -> list[Work]:
        """Do the moves, check what each request reads, write its new tokens; return the work of those still here."""
        work, self.work = self.work or [], None
        for way, source, target in self.moves:
            there = self.host if way is Way.IN else self.device
            here = self.host if way is Way.OUT else self.device
            here[target * SIZE : target * SIZE + SIZE] = there[source * SIZE : source * SIZE + SIZE]
        self.moves = []
        for each in work:
            if each.request in self.running:
                for position in range(each.start):
                    assert self.device[self.slot(each.blocks, position)] == each.text.at(position)
        for each in work:
            for position in range(each.start, each.end):
                self.device[self.slot(each.blocks, position)] = each.text.at(position)
        return [each for each in work if each.request in self.running]

    def slot(self, blocks: list[int], position: int) -> int:
        return blocks[position // SIZE] * SIZE + position % SIZE

    @rule(seed=st.integers(0, 2**16))
    def let_go(self, seed: int) -> None:
        if self.kept:
            self.kv.release(self.kept.pop(seed % len(self.kept)))

    def end(self, request: Request, reason: FinishReason, *, keep: bool = False) -> None:
        (self.running if request in self.running else self.waiting).remove(request)
        if reason is not FinishReason.CANCEL:
            self.lengths.observe(request.slo_class, request.generated)
        if keep:
            full = request.computed // SIZE
            assert self.kv.keep(request) == (full > 0)
            assert len(request.blocks) == full, "all that is computed can be found"
            self.kept.append(request)
        else:
            self.kv.release(request)

    @invariant()
    def each_block_is_free_or_held_by_those_that_name_it(self) -> None:
        pool = self.kv.pool
        held = Counter(block for request in self.running + self.kept for block in request.blocks)
        assert pool.free + len(held) == BLOCKS
        assert pool.cached <= pool.free
        assert pool.unheld(range(BLOCKS)) == pool.free
        assert all(len(set(request.blocks)) == len(request.blocks) for request in self.running)
        assert not any(request.blocks for request in self.waiting)

    @invariant()
    def host_blocks_are_held_by_one_waiting_request_each(self) -> None:
        held = [block for request in self.waiting for block in request.swapped]
        assert len(set(held)) == len(held)
        assert self.kv.host.free + len(held) == SWAP_BLOCKS
        assert not any(request.swapped for request in self.running)

    @invariant()
    def what_is_found_is_what_was_asked_for(self) -> None:
        for request, text in self.texts.items():
            for place, block in enumerate(self.kv.pool.find(request.keys)):
                for offset in range(SIZE):
                    assert self.device[block * SIZE + offset] == text.at(place * SIZE + offset)

    @invariant()
    def what_is_promised_is_what_the_running_do_not_hold_yet(self) -> None:
        promised = [max(0, request.reserved_blocks - len(request.blocks)) for request in self.running]
        assert self.kv.promised == sum(promised)
        assert not any(request.reserved_blocks for request in self.waiting)
        assert 0 <= self.kv.hit_tokens <= self.kv.queried_tokens

    def teardown(self) -> None:
        for request in self.running + self.waiting:
            self.end(request, FinishReason.CANCEL)
        for request in self.kept:
            self.kv.release(request)
        assert (self.kv.pool.free, self.kv.host.free, self.kv.promised) == (BLOCKS, SWAP_BLOCKS, 0)


KvMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=30)
test_kv_machine = KvMachine.TestCase
