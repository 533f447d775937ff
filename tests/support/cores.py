"""How much of the cores other processes take, by which a measurement knows that it is void."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

MOST_TAKEN_BY_OTHERS = 0.05


def refuse_if_taken(others_share: float, figures: Mapping[str, object], most: float = MOST_TAKEN_BY_OTHERS) -> None:
    """Exit with an error, and without figures on standard output, if others took more of the cores than that share."""
    if others_share > most:
        said = json.dumps(figures)
        sys.exit(f"void: other processes took {others_share:.0%} of the cores; it would have said {said}")


class CoreWatch:
    """Compares the time that all cores were busy with what this process, and some others that belong to it, used."""

    def __init__(self, pids: Sequence[int] = ()) -> None:
        """Begin now; `pids` belong to the measurement too and must outlive it."""
        self._pids = pids
        self._cores = len(os.sched_getaffinity(0))
        self._began_s = self._readings()

    def others_share(self) -> float:
        """Share of the cores that others took since the beginning."""
        (uptime_s, busy_s, own_s), (uptime_then_s, busy_then_s, own_then_s) = self._began_s, self._readings()
        others_s = max(0.0, busy_then_s - busy_s - (own_then_s - own_s))
        return others_s / (uptime_then_s - uptime_s) / self._cores

    def _readings(self) -> tuple[float, float, float]:
        """Seconds since boot, busy seconds of all cores, stolen time included, and those of this measurement."""
        user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
        own = os.times()
        own_s = own.user + own.system + sum(map(_cpu_s, self._pids))
        return _uptime_s(), (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK"), own_s


def _uptime_s() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


def _cpu_s(pid: int) -> float:
    """User and system seconds of a process."""
    # The second field, a name in parentheses, may itself have blanks.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
