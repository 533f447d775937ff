"""The engine of a pod: requests in, tokens out, one iteration at a time.

An iteration is planned, launched and collected. On a device that works by itself the next one is planned between launch
and collect, as if no request stopped; what has changed by its launch is then amended.

An iteration that fails ends its own requests only; where one after the other does, or the device is of no use any more,
the failure goes on to the caller.
"""

import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from leeway_core.pod_knobs import Ceilings, KnobsReply, PodKnobs

from leeway_engine.batch_rows import BatchRows
from leeway_engine.event_recorder import EventRecorder
from leeway_engine.kernels.choice import KernelMode, choose_kernels
from leeway_engine.messages import EngineStats, GenerationRequest, Iteration, TokenEvent
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.kv_cache import KvCache
from leeway_engine.request_event import RequestEvent
from leeway_engine.runner import Drawn, Flight, ModelRunner
from leeway_engine.scheduling.block_keys import KeySpace
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.debts import Debts
from leeway_engine.scheduling.move import Way
from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.request import PHASES, Request, RequestRejected, State
from leeway_engine.scheduling.scheduler import Scheduler

MOST_FAILURES = 3
"""Iterations that may fail one after the other, the last of which ends the engine."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What a pod fixes when it boots, and the knobs that it boots with."""

    kv_blocks: int
    knobs: PodKnobs
    ceilings: Ceilings
    block_size: int = 16
    context: int | None = None
    """Most tokens of prompt and output together; None takes what the model was trained for."""
    prefix_reuse: bool = True
    """Whether requests take the KV of prompts that begin alike from each other."""
    swap_blocks: int = 0
    """KV blocks that host memory has room for, to keep those of preempted requests."""
    model: str = ""
    """Name of the weights and their type, of which the KV of a prompt is made."""
    kernels: KernelMode = "auto"
    event_share: float = 0.0
    """Share of the requests whose events are recorded."""
    plan_ahead: bool | None = None
    """Whether the next iteration is planned while one runs; None does so where the device leaves a CPU free."""


@dataclass(slots=True)
class _Generation:
    """A request's tokens, kept for a recompute, and how they are drawn."""

    request: GenerationRequest
    token_ids: list[int]
    seed: int
    space: KeySpace


@dataclass(frozen=True, slots=True)
class _Launched:
    """An iteration that runs."""

    plan: Plan
    flight: Flight | None
    """None for a plan without tokens."""
    started_s: float
    failed: tuple[TokenEvent, ...] | None = None
    """Ends of its requests, if it could not be launched."""


