"""How soon six profiles are Ready, how soon a breach is taken back, and what the operator costs while nothing happens.

Breaches are made: while a candidate is on trial, the requests become such as miss their objective. In one trial they do
from its first moment, in the next later; the slower way back counts.
"""

import json
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clusters import Cluster, eventually
from profiles import Served, models_claim, profile

NAMESPACE = "bench"
PROFILES = 6
LATER_S = 10.0
"""How long the second candidate does well: two scrapes."""
IDLE_S = 60.0
TRIAL_TIMEOUT_S = 240.0
TTFT_MS = 500
MEETING, MISSING = 1, 500
"""Output tokens of answers in one piece, whose TTFT is the time of the whole answer."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Cluster.running(Path(folder) / "state") as cluster:
        cluster.kubectl("create", "namespace", NAMESPACE)
        models_claim(cluster, NAMESPACE)
        cluster.apply(way_in("tuned"), namespace=NAMESPACE)
        time.sleep(1.5)  # ages are told in whole seconds
        figures = {"apply_to_ready_s": apply_to_ready_s(cluster)}
        time.sleep(IDLE_S / 2)  # for the status to come to rest
        time.sleep(IDLE_S)
        idle_api_qps = ask(cluster, "sum(rate(leeway_operator_api_calls_total[1m]))")
        visits = "sum by (le) (rate(leeway_operator_visit_seconds_bucket[1m]))"
        served = Served(cluster, NAMESPACE, "tuned")
        served.patch({"tuning": {"mode": "Auto"}})
        figures |= {
            "breach_to_rollback_s": max(breach_to_rollback_s(served, after_s) for after_s in (0.0, LATER_S)),
            "reconcile_ms_p50": round(1e3 * ask(cluster, f"histogram_quantile(0.5, {visits})"), 1),
            "idle_api_qps": round(idle_api_qps, 2),
            "operator_rss_mb": round(ask(cluster, 'process_resident_memory_bytes{component="operator"}') / 1e6, 1),
        }
    print(json.dumps(figures))


def way_in(name: str) -> dict[str, object]:
    """Return a Service that is older than all others before gateways, so that the host's port leads to this profile."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "way-in", "labels": {"leeway.dev/gateway": "true"}},
        "spec": {
            "selector": {"leeway.dev/profile": name, "leeway.dev/component": "gateway"},
            "ports": [{"port": 80, "targetPort": 8000}],
        },
    }


def apply_to_ready_s(cluster: Cluster) -> float:
    """Apply all profiles at once; seconds until the last is Ready."""
    objectives = [{"name": "all", "ttftMs": TTFT_MS, "targetPercent": "90"}]
    tuned = profile("tuned", objectives=objectives, tuning={"windowSeconds": 60, "explorationBudgetPercent": 100})
    others = [profile(f"other-{number}") for number in range(1, PROFILES)]
    began_s = time.monotonic()
    cluster.apply(tuned, *others, namespace=NAMESPACE)
    cluster.kubectl("wait", "sp", "--all", "-n", NAMESPACE, "--for=condition=Ready", "--timeout=170s")
    return round(time.monotonic() - began_s, 1)


def breach_to_rollback_s(served: Served, after_s: float) -> float:
    """Seconds from the first request that is late under a candidate until the incumbent is enforced.

    Requests begin to be late so long after the candidate was put on record, which is just before it is pushed.
    """
    with load(served.cluster) as (tokens, missed_s):
        candidate = next_candidate(served)
        time.sleep(after_s)
        tokens[0] = MISSING
        say(f"on trial: {candidate}")
        eventually(lambda: back(served, candidate["generation"]), 60, every_s=0.2, what="the incumbent")
        took_s = time.monotonic() - missed_s[0]
    decision = served.status["decisions"][0]
    say(f"back after {took_s:.1f} s: {decision['message']}")
    if "beyond chance" not in decision["message"]:
        sys.exit("the trial ended for another reason than the breach")
    return round(took_s, 1)


def next_candidate(served: Served) -> dict[str, int]:
    """Wait until a candidate is put on record, and return it at once: the record is watched."""
    changes = ("--watch", "-o", 'jsonpath={.data.record}{"\\n"}')
    with served.cluster.popen("kubectl", "get", "configmap", "tuned-knobs", "-n", NAMESPACE, *changes) as watch:
        over = threading.Timer(TRIAL_TIMEOUT_S, watch.kill)
        over.start()
        try:
            for record in map(json.loads, watch.stdout or ()):
                if record["trying"]:
                    candidate: dict[str, int] = record["candidate"]
                    return candidate
        finally:
            over.cancel()
            watch.kill()
    sys.exit(f"no trial within {TRIAL_TIMEOUT_S:.0f} s: {served.status}")


def back(served: Served, generation: int) -> bool:
    """Whether a newer set of knobs than the candidate's is enforced, and no trial runs."""
    enforced = served.status["knobs"].get("enforced")
    return not served.record["trying"] and enforced is not None and enforced["generation"] > generation


@contextmanager
def load(cluster: Cluster) -> Iterator[tuple[list[int], list[float]]]:
    """Send requests one after another, several at a time.

    Yields a list whose one entry says how many output tokens they have, and the times at which one was late.
    """
    tokens, missed_s, stop = [MEETING], list[float](), threading.Event()
    url = f"http://127.0.0.1:{cluster.up.launch.ports.gateway}/v1/completions"

    def send() -> None:
        while not stop.wait(0.2):
            body = {"model": "tuned", "prompt": "Hello", "max_tokens": tokens[0], "ignore_eos": True}
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(url, json.dumps(body).encode(), headers)
            began_s = time.monotonic()
            with urllib.request.urlopen(request, timeout=60) as response:
                response.read()
            if tokens[0] == MISSING and time.monotonic() - began_s > TTFT_MS / 1e3:
                missed_s.append(time.monotonic())

    clients = [threading.Thread(target=send) for _ in range(4)]
    for client in clients:
        client.start()
    try:
        yield tokens, missed_s
    finally:
        stop.set()
        for client in clients:
            client.join()


def ask(cluster: Cluster, query: str) -> float:
    """Return the one value of a query."""
    url = f"http://127.0.0.1:{cluster.up.launch.ports.prometheus}/api/v1/query"
    with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode({'query': query})}", timeout=10) as response:
        (found,) = json.load(response)["data"]["result"]
    return float(found["value"][1])


def say(text: str) -> None:
    """Tell progress."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
