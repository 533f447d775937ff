"""Notes what happens to some of the requests, for the event log."""

import time
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from leeway_engine.messages import GenerationRequest
from leeway_engine.request_event import RequestEvent
from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.request import FinishReason, Request, State

_DIGEST_BYTES = 8
_PREFIX_BYTES = 8
_ENDS = {FinishReason.CANCEL: "cancelled", FinishReason.ERROR: "failed", FinishReason.REJECTED: "rejected"}


class EventRecorder:
    """Records the requests that are traced, wholly, and the others not at all.

    Who is traced is settled by a digest of the id, so it is the same in every process. An iteration costs nothing while
    no traced request is here, and otherwise time for its prefills and preemptions; decodes that change nothing are no
    events.
    """

    def __init__(self, share: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Trace this share of all requests, from 0 to 1. `clock` is the one of the plans' times."""
        self._limit = int(share * 256**_DIGEST_BYTES)
        self._clock = clock
        self._phases: dict[Request, str] = {}
        """Of each traced request that has not ended, where its last event led it."""
        self._events: list[RequestEvent] = []

    def traces(self, request_id: str) -> bool:
        """Whether a request of this id is traced."""
        digest = blake2b(request_id.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()
        return int.from_bytes(digest, "big") < self._limit

    def take(self) -> list[RequestEvent]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def arrived(self, request: Request) -> None:
        """Record that a request is in the queue, if it is traced."""
        if request.traced:
            self._note(request, "arrived", "waiting", time.time())

    def refused(self, request: GenerationRequest, code: str) -> None:
        """Record that a request was turned away at its arrival, if it is traced."""
        if self.traces(request.request_id):
            prompt_tokens = len(request.prompt_token_ids)
            event = RequestEvent(
                time.time(),
                request.request_id,
                "rejected",
                "waiting",
                prompt_tokens,
                request.max_tokens,
                remaining_tokens=prompt_tokens,
                reason=code,
                slo_class=request.slo_class,
            )
            self._events.append(event)

    def launched(self, plan: Plan, kv_blocks_free: int, started_s: float) -> list[tuple[Request, RequestEvent]]:
        """Record who got KV by a plan that is booked and was begun at `started_s`, and who lost it.

        Returns the events of its chunks for `computed`. They say how the requests are now, as the next plan may change
        them before the chunks are there.
        """
        if not self._phases:
            return []
        started_s += time.time() - self._clock()
        about = {
            "active_decodes": len(plan.decodes),
            "token_budget": plan.knobs.token_budget,
            "predicted_ms": round(plan.predicted_s * 1000, 3),
            "kv_blocks_free": kv_blocks_free,
        }
        victim = "last in the ranking" if plan.knobs.policies.victim is None else "victim by cost"
        for request in self._traced(plan.preempted):
            said = plan.stood_back.get(request, victim)
            self._note(request, "preempted", "preempted", started_s, priority_reason=said, **about)
        for request in self._traced(plan.swapped_out):
            self._note(request, "swapped_out", "swapped", started_s, **about)
        for request in self._traced(plan.swapped_in):
            self._note(request, "swapped_in", "prefilling", started_s, **about)
        for request in self._traced(plan.admitted):
            event = "admitted" if request.admissions == 1 else "resumed"
            self._note(request, event, "prefilling", started_s, **about, **_why(plan, request))
        chunks = []
        for request, tokens in plan.prefills:
            if request in self._phases:
                phase = "prefilling" if request.state is State.PREFILLING else "decoding"
                why = _why(plan, request)
                chunks.append((request, _event(request, "chunk", phase, 0.0, scheduled_tokens=tokens, **about, **why)))
                if phase == "decoding" and request.generated == 1:
                    chunks.append((request, _event(request, "first_token", phase, 0.0, **about)))
        return chunks

    def computed(self, chunks: Sequence[tuple[Request, RequestEvent]]) -> None:
        """Record the chunks of a plan that is done now, but for requests that have ended since it was launched."""
        time_s = round(time.time(), 6)
        for request, event in chunks:
            if request in self._phases:
                self._phases[request] = event.phase
                self._events.append(msgspec.structs.replace(event, time_s=time_s))

    def ended(self, request: Request) -> None:
        """Record why a request ended, if it is traced."""
        if phase := self._phases.get(request):
            reason = request.finish_reason
            assert reason is not None
            code = "deadline_unreachable" if reason is FinishReason.REJECTED else str(reason)
            self._note(request, _ENDS.get(reason, "finished"), phase, time.time(), reason=code)
            del self._phases[request]

    def _traced(self, requests: Iterable[Request]) -> list[Request]:
        return [request for request in requests if request in self._phases]

    def _note(self, request: Request, event: str, phase: str, time_s: float, **more: Any) -> None:
        self._phases[request] = phase
        self._events.append(_event(request, event, phase, time_s, **more))


def _event(request: Request, event: str, phase: str, time_s: float, **more: Any) -> RequestEvent:
    return RequestEvent(
        round(time_s, 6),
        request.request_id,
        event,
        phase,
        request.prompt_tokens,
        request.max_tokens,
        output_tokens=request.generated,
        computed_tokens=request.computed,
        remaining_tokens=0 if phase == "decoding" else request.pending,
        slo_class=request.slo_class,
        prefix=request.keys[0][:_PREFIX_BYTES].hex() if request.keys else "",
        **more,
    )


def _why(plan: Plan, request: Request) -> dict[str, str]:
    return {"priority_reason": plan.reasons.get(request, "")}
