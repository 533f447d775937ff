"""Keeps prefills, decodes and waiting requests from starving each other."""

from leeway_core.pod_knobs import PodKnobs
from leeway_core.policies import Protection, SkipJoin


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
    T = boost + tokens·⌈R / D⌉: once boosted it goes first and prefills at least one token an iteration, of the share
    for prefills, whatever is predicted, then it gets one of the D decode slots in each round of
    the R running, and is never preempted. An overdue request has at most N = queue limit + R - 1 others to let through:
    those that wait before it and those that run. Within each T the earliest that runs ends, or an earlier one that
    waits is admitted; each happens at most once for each of the N, and once more for the request itself. In all:
    overdue + (2·N + 1)·T.

    Where requests stand back for others (`skip_join`), none does that is overdue, and while an overdue one waits they
    do so for nobody else: one that arrived before it never stands back, and where a later one does, an earlier one is
    admitted at once, which is counted.
    """
    others = queue_limit + knobs.running_sequences - 1
    return _protection(knobs).overdue_iterations + (2 * others + 1) * longest_run(knobs, request_tokens)


def longest_pause(knobs: PodKnobs, queue_limit: int, request_tokens: int) -> int:
    """Most iterations from one token of a request to the next, in the words and under the terms of `longest_wait`.

    Where all growth is reserved and none stands back for others, nobody is preempted, and each decode gets its turn in
    ⌈R / D⌉ iterations. Otherwise a request may be preempted time and again until it is the earliest of all. Once that
    one is overdue it waits only for those that run, of which one ends within each T, and once it runs it is not
    preempted: it ends within (R + 1)·T. At most N requests are the earliest of all before this one:
    overdue + (N + 1)·(R + 1)·T.
    """
    protection = _protection(knobs)
    if knobs.policies.growth.reserve == "all" and not isinstance(knobs.policies.ranking, SkipJoin):
        return _rounds(knobs)
    others, running = queue_limit + knobs.running_sequences - 1, knobs.running_sequences
    return protection.overdue_iterations + (others + 1) * (running + 1) * longest_run(knobs, request_tokens)


def _protection(knobs: PodKnobs) -> Protection:
    if knobs.policies.protection is None:
        raise ValueError("without protection there is no bound; set policies.protection")
    return knobs.policies.protection


def _rounds(knobs: PodKnobs) -> int:
    """Iterations in which each of the running sequences gets one decode slot."""
    return -(-knobs.running_sequences // decode_slots(_protection(knobs), knobs.token_budget))


def longest_run(knobs: PodKnobs, request_tokens: int) -> int:
    """T: iterations from the admission of the earliest arrival among the running to its end."""
    return _protection(knobs).boost_iterations + request_tokens * _rounds(knobs)
