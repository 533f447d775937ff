"""The tensors of one iteration: tokens of all requests in one row, and groups of similar shape for attention."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """Requests whose new tokens and contexts are padded to one shape: `requests` rows of `queries` tokens."""

    queries: Tensor
    """Index in the batch of each new token, [requests, queries]. Padding repeats a row's last token."""
    outputs: Tensor
    """Places of the true tokens among all [requests x queries]."""
    tokens: Tensor
    """Index in the batch of these true tokens."""
    blocks: Tensor
    """KV blocks of all rows, [requests x blocks per row]."""
    mask: Tensor
    """0 where a query sees a key and -inf elsewhere, [requests, 1, queries x heads per KV head, keys]."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One forward pass of the model."""

    token_ids: Tensor
    positions: Tensor
    slots: Tensor
    """Place in the KV cache of each token."""
    groups: list[AttentionGroup]
    sampled: Tensor
    """Index of the tokens after which one is drawn."""
