"""Decides what each iteration runs: decodes first, then started prefills, then admissions."""

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from math import inf

from leeway_core.pod_knobs import Ceilings, KnobsReply, PodKnobs

from leeway_engine.scheduling.admission import Admission, Answer, Arrival, Occupancy, Verdict
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.deadlines import Deadlines
from leeway_engine.scheduling.decodes import Decodes
from leeway_engine.scheduling.kv_memory import KvMemory
from leeway_engine.scheduling.lengths import OutputLengths
from leeway_engine.scheduling.load import Load
from leeway_engine.scheduling.outlook import Outlook, Reach
from leeway_engine.scheduling.plan import Chunk, Plan
from leeway_engine.scheduling.predictor import Predictor
from leeway_engine.scheduling.preemption import Remedy, VictimChoice
from leeway_engine.scheduling.prefill_room import PrefillRoom
from leeway_engine.scheduling.protection import decode_slots
from leeway_engine.scheduling.ranking.choice import ranking_of
from leeway_engine.scheduling.request import FinishReason, Request, RequestRejected, State
from leeway_engine.scheduling.slots import Slots
from leeway_engine.scheduling.swap_cost import SwapCost
from leeway_engine.scheduling.tenants import Tenants
from leeway_engine.scheduling.tool_waits import ToolWaits
from leeway_engine.scheduling.wait_queue import WaitQueue, spare_earliest


