"""Pods outlive a restart of the kubelet and of the container runtime."""

import os
import signal
from itertools import pairwise
from pathlib import Path

import pytest
from clusters import Cluster, eventually, pod
from launching import leeway


def component_processes(cluster: Cluster, words: str) -> list[int]:
    """Find the standalone's processes (seen from the host) whose command line has these words."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
        if words in command and str(cluster.state.root) in command:
            found.append(int(folder.name))
    return found


@pytest.mark.parametrize("words", ["kubelet --config", "leeway_standalone.cri.service"])
def test_pods_keep_running(cluster: Cluster, namespace: str, words: str) -> None:
    cluster.apply(pod("steady", ["sh", "-c", "while :; do date +%s.%N; sleep 0.2; done"]), namespace=namespace)
    cluster.wait_ready(namespace, "steady")
    before = cluster.get("pod", "steady", "-n", namespace)["status"]["containerStatuses"][0]
    (process,) = component_processes(cluster, words)
    os.kill(process, signal.SIGKILL)
    eventually(lambda: any("SIGKILL" in said for said in cluster.state.ailing().values()), 10)
    assert "was ended by SIGKILL" in leeway("status", "--state", str(cluster.state.root)).stdout
    eventually(lambda: [pid for pid in component_processes(cluster, words) if pid != process], 30)
    cluster.apply(pod("after", ["sleep", "3600"]), namespace=namespace)
    cluster.wait_ready(namespace, "after", 60)
    after = cluster.get("pod", "steady", "-n", namespace)["status"]["containerStatuses"][0]
    assert after["containerID"] == before["containerID"]
    assert after["restartCount"] == 0
    assert cluster.exec(namespace, "steady", "echo", "here") == "here\n"
    lines = cluster.kubectl("logs", "-n", namespace, "steady").stdout.split()
    gaps = [float(b) - float(a) for a, b in pairwise(lines)]
    assert max(gaps) < 5, "the container was paused or its log was lost"
