"""Start a standalone, fill it with 60 pods, stop it: times, memory, and what is left over."""

import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from clusters import ANY_PORTS, Cluster, pod, pod_spec
from kubernetes import client, config, watch
from launching import descendants
from leeway_standalone.binaries import ALL, ensure
from leeway_standalone.standalone import Standalone

PODS = 60
SINGLE_STARTS = 15
NAMESPACE = "bench"


def main() -> None:
    """Print progress on standard error and the figures as one line of JSON."""
    binaries = ensure(ALL)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "state"
        standalone = Standalone(root)
        up = standalone.start(ports=ANY_PORTS, binaries=binaries, on_ready=lambda name, s: say(f"{name} {s:.1f} s"))
        try:
            cluster = Cluster(standalone, up, binaries)
            cluster.kubectl("create", "namespace", NAMESPACE)
            api = client.CoreV1Api(config.new_client_from_config(str(cluster.state.kubeconfig)))
            starts_s = [start_one(api, number) for number in range(SINGLE_STARTS)]
            say(f"single pods: {', '.join(f'{seconds:.2f}' for seconds in starts_s)} s")
            rss_mb = {"before": components_rss_mb(up.launch.pid)}
            many_s = start_many(cluster, api)
            rss_mb["with pods"] = components_rss_mb(up.launch.pid)
            say(f"{PODS} pods after {many_s:.1f} s; components: {rss_mb} MB")
            inside = list(descendants(up.launch.pid))
        finally:
            standalone.stop()
        left = [process for process in inside if Path(f"/proc/{process}").exists()]
    figures = {
        "ready_s": up.seconds,
        "rss_mb": round(max(rss_mb.values())),
        "pods_60_ready_s": round(many_s, 1),
        "pod_start_p50_s": round(statistics.median(starts_s), 2),
        "leftover_processes": len(left),
    }
    print(json.dumps(figures))


def start_one(api: client.CoreV1Api, number: int) -> float:
    """Seconds from the request for a pod to the word that it is Ready."""
    name = f"single-{number}"
    began_s = time.monotonic()
    api.create_namespaced_pod(NAMESPACE, pod(name, ["sleep", "3600"]))
    events = watch.Watch()
    for event in events.stream(api.list_namespaced_pod, NAMESPACE, field_selector=f"metadata.name={name}"):
        if is_ready(event["object"]):
            events.stop()
    seconds = time.monotonic() - began_s
    api.delete_namespaced_pod(name, NAMESPACE, grace_period_seconds=0)
    return seconds


def start_many(cluster: Cluster, api: client.CoreV1Api) -> float:
    """Seconds until all pods of a Deployment answer their readiness probes."""
    probe = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
    serve = ["python", "-m", "http.server", "8080", "--directory", "/usr/share"]
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "many"},
        "spec": {
            "replicas": PODS,
            "selector": {"matchLabels": {"app": "many"}},
            "template": {
                "metadata": {"labels": {"app": "many"}},
                "spec": pod_spec(serve, container={"readinessProbe": probe}),
            },
        },
    }
    began_s = time.monotonic()
    cluster.apply(deployment, namespace=NAMESPACE)
    ready: set[str] = set()
    events = watch.Watch()
    for event in events.stream(api.list_namespaced_pod, NAMESPACE, label_selector="app=many"):
        if is_ready(event["object"]):
            ready.add(event["object"].metadata.name)
            if len(ready) == PODS:
                events.stop()
    return time.monotonic() - began_s


def is_ready(found: client.V1Pod) -> bool:
    """Whether the pod's Ready condition is true."""
    return any(item.type == "Ready" and item.status == "True" for item in found.status.conditions or ())


def components_rss_mb(launcher: int) -> float:
    """Resident memory of the launcher, the node and all components; CoreDNS and Prometheus count, other pods don't."""
    processes = [(process, os.readlink(f"/proc/{process}/ns/pid")) for process in descendants(launcher)]
    own = {os.readlink("/proc/self/ns/pid"), Counter(namespace for _, namespace in processes).most_common(1)[0][0]}
    total = 0
    for process, namespace in processes:
        command = Path(f"/proc/{process}/cmdline").read_text().split("\0")[0]
        if namespace in own or Path(command).name in {"coredns", "prometheus"}:
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return round(total / 1e6, 1)


def say(text: str) -> None:
    """Tell progress."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
