"""Two standalones on one machine: each lives and dies for itself."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import ANY_PORTS, Cluster, eventually, pod
from launching import descendants, is_listening, leeway, start_ticks, traces
from leeway_standalone.binaries import ALL, ensure
from leeway_standalone.standalone import Standalone

CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "kept"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
}


@pytest.fixture
def second(place: Path) -> Iterator[Standalone]:
    """A standalone of the test's own, not yet started."""
    standalone = Standalone(place)
    yield standalone
    standalone.stop()


def test_a_second_one_runs_beside_the_first_until_it_is_killed(cluster: Cluster, second: Standalone) -> None:
    root = second.state.root
    up = second.start(ports=ANY_PORTS, binaries=ensure(ALL))
    other = Cluster(second, up, cluster.binaries)
    other.kubectl("create", "configmap", "mine", "-n", "default")
    assert cluster.kubectl("get", "configmap", "mine", "-n", "default", check=False).returncode != 0
    keep = pod("keeper", ["sh", "-c", "test -e /kept/it || echo kept > /kept/it; cat /kept/it; sleep 3600"])
    keep["spec"]["containers"][0]["volumeMounts"] = [{"name": "kept", "mountPath": "/kept"}]
    keep["spec"]["volumes"] = [{"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}}]
    keep["spec"]["restartPolicy"] = "Always"
    other.apply(CLAIM, keep, namespace="default")
    other.wait_ready("default", "keeper")
    assert "already runs" in leeway("up", "--state", str(root)).stderr

    inside = {process: start_ticks(process) for process in descendants(up.launch.pid)}
    commands = {Path(f"/proc/{process}/cmdline").read_text().split("\0")[0] for process in inside}
    assert {"etcd", "kubelet", "coredns", "prometheus"} <= {Path(command).name for command in commands}
    os.kill(up.launch.pid, signal.SIGKILL)
    assert eventually(lambda: second.state.running() is None, 10)
    eventually(lambda: not any(traces(root).values()), 5, what=f"nothing left of {root}")
    eventually(
        lambda: not [process for process, began in inside.items() if began and start_ticks(process) == began],
        5,
        what="no process of it left",
    )
    assert not any(is_listening(port) for port in vars(up.launch.ports).values())
    assert leeway("status", "--state", str(root)).returncode == 1

    # What the killed launcher left in its folder is no hindrance: same ports, same objects; files of the dead node go.
    stale = second.state.node / "cri" / "stale"
    stale.touch()
    again = second.start(ports=second.state.remembered_ports() or ANY_PORTS, binaries=ensure(ALL))
    assert not stale.exists()
    assert again.launch.ports == up.launch.ports
    assert other.kubectl("get", "configmap", "mine", "-n", "default").returncode == 0
    (volume,) = second.state.volumes.glob("*/it")
    assert volume.read_text() == "kept\n"
    eventually(lambda: other.kubectl("logs", "keeper", "-n", "default", check=False).stdout == "kept\n", 60)
    stopped = leeway("down", "--state", str(root), "--purge")
    assert "Its state is removed" in stopped.stdout
    assert not root.exists()
    assert not any(traces(root).values())