class Engine:
    """Schedules, runs and samples in the caller's thread; no call takes longer than an iteration.

    Requests may be added and cancelled, and knobs be set, at any time, also while an iteration runs.
    """

    def __init__(self, decoder: Decoder, options: EngineOptions, clock: Callable[[], float] = time.monotonic) -> None:
        """Allocate the KV cache. `clock` is the one of the requests' `arrival_s`, in seconds."""
        config, weight = decoder.config, decoder.embedding.weight
        self.vocabulary = config.vocabulary
        self.context = min(options.context or config.context, config.context)
        self._clock = clock
        pool = BlockPool(options.kv_blocks, options.block_size)
        self._scheduler = Scheduler(pool, options.knobs, options.ceilings, options.swap_blocks)
        self._rows = BatchRows(options.ceilings.running_sequences, self.context, options.block_size)
        self._cache = KvCache(
            config,
            options.kv_blocks,
            options.block_size,
            weight.dtype,
            str(weight.device),
            swap_blocks=options.swap_blocks,
        )
        self._runner = ModelRunner(decoder, choose_kernels(decoder, options.kernels), self._cache, self._rows)
        self._options = options
        self._plan_ahead = weight.is_cuda if options.plan_ahead is None else options.plan_ahead
        self._next: Plan | None = None
        self._launched: _Launched | None = None
        self._generations: dict[Request, _Generation] = {}
        self._failures = self._failures_in_a_row = 0
        self._iterations = self._prefill_tokens = self._decode_tokens = 0
        self._preemptions = self._preemptions_by_swap = 0
        self._moved: Counter[Way] = Counter()
        self._idle_gap_s = 0.0
        self._partial_prefills = 0
        self._queue_delays_s: tuple[float, ...] = ()
        self._chunk_events: list[tuple[Request, RequestEvent]] = []
        self._last = Iteration()
        self._recorder = EventRecorder(options.event_share, clock)
        self._debts = Debts()
        self._tenant_debts: dict[str, float] = {}
        self._busy_since_s: float | None = None

    @property
    def has_work(self) -> bool:
        """Whether `step` would have something to do."""
        return bool(self._generations)

    def add(self, request: GenerationRequest) -> None:
        """Queue a request, or raise RequestRejected if it can never be served, or not now."""
        try:
            self._recorder.arrived(self._queue(request))
        except RequestRejected as error:
            self._recorder.refused(request, error.code)
            raise

    def _queue(self, request: GenerationRequest) -> Request:
        prompt = list(request.prompt_token_ids)
        if not prompt or min(prompt) < 0 or max(prompt) >= self.vocabulary:
            raise RequestRejected(
                "invalid_prompt", f"the prompt must hold at least one token id, each from 0 to {self.vocabulary - 1}"
            )
        if request.max_tokens < 1:
            raise RequestRejected("invalid_max_tokens", f"max_tokens must be 1 or more, not {request.max_tokens}")
        if len(prompt) + request.max_tokens > self.context:
            raise RequestRejected(
                "context_length_exceeded",
                f"the prompt of {len(prompt)} tokens and max_tokens {request.max_tokens} are together over "
                f"the context of {self.context} tokens; shorten one of them",
            )
        if max(request.sampling.logit_bias, default=0) >= self.vocabulary:
            raise RequestRejected("invalid_logit_bias", f"logit_bias takes token ids from 0 to {self.vocabulary - 1}")
        space = KeySpace(
            self._options.block_size,
            model=self._options.model,
            tenant=request.tenant,
            salt=request.cache_salt,
            tool_schema=request.tool_schema,
        )
        keys: list[bytes] = []
        if self._options.prefix_reuse:
            space.extend(keys, prompt)
        seed = request.sampling.seed
        seed = secrets.randbits(64) if seed is None else seed % 2**64
        scheduled = self._scheduler.add(
            request.request_id,
            len(prompt),
            request.max_tokens,
            arrival_s=request.arrival_s,
            tenant=request.tenant,
            slo_class=request.slo_class,
            priority=request.priority,
            deadline_s=request.deadline_s,
            tool_wait_s=request.tool_wait_s,
            expires_s=request.expires_s,
            keys=keys,
            traced=self._recorder.traces(request.request_id),
        )
        self._generations[scheduled] = _Generation(request, prompt, seed, space)
        return scheduled

    def cancel(self, request_id: str) -> None:
        """End a request at once and free what it holds; unknown or ended ones are ignored.

        An iteration that runs may still compute its token, which nobody gets; the next one does not.
        """
        if request := self._scheduler.cancel(request_id):
            self._forget(request)

    def stop(self, request_id: str) -> None:
        """End a request whose answer is whole, as at a stop string; unknown or ended ones are ignored."""
        if request := self._scheduler.stop(request_id):
            self._forget(request)

    @property
    def tool_waits_end_in_s(self) -> float | None:
        """Seconds until KV that is kept for a further request is kept no more; None if none is."""
        next_end_s = self._scheduler.tool_waits.next_end_s
        return None if next_end_s is None else max(0.0, next_end_s - self._clock())

    def end_tool_waits(self) -> None:
        """Free what is kept for requests that have not come in time; `step` does so too."""
        self._scheduler.end_tool_waits(self._clock())

    def set_knobs(self, knobs: PodKnobs) -> KnobsReply:
        """Take knobs for the next iteration to be planned, or change nothing and say why in the reply."""
        return self._scheduler.accept(knobs)

    def knobs(self) -> KnobsReply:
        """The knobs accepted and those enforced."""
        return self._scheduler.knobs()

    def step(self, before_plan: Callable[[], None] = lambda: None) -> list[TokenEvent]:
        """Run one iteration and return the tokens that it gave, and the ends of its requests if it failed.

        Without work do nothing. Raises what made it fail where `MOST_FAILURES` in a row have, or the device is lost.
        `before_plan` is called before each plan that is made: of this iteration, or of the next one.
        """
        if not self.has_work:
            return []
        if self._next is None:
            before_plan()
            self.plan()
        self.launch()
        if self._plan_ahead:
            before_plan()
            self.plan()
        return self.collect()

    def plan(self) -> None:
        """Plan the next iteration, if there is something to run; one that runs already counts as done."""
        assert self._next is None, "an iteration is planned already"
        if self._scheduler.running or self._scheduler.waiting:
            self._next = self._scheduler.plan(self._clock())

    def launch(self) -> None:
        """Begin the planned iteration, after the one before was collected."""
        assert self._launched is None, "an iteration runs already"
        plan, self._next = self._next, None
        if plan is None:
            return
        started_s = self._clock()
        if self._plan_ahead:
            self._scheduler.amend(plan, started_s)
        for request in plan.preempted + plan.rejected:
            self._rows.leave(request)
        try:
            flight = self._start(plan)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is logged, and others are served on)
            self._launched = _Launched(plan, None, started_s, tuple(self._fail(plan, error)))
            return
        self._scheduler.book(plan)
        self._note(plan, started_s)
        self._launched = _Launched(plan, flight, started_s)

    def _start(self, plan: Plan) -> Flight | None:
        for request in plan.admitted:
            generation = self._generations[request]
            self._rows.enter(request, generation.token_ids, generation.request.sampling, generation.seed)
        self._move(plan)
        return self._runner.launch(plan) if plan.tokens else None

    def collect(self) -> list[TokenEvent]:
        """Wait for the iteration that runs and return its tokens, or the ends of its requests if it failed."""
        launched, self._launched = self._launched, None
        if launched is None:
            return []
        # One planned on while its last token was drawn has ended with that.
        events = [self._ended(request) for request in launched.plan.rejected if request in self._generations]
        failed = launched.failed
        if failed is None:
            try:
                drawn = self._runner.collect(launched.flight) if launched.flight else []
            except Exception as error:  # noqa: BLE001 (whatever it is, it is logged, and others are served on)
                failed = tuple(self._fail(launched.plan, error))
        if failed is None:
            self._recorder.computed(self._chunk_events)
            events += self._take(drawn)
        else:
            events += failed
        ended_s = self._clock()
        if failed is None:
            self._observe(launched, ended_s)
            if launched.flight:
                self._failures_in_a_row = 0
        self._preemptions += len(launched.plan.preempted)
        self._preemptions_by_swap += len(launched.plan.swapped_out)
        self._busy_since_s = ended_s if self.has_work else None
        return events

    def _take(self, drawn: list[Drawn]) -> list[TokenEvent]:
        drawn = [token for token in drawn if token.request in self._generations]
        self._scheduler.end_stopped(
            [t.request for t in drawn if t.token_id in self._generations[t.request].request.stop_token_ids]
        )
        return [self._event_or_end(token) for token in drawn]

    def _fail(self, plan: Plan, error: Exception) -> list[TokenEvent]:
        """End the requests of an iteration that failed, or raise where that is of no use."""
        self._failures += 1
        self._failures_in_a_row += 1
        if self._failures_in_a_row == MOST_FAILURES:
            raise error
        self._runner.settle()
        # Those that were cancelled since have ended already.
        requests = [request for request in plan.touched if request in self._generations]
        logger.error("an iteration failed, and with it %d requests", len(requests), exc_info=error)
        self._scheduler.fail(requests, self._next)
        return [self._ended(request) for request in requests]

    def take_events(self) -> list[RequestEvent]:
        """Return the events of traced requests since the last call."""
        return self._recorder.take()

    def stats(self) -> EngineStats:
        """A reading for the metrics."""
        scheduler = self._scheduler
        now_s = self._clock()
        if self._debts.due(now_s) or not self.has_work:
            self._tenant_debts = self._debts.read(scheduler.tenants.debts(), now_s)
        return EngineStats(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            waiting_tokens=scheduler.waiting_tokens,
            kv_blocks_free=scheduler.pool.free,
            kv_blocks_total=scheduler.pool.total,
            iterations=self._iterations,
            prefill_tokens=self._prefill_tokens,
            decode_tokens=self._decode_tokens,
            preemptions=self._preemptions,
            last=self._last,
            kv_blocks_cached=scheduler.pool.cached,
            prefix_queried_tokens=scheduler.kv.queried_tokens,
            prefix_hit_tokens=scheduler.kv.hit_tokens,
            swapped_out_blocks=self._moved[Way.OUT],
            swapped_in_blocks=self._moved[Way.IN],
            swap_blocks_used=scheduler.kv.host.total - scheduler.kv.host.free,
            preemptions_by_swap=self._preemptions_by_swap,
            cancels={phase: scheduler.cancels[phase] for phase in PHASES},
            cancelled_tokens=scheduler.cancelled_tokens,
            tenant_debts=self._tenant_debts,
            tool_waits=len(scheduler.tool_waits),
            failed_iterations=self._failures,
        )

    def _move(self, plan: Plan) -> None:
        """Copy the blocks that the plan moves, and let the scheduler know what that costs."""
        if plan.moves:
            started_s = self._clock()
            self._cache.move(plan.moves)
            ways = Counter(move.way for move in plan.moves)
            # Copies on the device are far quicker than swaps, and where both were made nobody knows what each took.
            if not ways[Way.COPY]:
                self._scheduler.swap_cost.observe(ways.total(), self._clock() - started_s)
            self._moved.update(ways)

    def _note(self, plan: Plan, started_s: float) -> None:
        """Note what is told of a plan that is booked, before anything else happens to its requests."""
        self._chunk_events = self._recorder.launched(plan, self._scheduler.pool.free, started_s)
        self._idle_gap_s = 0.0 if self._busy_since_s is None else started_s - self._busy_since_s
        self._partial_prefills = sum(chunk.request.state is State.PREFILLING for chunk in plan.prefills)
        self._queue_delays_s = tuple(started_s - r.arrival_s for r in plan.admitted if r.admissions == 1)

    def _event_or_end(self, token: Drawn) -> TokenEvent:
        """Return a request's token, or its end where it cannot be gone on with; others are none the worse."""
        try:
            return self._event(token)
        except Exception:
            logger.exception("a request failed after its token was drawn")
            self._scheduler.end_broken(token.request)
            return self._ended(token.request)

    def _event(self, token: Drawn) -> TokenEvent:
        request = token.request
        self._generations[request].token_ids.append(token.token_id)
        if request.finish_reason is not None:
            self._forget(request)
        else:
            self._extend_keys(request)
        return TokenEvent(
            request_id=request.request_id,
            token_ids=(token.token_id,),
            finish_reason=request.finish_reason,
            prompt_tokens=request.prompt_tokens,
            output_tokens=request.generated,
            cached_tokens=request.cached,
            logprobs=(token.logprobs,) if token.logprobs else (),
        )

    def _extend_keys(self, request: Request) -> None:
        """Give the request the key of a block that its new token fills; the block is published once computed."""
        if self._options.prefix_reuse and request.known % self._options.block_size == 0:
            generation = self._generations[request]
            generation.space.extend(request.keys, generation.token_ids)

    def _ended(self, request: Request) -> TokenEvent:
        self._forget(request)
        return TokenEvent(request.request_id, (), request.finish_reason, request.prompt_tokens, request.generated)

    def _forget(self, request: Request) -> None:
        self._recorder.ended(request)
        del self._generations[request]
        self._rows.leave(request)
        if not self.has_work:
            # What was planned ahead holds nothing any more, and knobs that come now are enforced at once.
            self._next = None
            self._busy_since_s = None

    def _observe(self, launched: _Launched, ended_s: float) -> None:
        plan = launched.plan
        self._last = Iteration(
            seconds=ended_s - launched.started_s,
            idle_gap_s=self._idle_gap_s,
            prefill_tokens=plan.prefill_tokens,
            decode_tokens=len(plan.decodes),
            preempted=len(plan.preempted),
            knobs_generation=plan.knobs.generation,
            predicted_s=plan.predicted_s,
            path=launched.flight.path if launched.flight else "",
            chunks=tuple(chunk.tokens for chunk in plan.prefills),
            partial_prefills=self._partial_prefills,
            queue_delays_s=self._queue_delays_s,
        )
        self._scheduler.observe(plan, self._last.seconds)
        self._iterations += 1
        self._prefill_tokens += self._last.prefill_tokens
        self._decode_tokens += self._last.decode_tokens
