"""The pod with the fewest requests."""

from collections.abc import Iterable
from typing import NamedTuple


class PodLoad(NamedTuple):
    """A pod, ordered by how gladly it is chosen."""

    requests: int
    """Requests of this gateway that the pod has in hand."""
    last_placed: int
    """Number of the placement that chose it last, 0 if none did: among equals the turn goes round."""
    name: str


def least_loaded(pods: Iterable[PodLoad]) -> str | None:
    """Return the name of the pod for the next request, None if there is no pod."""
    return min(pods, default=PodLoad(0, 0, "")).name or None
