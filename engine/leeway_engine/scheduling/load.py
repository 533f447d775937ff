"""The work of an iteration, in the numbers that its duration depends on."""

from typing import NamedTuple


class Load(NamedTuple):
    """What one iteration computes."""

    decodes: int = 0
    context_tokens: int = 0
    """Tokens in KV that the decodes look at, all together."""
    prefill_tokens: int = 0
    prefill_pairs: float = 0.0
    """Sum over the chunks of tokens · (tokens in KV before + half of the chunk): pairs of tokens in attention."""

    def with_chunk(self, tokens: int, context: int) -> "Load":
        """Return the load with one more chunk, of a request that has `context` tokens in KV."""
        pairs = self.prefill_pairs + tokens * (context + tokens / 2)
        return Load(self.decodes, self.context_tokens, self.prefill_tokens + tokens, pairs)
