"""Keeps prefills, decodes and waiting requests from starving each other."""

from leeway_core.pod_knobs import PodKnobs
from leeway_core.policies import Protection


def prefill_share(protection: Protection, token_budget: int) -> int:
    """Tokens of an iteration that decodes leave to prefills while there are any; one stays for decodes."""
    return min(token_budget - 1, -(-token_budget * protection.prefill_percent // 100))


def decode_slots(protection: Protection, token_budget: int) -> int:
    """Most decodes of an iteration while there are prefills; at least 1."""
    slots = token_budget - prefill_share(protection, token_budget)
    return slots if protection.decode_cap is None else min(slots, protection.decode_cap)


def longest_wait(knobs: PodKnobs, queue_limit: int, request_tokens: int) -> int:
    """Most iterations from a request's arrival to its first chunk, whatever arrives and however requests are ranked.

    `queue_limit` is the most requests that wait when one arrives, itself included, and `request_tokens` the most
    tokens, prompt and output, that a request has. Holds while the knobs stay.

    From admission to end, the earliest arrival among the running takes at most T iterations, where
    T = boost + ⌈tokens / p⌉ + tokens·⌈R / D⌉: it is boosted, prefills p tokens an iteration (the share for prefills,
    as far as chunk size and the floor of a predicted time let it), then gets one of the D decode slots in each round of
    the R running, and is never preempted. An overdue request has at most N = queue limit + R - 1 others to let through:
    those that wait before it and those that run. Within each T the earliest that runs ends, or an earlier one that
    waits is admitted; each happens at most once for each of the N, and once more for the request itself. In all:
    overdue + (2·N + 1)·T.
    """
    policies = knobs.policies
    protection = policies.protection
    if protection is None:
        raise ValueError("without protection there is no bound; set policies.protection")
    chunk = min(knobs.chunk_size, max(1, prefill_share(protection, knobs.token_budget)))
    if policies.adaptive_chunk is not None:
        chunk = min(chunk, policies.adaptive_chunk.floor_tokens)
    elif policies.iteration_s is not None:
        chunk = 1
    rounds = -(-knobs.running_sequences // decode_slots(protection, knobs.token_budget))
    longest_run = protection.boost_iterations + -(-request_tokens // chunk) + request_tokens * rounds
    others = queue_limit + knobs.running_sequences - 1
    return protection.overdue_iterations + (2 * others + 1) * longest_run
