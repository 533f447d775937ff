"""A decoder-only transformer: Llama, Qwen2 and Qwen3 differ by its configuration alone."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from leeway_engine.model.batch import AttentionGroup, Batch
from leeway_engine.model.config import ModelConfig
from leeway_engine.model.kv_cache import KvCache
from leeway_engine.model.rope import rotary_tables, rotate


class RmsNorm(nn.Module):
    """Scales a vector to unit root mean square."""

    def __init__(self, size: int, epsilon: float) -> None:
        """`epsilon` keeps a zero vector finite."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last dimension."""
        return functional.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


class Attention(nn.Module):
    """Grouped-query attention over the paged KV cache."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        """Queries, keys and values come from one projection."""
        super().__init__()
        self.layer = layer
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        outputs = (config.heads + 2 * config.kv_heads) * config.head_dim
        self.qkv = nn.Linear(config.hidden, outputs, bias=config.qkv_bias)
        self.output = nn.Linear(config.heads * config.head_dim, config.hidden, bias=config.output_bias)
        if config.qk_norm:
            self.query_norm = RmsNorm(config.head_dim, config.norm_epsilon)
            self.key_norm = RmsNorm(config.head_dim, config.norm_epsilon)
        self.qk_norm = config.qk_norm

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor, batch: Batch, cache: KvCache) -> Tensor:
        """Let each token see its request's tokens up to itself."""
        heads = self.qkv(x).view(len(x), -1, self.head_dim)
        queries, keys, _ = heads.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        if self.qk_norm:
            queries.copy_(self.query_norm(queries))
            keys.copy_(self.key_norm(keys))
        rotate(heads[:, : self.heads + self.kv_heads], cosines, sines)
        cache.write(self.layer, batch.slots, heads[:, self.heads :].view(len(x), 2, self.kv_heads, self.head_dim))
        attended = torch.empty_like(queries, memory_format=torch.contiguous_format)
        for group in batch.groups:
            attended[group.tokens] = self._attend(queries, group, cache)
        return self.output(attended.flatten(1))  # type: ignore[no-any-return]

    def _attend(self, queries: Tensor, group: AttentionGroup, cache: KvCache) -> Tensor:
        requests, length = group.queries.shape
        keys, values = cache.read(self.layer, group.blocks, requests)
        # The query heads that share a KV head become further queries of it, so no key is copied for each of them.
        shared = self.heads // self.kv_heads
        padded = queries[group.queries].view(requests, length, self.kv_heads, shared, self.head_dim).transpose(1, 2)
        padded = padded.reshape(requests, self.kv_heads, length * shared, self.head_dim)
        attended = functional.scaled_dot_product_attention(padded, keys, values, attn_mask=group.mask)
        attended = attended.view(requests, self.kv_heads, length, shared, self.head_dim).transpose(1, 2)
        return attended.reshape(requests * length, self.heads, self.head_dim)[group.outputs]


class FeedForward(nn.Module):
    """The gated feed-forward block."""

    def __init__(self, config: ModelConfig) -> None:
        """Gate and value come from one projection."""
        super().__init__()
        self.gate_up = nn.Linear(config.hidden, 2 * config.intermediate, bias=False)
        self.down = nn.Linear(config.intermediate, config.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each token by itself."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(functional.silu(gate) * up)  # type: ignore[no-any-return]


class Layer(nn.Module):
    """Attention and feed-forward, each with its norm and a way around it."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        """`layer` is its place, from 0."""
        super().__init__()
        self.attention_norm = RmsNorm(config.hidden, config.norm_epsilon)
        self.attention = Attention(config, layer)
        self.feed_forward_norm = RmsNorm(config.hidden, config.norm_epsilon)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor, batch: Batch, cache: KvCache) -> Tensor:
        """Add what the layer finds to the residual stream."""
        x = x + self.attention(self.attention_norm(x), cosines, sines, batch, cache)
        return x + self.feed_forward(self.feed_forward_norm(x))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """The whole model, from token ids to logits."""

    cosines: Tensor
    sines: Tensor

    def __init__(self, config: ModelConfig) -> None:
        """Weights are to be loaded."""
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(Layer(config, layer) for layer in range(config.layers))
        self.norm = RmsNorm(config.hidden, config.norm_epsilon)
        self.head = nn.Linear(config.hidden, config.vocabulary, bias=False)
        if config.tied_embeddings:
            self.head.weight = self.embedding.weight
        cosines, sines = rotary_tables(config, config.context)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    @torch.inference_mode()
    def forward(self, batch: Batch, cache: KvCache) -> Tensor:
        """Write the batch's keys and values and return the logits of its sampled tokens."""
        x = self.embedding(batch.token_ids)
        cosines = self.cosines[batch.positions].unsqueeze(1)
        sines = self.sines[batch.positions].unsqueeze(1)
        for layer in self.layers:
            x = layer(x, cosines, sines, batch, cache)
        return self.head(self.norm(x[batch.sampled]))  # type: ignore[no-any-return]
