"""Histogram buckets that stay as they are while objectives change: dense enough to read any bound from."""

LATENCY_BUCKETS_S = tuple(round(10 ** (step / 12 - 4), 7) for step in range(12 * 7 + 1))
"""Twelve a decade from 0.1 ms to 1,000 s: neighbours are 21 % apart."""

TOKEN_BUCKETS = tuple(2**power for power in range(18))
"""Token counts from 1 to 131,072."""
