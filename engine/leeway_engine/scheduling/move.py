"""Copies of whole KV blocks that come before an iteration's forward pass."""

from enum import Enum
from typing import NamedTuple


class Way(Enum):
    """Between which memories a block is copied."""

    COPY = "copy"
    """From device to device."""
    OUT = "out"
    """From device to host."""
    IN = "in"
    """From host to device."""


class Move(NamedTuple):
    """One copy. Moves are done in their order: a block may be written anew as soon as it has been read."""

    way: Way
    source: int
    target: int