class Scheduler:
    """Plans iterations within four limits: token budget, predicted time, KV blocks and running sequences.

    Who goes first, and what else is considered, is up to the policies in the knobs. Times are seconds on any one clock.
    """

    def __init__(self, pool: BlockPool, knobs: PodKnobs, ceilings: Ceilings, swap_blocks: int = 0) -> None:
        """Start with knobs that the ceilings allow, and with room for so many blocks in host memory."""
        if refusal := ceilings.refusal(knobs):
            raise ValueError(refusal)
        self.pool = pool
        self.ceilings = ceilings
        self.accepted = self.enforced = knobs
        self.running: dict[str, Request] = {}
        """Requests that hold blocks, in order of admission."""
        self.tool_waits = ToolWaits(pool.block_size)
        """Ended requests that keep their blocks until what goes on from them is admitted, or others need the blocks."""
        self.iterations = 0
        self.cancels: Counter[str] = Counter()
        """Requests that were cancelled, by the phase that they were in."""
        self.cancelled_tokens = 0
        """Tokens that had been computed for them."""
        self.predictor = Predictor()
        self.tenants = Tenants(knobs.policies.tenancy)
        self._lengths = OutputLengths()
        self._slots = Slots(self._lengths)
        self._outlook = Outlook(self.predictor, self._lengths, knobs)
        self.kv = KvMemory(pool, self._lengths, swap_blocks)
        self.swap_cost = SwapCost(self.kv, self._outlook)
        self._prefilling: dict[Request, None] = {}
        """Those of the running that prefill, in order of admission; the others decode."""
        self._decodes = Decodes(pool.block_size)
        self._queue = WaitQueue(ranking_of(knobs.policies, self._outlook, self.tenants))
        self._arrivals = 0
        self._now_s = 0.0
        self._candidates: Iterator[Request] | None = None
        """The victims of the plan at hand, once one was needed."""
        self._retreating: Iterable[Request] | None = None
        """The decodes in order of retreat, once the plan at hand needed them."""
        self._some_ended = False
        """Whether a request has left since the last plan was made."""
        self._follow_policies()

    @property
    def waiting(self) -> OrderedDict[str, Request]:
        """Requests that wait for blocks, by id: the preempted, then the others by arrival."""
        return self._queue.requests

    @property
    def waiting_tokens(self) -> int:
        """Tokens to compute of the waiting requests, less what was found in KV."""
        return self._queue.tokens

    def add(
        self,
        request_id: str,
        prompt_tokens: int,
        max_tokens: int,
        *,
        arrival_s: float = 0.0,
        tenant: str = "",
        slo_class: str = "",
        priority: int = 0,
        deadline_s: float | None = None,
        tool_wait_s: float = 0.0,
        expires_s: float | None = None,
        keys: list[bytes] | None = None,
        traced: bool = False,
    ) -> Request:
        """Queue a request, or raise RequestRejected if it could not run even alone or admission turns it away.

        `keys` are those of the full blocks of its prompt; the caller appends those of the output to `Request.keys`.
        Without, no prefix is found and none published. Plans say why they chose a traced request.
        """
        if request_id in self.running or request_id in self.waiting:
            raise RequestRejected("duplicate_id", f"a request {request_id} is already here")
        expected = self._lengths.expected(slo_class, max_tokens)
        keys = keys or []
        found = self.kv.found_tokens(keys, prompt_tokens)
        arrival = Arrival(prompt_tokens - found, prompt_tokens, max_tokens, expected)
        _raise_unless_accepted(self._admission.fits(arrival, self.pool.total * self.pool.block_size))
        if self._admission.limited:
            _raise_unless_accepted(self._admission.judge(arrival, self._occupancy(tenant)))
        self._arrivals += 1
        request = Request(
            request_id,
            prompt_tokens,
            max_tokens,
            order=self._arrivals,
            account=self.tenants.account(tenant),
            arrival_s=arrival_s,
            arrival_iteration=self.iterations,
            slo_class=slo_class,
            priority=priority,
            deadline_s=deadline_s,
            tool_wait_s=tool_wait_s,
            expires_s=inf if expires_s is None else expires_s,
            unpaid=prompt_tokens,
            found=found,
            keys=keys,
            traced=traced,
        )
        self._now_s = max(self._now_s, arrival_s)
        self.tenants.queued(request)
        self._queue.add(request, self.iterations, self._now_s)
        self.tool_waits.renew(request, self._now_s)
        if self.enforced.policies.slack is not None:
            self._deadlines.watch(request)
        return request

    def cancel(self, request_id: str) -> Request | None:
        """End a request and free its blocks; None if it is not here (any more)."""
        request = self._find(request_id)
        if request is not None:
            self.cancels[request.phase] += 1
            self.cancelled_tokens += request.service
            self._finish(request, FinishReason.CANCEL)
        return request

    def stop(self, request_id: str) -> Request | None:
        """End a request whose answer is whole, as at a stop string; None if it is not here (any more)."""
        return self._end(request_id, FinishReason.STOP)

    def fail(self, requests: Collection[Request], ahead: Plan | None = None) -> None:
        """End requests of an iteration that failed, after it was booked or before; nobody finds what it was to compute.

        Whom the plan made since, `ahead`, admits may rest on that, so it waits again.
        """
        self.pool.withdraw()
        for request in requests:
            self.end_broken(request)
        if ahead is not None:
            for request in [request for request in ahead.admitted if request.state is State.PREFILLING]:
                self._leave_running(request)
                request.move_to(State.PREEMPTED)
                self.kv.take_back(request)
                self._queue_again(request)
            ahead.swapped_in.clear()
            self._some_ended = True

    def end_broken(self, request: Request) -> None:
        """End a request with an error, also if it has ended in the iteration booked last."""
        if request.state is State.TOOL_WAIT:
            self._end_tool_wait(request)
        elif request.state is not State.FINISHED:
            self._finish(request, FinishReason.ERROR)
        request.finish_reason = FinishReason.ERROR

    def end_tool_waits(self, now_s: float) -> None:
        """Free what is kept for requests that have not come in time."""
        for request in self.tool_waits.over(now_s):
            self._end_tool_wait(request)

    def accept(self, knobs: PodKnobs) -> KnobsReply:
        """Take knobs for the next plan, or change nothing and say why."""
        refusal = self.ceilings.refusal(knobs)
        if knobs.generation <= self.accepted.generation:
            refusal = f"generation {knobs.generation} is not above the accepted one, {self.accepted.generation}"
        if refusal is None:
            self.accepted = knobs
            if not self.running and not self.waiting:
                self._enforce()
        return self.knobs(refusal)

    def knobs(self, refusal: str | None = None) -> KnobsReply:
        """The knobs accepted and those enforced."""
        return KnobsReply(accepted=self.accepted, enforced=self.enforced, ceilings=self.ceilings, refusal=refusal)

    def plan(self, now_s: float = 0.0) -> Plan:
        """Lay out the next iteration and take the blocks for it; it must be booked before the next is planned."""
        self.iterations += 1
        self._now_s = max(self._now_s, now_s)
        self.end_tool_waits(self._now_s)
        if self.enforced is not self.accepted:
            self._enforce()
        plan = Plan(self.enforced, self.pool.block_size)
        if self.enforced.policies.slack is not None:
            self._give_up_deadlines(plan)
        self._candidates = self._retreating = None
        took_turns = self._plan_decodes(plan)
        room = PrefillRoom(self.enforced, plan.load, self.predictor)
        self._plan_started(plan, room)
        blocked = self._plan_admissions(plan, room)
        while self._queue.preempts and (wider := self._stand_back(plan, room)):
            room = wider
            blocked = self._plan_admissions(plan, room)
        plan.load = room.load
        plan.predicted_s = self.predictor.predict(plan.load)
        plan.repeats = not took_turns and self._will_repeat(plan, room, blocked=blocked)
        self._some_ended = False
        return plan

    def amend(self, plan: Plan, now_s: float = 0.0) -> None:
        """Bring a plan that was made ahead up to date: who ended since drops out, and what room there is gets used.

        It keeps its knobs and whom it preempted. Nobody's work grows but that of prefills without a chunk yet.
        """
        self._now_s = max(self._now_s, now_s)
        if self._some_ended:
            plan.drop_ended()
        room = PrefillRoom(plan.knobs, plan.load, self.predictor, len(plan.prefills))
        self._plan_started(plan, room)
        self._plan_admissions(plan, room)
        plan.load = room.load
        plan.predicted_s = self.predictor.predict(plan.load)
        plan.repeats = False

    def complete(self, plan: Plan, stopped: Collection[Request] = (), iterations: int = 1) -> None:
        """Book what the plan ran and end the requests whose new token ends them, `stopped`.

        A plan may be booked for as many iterations at once as it holds.
        """
        self.book(plan, iterations)
        self.end_stopped(stopped)

    def book(self, plan: Plan, iterations: int = 1) -> None:
        """Book what the plan runs, as far as that is known before its tokens are; then the next may be planned.

        Blocks of requests that end here are free at once: what is launched later runs later, so it writes them only
        after this plan's iteration has read them.
        """
        self.iterations += iterations - 1
        decodes = plan.decodes
        if self._some_ended:
            decodes = [request for request in decodes if request.state is State.DECODING]
        full, ended = self._decodes.book(decodes, iterations)
        self.kv.book(full)
        for request, tokens in plan.prefills:
            if request.state is State.PREFILLING:
                self._book_chunk(request, tokens * iterations)
        self.tenants.booked()
        for request in ended:
            self._finish(request, FinishReason.LENGTH)

    def end_stopped(self, requests: Collection[Request]) -> None:
        """End requests whose token of the iteration booked last ends them, also if they were planned on since.

        That iteration is done by then, so what it computed may be found for good.
        """
        for request in requests:
            if request.finish_reason is None:
                self._finish(request, FinishReason.STOP)
            elif request.finish_reason is FinishReason.LENGTH:
                request.finish_reason = FinishReason.STOP
        self.pool.prove()

    def observe(self, plan: Plan, seconds: float) -> None:
        """Learn from how long the plan's iteration took."""
        if plan.tokens and seconds > 0:
            self.predictor.observe(plan.load, seconds)

    def _enforce(self) -> None:
        before = self.enforced.policies
        self.enforced = self.accepted
        policies = self.enforced.policies
        if policies.tenancy != before.tenancy:
            self.tenants.reweigh(policies.tenancy, [*self.running.values(), *self.waiting.values()])
        self._outlook.face(self.enforced, Load())
        if (policies.ranking, policies.slack) != (before.ranking, before.slack):
            ranking = ranking_of(policies, self._outlook, self.tenants)
            self._queue.rank(ranking, self.iterations, self._now_s)
        if policies != before:
            self._follow_policies()

    def _follow_policies(self) -> None:
        policies = self.enforced.policies
        protection, victim = policies.protection, policies.victim
        self._queue.overdue_iterations = None if protection is None else protection.overdue_iterations
        self._admission = Admission(policies.admission)
        self._deadlines = Deadlines(self._outlook)
        if policies.slack is not None:
            for request in self.waiting.values():
                self._deadlines.watch(request)
        self._victims = (
            None if victim is None else VictimChoice(victim, self._outlook, self.tenants, self.kv, self.swap_cost)
        )

    def _give_up_deadlines(self, plan: Plan) -> None:
        for request in self._deadlines.unreachable(self._now_s):
            self._give_up(plan, request)

    def _give_up(self, plan: Plan, request: Request) -> bool:
        """Reject or downgrade one whose deadline is out of reach, as its class says; returns whether it did."""
        if self._finds_enough(request):
            return False
        match self._outlook.when_late(request):
            case "reject":
                self._finish(request, FinishReason.REJECTED)
                plan.rejected.append(request)
            case "downgrade":
                self._queue.remove(request)
                request.downgraded = True
                self._queue.add(request, self.iterations, self._now_s)
            case _:
                return False
        return True

    def _finds_enough(self, request: Request) -> bool:
        """Look again for its prompt in KV, as others may have computed it since; whether its deadline is in reach then.

        If so, it is watched on.
        """
        found = self.kv.found_tokens(request.keys, request.prompt_tokens)
        if found <= request.found:
            return False
        self._queue.remove(request)
        request.found = found
        self._queue.add(request, self.iterations, self._now_s)
        if self._outlook.reach(request, self._now_s) is Reach.UNREACHABLE:
            return False
        self._deadlines.watch(request)
        return True

    def _plan_decodes(self, plan: Plan) -> bool:
        """Plan the decodes and the blocks they grow by; returns whether there are so many that they take turns."""
        here = self._decodes
        slots = self._decode_slots(len(here.requests))
        take_turns = len(here.requests) > slots
        decodes = here.in_turn(slots, self.iterations) if take_turns else here.together(self.iterations)
        growing = here.lacking_blocks()
        if take_turns:
            growing = [request for request in growing if request.last_scheduled == self.iterations]
        if len(growing) <= self.pool.free:
            self.kv.grow(growing)
            plan.grown += growing
        else:
            for request in growing:
                if request.state is State.DECODING:
                    self._grow(plan, request)
        if plan.preempted or plan.rejected:
            decodes = [request for request in decodes if request.state is State.DECODING]
            plan.grown = [request for request in plan.grown if request.state is State.DECODING]
            if not decodes and here.requests:
                # Those whose turn it was lost their blocks; the others take it.
                return self._plan_decodes(plan)
        context_tokens = sum([request.computed for request in decodes]) if take_turns else here.context_tokens
        plan.decodes = decodes
        plan.load = Load(len(decodes), context_tokens)
        self._outlook.face(self.enforced, plan.load)
        return take_turns

    def _decode_slots(self, decodes: int) -> int:
        """Most decodes now: the budget, less what is left to prefills if there are any."""
        budget, protection = self.enforced.token_budget, self.enforced.policies.protection
        if protection is None:
            return budget
        slots = decode_slots(protection, budget)
        if decodes <= slots or not self._prefills_wait():
            return budget
        return slots

    def _prefills_wait(self) -> bool:
        if self._prefilling:
            return True
        first = self._queue.first(self.iterations, self._now_s)
        return first is not None and self._make_room(first)

    def _grow(self, plan: Plan, request: Request) -> None:
        """Give a decode its next block; where none is free, others lose theirs, at worst itself."""
        while not self.pool.free:
            if self._give_way():
                continue
            victim = self._victim()
            remedy = self._remedy(victim)
            if remedy is Remedy.REJECT:
                self._finish(victim, FinishReason.REJECTED)
                plan.rejected.append(victim)
            else:
                self._preempt(plan, victim, remedy)
            if victim is request:
                return
        self.kv.grow([request])
        plan.grown.append(request)

    def _victim(self) -> Request:
        if self._victims is None:
            return self._queue.last(self.running.values())
        if self._candidates is None:
            self._candidates = self._victims.candidates(spare_earliest(self.running.values()), self._now_s)
        earliest = next(iter(self.running.values()))
        return next((request for request in self._candidates if request.request_id in self.running), earliest)

    def _remedy(self, victim: Request) -> Remedy:
        if self._victims is not None:
            return self._victims.remedy(victim, self._now_s)
        return Remedy.SWAP if self.swap_cost.quicker(victim) else Remedy.RECOMPUTE

    def _preempt(self, plan: Plan, request: Request, remedy: Remedy) -> None:
        self._leave_running(request)
        request.move_to(State.PREEMPTED)
        request.ran_iterations += self.iterations - request.admitted_iteration
        request.reached = request.known if request.generated else max(request.reached, request.computed)
        plan.preempted.append(request)
        if remedy is Remedy.SWAP:
            plan.moves += self.kv.swap_out(request)
            plan.swapped_out.append(request)
        else:
            self.kv.drop(request)
        self._queue_again(request)

    def _queue_again(self, request: Request) -> None:
        self.tenants.queued(request)
        self._queue.add_again(request, self.iterations, self._now_s)

    def _leave_running(self, request: Request) -> None:
        del self.running[request.request_id]
        self._prefilling.pop(request, None)
        self._decodes.discard(request)
        self.tenants.left_running(request)

    def _plan_started(self, plan: Plan, room: PrefillRoom) -> None:
        if not self._prefilling:
            return
        planned = {chunk.request for chunk in plan.prefills}
        started = [request for request in self._prefilling if request not in planned]
        protection = self.enforced.policies.protection
        if protection is not None and len(started) > 1:
            boosted = self.iterations - protection.boost_iterations
            started.sort(key=lambda request: request.order if request.admitted_iteration <= boosted else inf)
        for request in started:
            if room.full:
                break
            if request.traced:
                plan.reasons[request] = self._started_reason(request)
            self._plan_chunk(plan, room, request, room.chunk(request))

    def _started_reason(self, request: Request) -> str:
        protection = self.enforced.policies.protection
        iterations = self.iterations - request.admitted_iteration
        boosted = protection is not None and iterations >= protection.boost_iterations
        return f"boost after {iterations} iterations" if boosted else "started"

    def _plan_admissions(self, plan: Plan, room: PrefillRoom) -> bool:
        """Admit as many as go; returns whether the first in the queue was kept out for itself, so another might go."""
        while not room.full and (request := self._queue.first(self.iterations, self._now_s)):
            if self._comes_late(request) and self._give_up(plan, request):
                continue
            if not room.chunk(request) or not self._make_room(request):
                return True
            self._admit(plan, request)
            # Less may be pending now, as tokens were found in KV.
            self._plan_chunk(plan, room, request, room.chunk(request))
        return False

    def _comes_late(self, request: Request) -> bool:
        """Whether one without any service yet is out of reach by now, as predictions may have grown."""
        if self.enforced.policies.slack is None or request.state is not State.WAITING or request.downgraded:
            return False
        return self._outlook.reach(request, self._now_s) is Reach.UNREACHABLE

    def _stand_back(self, plan: Plan, room: PrefillRoom) -> PrefillRoom | None:
        """Let decodes stand back for the first in the queue; returns the room that it then has, None if nobody does.

        As FastServe preempts between iterations, and a prefill is one iteration there, only decodes stand back: so
        each admission gives at least one token. Nobody does unless the first is certain to be admitted for it.
        """
        request = self._queue.first(self.iterations, self._now_s)
        if request is None or not self._queue.displaces(request) or not (victims := self._outranked(request)):
            return None
        fed = [victim for victim in victims if victim in plan.decodes]
        context_tokens = room.load.context_tokens - sum([victim.computed for victim in fed])
        load = room.load._replace(decodes=room.load.decodes - len(fed), context_tokens=context_tokens)
        wider = PrefillRoom(self.enforced, load, self.predictor, room.prefills)
        if not wider.chunk(request):
            return None
        if self.kv.lacking(request, self.enforced.policies.growth, len(self.running)) > 0 and self._give_way(request):
            # What is kept for tools gives way before any that run.
            return room
        for victim in victims:
            if victim.traced:
                plan.stood_back[victim] = f"stands back for {self._queue.reason(request, self.iterations)}"
            self._preempt(plan, victim, Remedy.SWAP if self.swap_cost.quicker(victim) else Remedy.RECOMPUTE)
        for victim in fed:
            plan.decodes.remove(victim)
        plan.grown = [other for other in plan.grown if other.state is State.DECODING]
        return wider

    def _outranked(self, request: Request) -> list[Request]:
        """Return as few decodes as let a waiting request in if they stand back; none if none must or all fall short."""
        running, most, growth = len(self.running), self.enforced.running_sequences, self.enforced.policies.growth
        # Where more run than now may, places are to become fewer.
        if running > most:
            return []
        outranked = self._queue.outranked(request, self._retreat, self._now_s)
        if (first := next(outranked, None)) is None:
            return []
        lacking = self.kv.lacking(request, growth, running)
        if running < most and lacking <= 0:
            return []
        victims: list[Request] = []
        for victim in chain((first,), outranked):
            victims.append(victim)
            lacking -= self.kv.gained(victim, request, growth)
            if lacking <= 0:
                return victims
        return []

    def _retreat(self) -> Iterator[Request]:
        """Give the decodes in order of retreat, without those that have stood back in the plan at hand."""
        if self._retreating is None:
            self._retreating = self._queue.in_order_of_retreat(self._decodes.requests, self.iterations)
        return (other for other in self._retreating if other.state is State.DECODING)

    def _plan_chunk(self, plan: Plan, room: PrefillRoom, request: Request, tokens: int) -> None:
        if tokens:
            request.last_scheduled = self.iterations
            plan.prefills.append(Chunk(request, tokens))
            room.use(request, tokens)

    def _make_room(self, request: Request) -> bool:
        """Whether the request can be admitted; what is kept for tools gives way if that is enough."""
        running = len(self.running)
        if running >= self.enforced.running_sequences:
            return False
        lacking = self.kv.lacking(request, self.enforced.policies.growth, running)
        while 0 < lacking <= self.tool_waits.blocks:
            self._give_way(request)
            lacking = self.kv.lacking(request, self.enforced.policies.growth, running)
        return lacking <= 0

    def _give_way(self, for_whom: Request | None = None) -> bool:
        """Take the KV that is cheapest to lose from a request that waits for a tool; returns whether there was any."""
        request = self.tool_waits.cheapest(for_whom)
        if request is not None:
            self._end_tool_wait(request)
        return request is not None

    def _end_tool_wait(self, request: Request) -> None:
        self.tool_waits.end(request)
        self.kv.release(request)
        request.move_to(State.FINISHED)

    def _admit(self, plan: Plan, request: Request) -> None:
        if request.traced:
            plan.reasons[request] = self._queue.reason(request, self.iterations)
        self._queue.remove(request)
        self.tenants.admitted(request)
        request.move_to(State.PREFILLING)
        request.admitted_iteration = self.iterations
        if request.swapped:
            plan.swapped_in.append(request)
        plan.moves += self.kv.admit(request, self.enforced.policies.growth)
        if request.admissions == 1 and (before := self.tool_waits.before(request)):
            self._end_tool_wait(before)
        self.running[request.request_id] = request
        self._prefilling[request] = None
        plan.admitted.append(request)

    def _will_repeat(self, plan: Plan, room: PrefillRoom, *, blocked: bool) -> bool:
        """Whether nothing but growth and ends would make the next plan differ from this one."""
        policies = self.enforced.policies
        if plan.preempted or plan.rejected or (room.timed and plan.prefills):
            return False
        if policies.protection is not None and (len(plan.prefills) > 1 or self.waiting):
            return False
        if (policies.slack is not None or self._queue.preempts) and self.waiting:
            return False
        if blocked and any(chunk.request.keys for chunk in plan.prefills):
            # What these publish may let the first in the queue fit.
            return False
        return not blocked or self._queue.steady or len(self.running) >= self.enforced.running_sequences

    def _book_chunk(self, request: Request, tokens: int) -> None:
        """Book a chunk, and the first token where it is the last one."""
        request.recomputed += max(0, min(tokens, request.reached - request.computed))
        request.computed += tokens
        request.prefilled += tokens
        self.kv.book((request,))
        if request.pending:
            return
        request.generated += 1
        self.tenants.begin_decoding(request)
        if request.generated == request.max_tokens:
            self._finish(request, FinishReason.LENGTH)
        else:
            request.move_to(State.DECODING)
            del self._prefilling[request]
            self._decodes.add(request)

    def _end(self, request_id: str, reason: FinishReason) -> Request | None:
        request = self._find(request_id)
        if request is not None:
            self._finish(request, reason)
        return request

    def _find(self, request_id: str) -> Request | None:
        return self.running.get(request_id) or self.waiting.get(request_id)

    def _finish(self, request: Request, reason: FinishReason) -> None:
        whole = reason in (FinishReason.STOP, FinishReason.LENGTH)
        runs = request.request_id in self.running
        if runs:
            self._leave_running(request)
        else:
            self._queue.remove(request)
            self.tenants.left_queue(request)
        self.tenants.refund(request)
        if runs and whole and request.tool_wait_s > 0 and self.kv.keep(request):
            request.move_to(State.TOOL_WAIT)
            self.tool_waits.begin(request, self._now_s)
        else:
            self.kv.release(request)
            request.move_to(State.FINISHED)
        self._some_ended = True
        request.finish_reason = reason
        if whole:
            self._lengths.observe(request.slo_class, request.generated)

    def _occupancy(self, tenant: str) -> Occupancy:
        """How full the pod is, as admission looks at it."""
        account = self.tenants.account(tenant)
        running, waiting = self.running.values(), len(self.waiting)
        started = sum([request.pending for request in self._prefilling])
        self._slots.read(running, self.iterations)
        output = self._queue.backlog.expected(self._lengths)
        place_in = self._slots.free_in(self._sequences(), waiting, output // waiting if waiting else 0)
        to_come = self._queue.tokens + output
        queue_s = self._outlook.queue_s(self._queue.tokens + started, len(running), place_in)
        decodes_s = self._outlook.decodes_s(len(running))
        tenant_end_s = queue_s
        if self._admission.is_full(account.queued + account.running):
            own = [self._outlook.output_left(request) for request in running if request.account is account]
            tenant_end_s = decodes_s * min(own) if own else queue_s
        return Occupancy(
            capacity_tokens=self.pool.total * self.pool.block_size,
            expected_tokens=max(0, self._used()) * self.pool.block_size + self._slots.output_left() + to_come,
            waiting_requests=waiting,
            tenant_requests=account.queued + account.running,
            tenant_waiting_tokens=account.waiting_tokens,
            queue_s=queue_s,
            end_s=decodes_s * self._slots.first_end(),
            tenant_end_s=tenant_end_s,
        )

    def _sequences(self) -> int:
        """How many sequences can run at a time, with as much KV for each as those that run have now."""
        running = len(self.running)
        used = self._used() + self.kv.promised
        most = self.enforced.running_sequences
        return min(most, self.pool.total * running // used) if used > 0 < running else most

    def _used(self) -> int:
        """KV blocks that are held for good."""
        return self.pool.total - self.pool.free - self.tool_waits.blocks


def _raise_unless_accepted(verdict: Verdict) -> None:
    if verdict.answer is not Answer.ACCEPT:
        raise RequestRejected(verdict.reason, verdict.message, verdict.retry_after_s)
