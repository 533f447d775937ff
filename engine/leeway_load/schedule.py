"""Turns a trace into planned requests: the send times are fixed here, before anything is sent. Pure."""

import random
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate

from leeway_core.errors import UserError

from leeway_load.prompt import Segment
from leeway_load.trace import MOONCAKE_BLOCK_TOKENS, Trace, TraceRecord
from leeway_load.workload import Lengths, Workload

SHARED_PART = 0.75
"""How much of its prompt an injected prefix hit shares with its tenant's other hits."""


class Departure(StrEnum):
    """What a client's leaving before the end means."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request, known in full before the first is sent."""

    index: int
    """Place in the trace."""
    send_s: float
    prompt: tuple[Segment, ...]
    output_tokens: int
    class_name: str
    """Name of the objective, empty if there are none."""
    tenant: str
    patience_s: float
    """The client leaves if the answer isn't complete this long after sending."""
    departure: Departure
    prefix_hit: bool = False
    """Whether at least half of the prompt begins an earlier request of the plan."""
    short: bool = True

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return sum(segment.tokens for segment in self.prompt)

    @property
    def cohort(self) -> str:
        """Prompt length and prefix, in words."""
        return f"{'short' if self.short else 'long'} {'hit' if self.prefix_hit else 'miss'}"


def plan(trace: Trace, workload: Workload) -> list[PlannedRequest]:
    """The requests in order of sending. Leaving some out (`lengths`) changes nothing about the others."""
    count = len(trace.records) if workload.max_requests is None else workload.max_requests
    if workload.rate is not None and workload.duration_s is not None:
        count = min(count, max(1, round(workload.rate * workload.duration_s)))
    records = trace.records[:count]
    draws = [random.Random(f"{workload.seed}/{index}") for index in range(len(records))]  # noqa: S311 - no secret
    arrivals_s = [record.arrival_s + trace.tick_s * draw.random() for record, draw in zip(records, draws, strict=True)]
    planner = _Planner(workload)
    requests = [
        planner.request(index, record, time_s, draw)
        for index, (record, time_s, draw) in enumerate(
            zip(records, _send_times(arrivals_s, workload), draws, strict=True)
        )
    ]
    sent = sorted((one for one in requests if _is_sent(one, workload)), key=lambda one: (one.send_s, one.index))
    if not sent:
        raise UserError("no request of the trace is left to send: widen the lengths, the duration or the trace")
    return list(_with_prefix_hits(sent))


def _send_times(arrivals_s: Sequence[float], workload: Workload) -> Iterator[float]:
    first_s, last_s = min(arrivals_s), max(arrivals_s)
    scale = workload.time_scale
    if workload.rate is not None and len(arrivals_s) > 1:
        if last_s == first_s:
            raise UserError("all requests arrive at one moment, which no scaling brings to a rate")
        scale = (len(arrivals_s) - 1) / workload.rate / (last_s - first_s)
    for arrival_s in arrivals_s:
        time_s = (arrival_s - first_s) * scale
        if workload.burst_period_s is not None:
            into_s = time_s % workload.burst_period_s
            time_s -= into_s * (1 - workload.burst_share)
        yield time_s


class _Planner:
    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._class_weights = list(accumulate(one.weight for one in workload.classes))
        self._tenant_weights = list(accumulate(rank**-workload.tenant_skew for rank in range(1, workload.tenants + 1)))

    def request(self, index: int, record: TraceRecord, send_s: float, draw: random.Random) -> PlannedRequest:
        workload = self._workload
        # Everything is drawn, needed or not, so that no option changes what another draws.
        class_draw, tenant_draw, prefix_draw, departure_draw, patience_draw = (draw.random() for _ in range(5))
        tenant = f"tenant-{_pick(self._tenant_weights, tenant_draw) + 1}"
        prompt_tokens = _length(record.prompt_tokens, workload.prompt_scale, workload.max_prompt_tokens)
        if workload.prefix_hit_share is None:
            prompt = _traced_prompt(index, record, prompt_tokens, workload.prompt_scale)
        else:
            prompt = _mixed_prompt(index, tenant if prefix_draw < workload.prefix_hit_share else "", prompt_tokens)
        patience_s, departure = workload.timeout_s, Departure.TIMEOUT
        if departure_draw < workload.cancel_share:
            patience_s, departure = min(patience_s, patience_draw * workload.cancel_within_s), Departure.CANCEL
        elif departure_draw < workload.cancel_share + workload.hasty_share:
            patience_s = min(patience_s, workload.hasty_timeout_s)
        classes = workload.classes
        return PlannedRequest(
            index=index,
            send_s=send_s,
            prompt=tuple(prompt),
            output_tokens=_length(record.output_tokens, workload.output_scale, workload.max_output_tokens),
            class_name=classes[_pick(self._class_weights, class_draw)].objective.name if classes else "",
            tenant=tenant,
            patience_s=patience_s,
            departure=departure,
            short=prompt_tokens <= workload.short_tokens,
        )


def _pick(cumulated_weights: Sequence[float], draw: float) -> int:
    return bisect(cumulated_weights, draw * cumulated_weights[-1], hi=len(cumulated_weights) - 1)


def _length(tokens: int, scale: float, most: int | None) -> int:
    scaled = max(1, round(tokens * scale))
    return scaled if most is None else min(scaled, most)


def _mixed_prompt(index: int, shared_with: str, tokens: int) -> Iterator[Segment]:
    shared = int(tokens * SHARED_PART) if shared_with else 0
    if shared:
        yield Segment(shared_with, shared)
    yield Segment(f"request/{index}", tokens - shared)


def _traced_prompt(index: int, record: TraceRecord, tokens: int, scale: float) -> Iterator[Segment]:
    done = 0
    for number, block in enumerate(record.prefix_hashes, start=1):
        end = min(tokens, round(number * MOONCAKE_BLOCK_TOKENS * scale))
        if end > done:
            yield Segment(f"block/{block}", end - done)
            done = end
    if done < tokens:
        yield Segment(f"request/{index}", tokens - done)


def _is_sent(request: PlannedRequest, workload: Workload) -> bool:
    in_time = workload.duration_s is None or request.send_s < workload.duration_s
    return in_time and (workload.lengths is Lengths.ALL or request.short == (workload.lengths is Lengths.SHORT))


def _with_prefix_hits(requests: Iterable[PlannedRequest]) -> Iterator[PlannedRequest]:
    seen: dict[str, int] = {}
    for request in requests:
        known = 0
        for segment in request.prompt:
            common = min(segment.tokens, seen.get(segment.key, 0))
            known += common
            if common < segment.tokens:
                break
        for segment in request.prompt:
            seen[segment.key] = max(segment.tokens, seen.get(segment.key, 0))
        yield replace(request, prefix_hit=2 * known >= request.prompt_tokens)
