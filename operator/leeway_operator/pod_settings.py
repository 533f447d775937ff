"""What a profile's knobs mean for one of its pods."""

from leeway_core.knobs import Knobs
from leeway_core.pod_knobs import PodKnobs
from leeway_core.policies import Policies


def pod_settings(knobs: Knobs, policies: Policies, ordinal: int, replicas: int) -> PodKnobs:
    """Return the knobs of the pod with this ordinal; the first pods are the P-heavy ones, policies are for all."""
    prefill_heavy = (knobs.prefill_heavy_percent * replicas + 50) // 100
    chunk = knobs.prefill_heavy_chunk if ordinal < prefill_heavy else knobs.decode_heavy_chunk
    return PodKnobs(
        generation=knobs.generation,
        token_budget=knobs.token_budget,
        chunk_size=max(chunk, 1),  # a pod that every request may come to must be able to prefill
        running_sequences=min(knobs.running_sequences, knobs.token_budget),  # each takes a token of every iteration
        policies=policies,
    )
