"""Judges by which objectives gateways judge: pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Self

from leeway_operator.telemetry.series import Series


@dataclass(frozen=True, slots=True)
class Obedience:
    """Which live gateways judge by a profile's objectives, and since when."""

    former: tuple[str, ...]
    """Pods whose last scrape shows other objectives."""
    silent: tuple[str, ...]
    """Pods that show none."""
    since_s: float
    """First scrape, in Unix time, from which all others show these alone; minus infinity where they always have."""

    @classmethod
    def of(cls, series: Sequence[Series], pods: Collection[str], digest: str) -> Self:
        """Judge raw samples of the gateways' series of objectives, those of all digests."""
        shown: dict[str, list[tuple[float, bool]]] = {pod: [] for pod in sorted(pods)}
        for each in series:
            pod = each.labels.get("pod", "")
            if pod in shown:
                shown[pod] += [(time_s, each.labels.get("digest") == digest) for time_s, _ in each.samples]
        since_s, former = float("-inf"), []
        for pod, scrapes in shown.items():
            others_s = max((time_s for time_s, ours in scrapes if not ours), default=float("-inf"))
            ours_s = [time_s for time_s, ours in scrapes if ours and time_s > others_s]
            if scrapes and not ours_s:
                former.append(pod)
            elif scrapes and others_s > float("-inf"):
                since_s = max(since_s, min(ours_s))
        return cls(tuple(former), tuple(pod for pod, scrapes in shown.items() if not scrapes), since_s)

    @property
    def behind(self) -> tuple[str, ...]:
        """Pods that do not judge by these objectives, as far as is known."""
        return self.former + self.silent
