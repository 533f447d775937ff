"""Decides what each iteration runs: decodes first, then started prefills, then admissions."""

from collections import OrderedDict
from collections.abc import Collection
from heapq import nsmallest

from leeway_core.pod_knobs import Ceilings, KnobsReply, PodKnobs

from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.kv_memory import KvMemory
from leeway_engine.scheduling.plan import Chunk, Plan
from leeway_engine.scheduling.request import FinishReason, Request, RequestRejected, State


class Scheduler:
    """First come, first served, within the token budget, the chunk size, the KV blocks and the running sequences."""

    def __init__(self, pool: BlockPool, knobs: PodKnobs, ceilings: Ceilings, swap_blocks: int = 0) -> None:
        """Start with knobs that the ceilings allow, and with room for so many blocks in host memory."""
        if refusal := ceilings.refusal(knobs):
            raise ValueError(refusal)
        self.pool = pool
        self.kv = KvMemory(pool, swap_blocks)
        self.ceilings = ceilings
        self.accepted = self.enforced = knobs
        self.running: dict[str, Request] = {}
        self.waiting: OrderedDict[str, Request] = OrderedDict()
        self.iterations = 0
        self._arrivals = 0

    def add(self, request_id: str, prompt_tokens: int, max_tokens: int, slo_class: str = "") -> Request:
        """Queue a request; what could not run even alone is refused at once."""
        if request_id in self.running or request_id in self.waiting:
            raise RequestRejected("duplicate_id", f"a request {request_id} is already here")
        capacity = self.pool.total * self.pool.block_size
        # The last token is never fed back, so it needs no KV.
        if prompt_tokens + max_tokens - 1 > capacity:
            raise RequestRejected(
                "kv_exceeded",
                f"the prompt of {prompt_tokens} tokens and max_tokens {max_tokens} need more than "
                f"the {capacity} tokens of KV cache that this pod has; shorten one of them",
            )
        self._arrivals += 1
        request = Request(request_id, prompt_tokens, max_tokens, order=self._arrivals, slo_class=slo_class)
        self.waiting[request_id] = request
        return request

    def cancel(self, request_id: str) -> Request | None:
        """End a request and free its blocks; None if it is not here (any more)."""
        request = self.running.get(request_id) or self.waiting.get(request_id)
        if request is not None:
            self._finish(request, FinishReason.CANCEL)
        return request

    def accept(self, knobs: PodKnobs) -> KnobsReply:
        """Take knobs for the next plan, or change nothing and say why."""
        refusal = self.ceilings.refusal(knobs)
        if knobs.generation <= self.accepted.generation:
            refusal = f"generation {knobs.generation} is not above the accepted one, {self.accepted.generation}"
        if refusal is None:
            self.accepted = knobs
            if not self.running and not self.waiting:
                self.enforced = knobs
        return self.knobs(refusal)

    def knobs(self, refusal: str | None = None) -> KnobsReply:
        """The knobs accepted and those enforced."""
        return KnobsReply(accepted=self.accepted, enforced=self.enforced, ceilings=self.ceilings, refusal=refusal)

    def plan(self) -> Plan:
        """Lay out the next iteration and take the blocks for it; `complete` must follow before the next plan."""
        self.iterations += 1
        self.enforced = self.accepted
        plan = Plan(self.enforced)
        self._plan_decodes(plan)
        left = self.enforced.token_budget - len(plan.decodes)
        for request in self.running.values():
            if left == 0:
                break
            if request.state is State.PREFILLING:
                left -= self._plan_chunk(plan, request, left)
        while left and self.waiting and self._next_fits():
            left -= self._plan_chunk(plan, self._admit(plan), left)
        return plan

    def complete(self, plan: Plan, stopped: Collection[Request] = ()) -> None:
        """Book what the plan ran. `stopped` are the requests whose new token ends them."""
        sampled = list(plan.decodes)
        block_size = self.pool.block_size
        for request in plan.decodes:
            request.computed += 1
            if request.computed % block_size == 0:
                self.kv.book(request)
        for request, tokens in plan.prefills:
            request.computed += tokens
            self.kv.book(request)
            if request.pending == 0:
                sampled.append(request)
        for request in sampled:
            if request.state is State.FINISHED:
                continue
            request.generated += 1
            if request in stopped:
                self._finish(request, FinishReason.STOP)
            elif request.generated == request.max_tokens:
                self._finish(request, FinishReason.LENGTH)
            elif request.state is State.PREFILLING:
                request.move_to(State.DECODING)

    def _plan_decodes(self, plan: Plan) -> None:
        decodes = [request for request in self.running.values() if request.state is State.DECODING]
        budget = self.enforced.token_budget
        if len(decodes) > budget:
            # Only while a lowered limit drains: take turns, so that none starves.
            decodes = nsmallest(budget, decodes, key=lambda request: (request.last_turn, request.order))
            for request in decodes:
                request.last_turn = self.iterations
        block_size = self.pool.block_size
        for request in decodes:
            if request.computed == len(request.blocks) * block_size and request.state is State.DECODING:
                self._grow(plan, request)
        plan.decodes = decodes
        if plan.preempted:
            plan.decodes = [request for request in decodes if request.state is State.DECODING]
            plan.grown = [request for request in plan.grown if request.state is State.DECODING]

    def _grow(self, plan: Plan, request: Request) -> None:
        """Give a decode its next block; where none is free, the latest arrived lose theirs, at worst itself."""
        while not self.pool.free:
            victim = max(self.running.values(), key=lambda running: running.order)
            self._preempt(plan, victim)
            if victim is request:
                return
        self.kv.grow(request)
        plan.grown.append(request)

    def _preempt(self, plan: Plan, request: Request) -> None:
        """Take a request's blocks; its tokens go to host memory where that has room, else they are computed again."""
        request.move_to(State.PREEMPTED)
        plan.preempted.append(request)
        if self.kv.can_swap(request):
            plan.moves += self.kv.swap_out(request)
        else:
            self.kv.drop(request)
        del self.running[request.request_id]
        self.waiting[request.request_id] = request
        self.waiting.move_to_end(request.request_id, last=False)

    def _plan_chunk(self, plan: Plan, request: Request, left: int) -> int:
        tokens = min(request.pending, self.enforced.chunk_size, left)
        plan.prefills.append(Chunk(request, tokens))
        return tokens

    def _next_fits(self) -> bool:
        """Whether the head of the queue fits."""
        if len(self.running) >= self.enforced.running_sequences:
            return False
        return self.kv.fits(next(iter(self.waiting.values())))

    def _admit(self, plan: Plan) -> Request:
        _, request = self.waiting.popitem(last=False)
        request.move_to(State.PREFILLING)
        plan.moves += self.kv.admit(request)
        self.running[request.request_id] = request
        plan.admitted.append(request)
        return request

    def _finish(self, request: Request, reason: FinishReason) -> None:
        request.move_to(State.FINISHED)
        request.finish_reason = reason
        self.kv.release(request)
        self.running.pop(request.request_id, None)
        self.waiting.pop(request.request_id, None)
