"""What a user of Kubernetes relies on, on a standalone: workloads, volumes, probes, hooks, Services, failures."""

import fcntl
import json
import os
import pty
import socket
import struct
import subprocess
import termios
import time
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from clusters import LEEWAY_IMAGE, RESTRICTED_CONTAINER, RESTRICTED_POD, Cluster, eventually, pod, pod_spec
from leeway_standalone.environment import installation_folders

SERVE = ["python", "-m", "http.server", "8080", "--directory", "/pages"]
HTTP_PROBE = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
SLEEP = ["sleep", "3600"]
FETCH = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).status)"


def service(name: str, *, headless: bool = False) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {
            "selector": {"app": name},
            "ports": [{"port": 80, "targetPort": 8080}],
            **({"clusterIP": "None"} if headless else {}),
        },
    }


def workload(kind: str, name: str, replicas: int, spec: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
            **extra,
        },
    }


def server_spec(**container: Any) -> dict[str, Any]:
    spec = pod_spec(SERVE, container={"readinessProbe": HTTP_PROBE, **container})
    spec["containers"][0]["volumeMounts"] = [{"name": "pages", "mountPath": "/pages"}]
    spec["volumes"] = [{"name": "pages", "emptyDir": {}}]
    return spec


def test_a_statefulset_is_reached_by_name_and_cluster_address(cluster: Cluster, namespace: str) -> None:
    cluster.apply(
        service("web"),
        workload("StatefulSet", "web", 2, server_spec(), serviceName="web", podManagementPolicy="Parallel"),
        pod("client", SLEEP),
        namespace=namespace,
    )
    cluster.wait_ready(namespace, "statefulset/web")
    cluster.wait_ready(namespace, "client")
    address = cluster.get("service", "web", "-n", namespace)["spec"]["clusterIP"]
    for host in ("web", f"web.{namespace}.svc.cluster.local", address):
        fetch = ("python", "-c", FETCH, f"http://{host}/")
        eventually(lambda: cluster.exec(namespace, "client", *fetch, check=False).strip() == "200", what=host)  # noqa: B023 - called at once
    connect = "import socket; socket.create_connection(('kubernetes.default', 443), 5); print('connected')"
    assert "connected" in cluster.exec(namespace, "client", "python", "-c", connect)
    # A pod reaches itself through its own Service.
    assert cluster.exec(namespace, "web-0", "python", "-c", FETCH, "http://web/").strip() == "200"


def test_configuration_reaches_a_pod_by_every_way(cluster: Cluster, namespace: str) -> None:
    read = (
        "import json, os, pathlib; "
        "p = lambda f: pathlib.Path(f).read_text(); "
        "t = '/var/run/secrets/kubernetes.io/serviceaccount/'; "
        "print(json.dumps({'config': p('/config/colour'), 'secret': p('/secret/word'), 'env': os.environ['COLOUR'], "
        "'shared': p('/shared/made'), 'labels': p('/info/labels'), 'ip': os.environ['POD_IP'], "
        "'token': p(t + 'token').count('.'), 'ca': 'BEGIN CERTIFICATE' in p(t + 'ca.crt'), "
        "'host': os.uname().nodename, "
        "'memory': os.environ['MEMORY'], 'uid': os.getuid()}), flush=True); "
        "import time; time.sleep(3600)"
    )
    mounts = [
        {"name": "config", "mountPath": "/config"},
        {"name": "secret", "mountPath": "/secret"},
        {"name": "shared", "mountPath": "/shared"},
        {"name": "info", "mountPath": "/info"},
    ]
    environment = [
        {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "config", "key": "colour"}}},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}},
    ]
    limits = {"limits": {"memory": "256Mi"}}
    reader = pod(
        "reader",
        ["python", "-c", read],
        container={"volumeMounts": mounts, "env": environment, "resources": limits},
        initContainers=[
            {
                "name": "make",
                "image": LEEWAY_IMAGE,
                "command": ["sh", "-c", "echo -n by-init > /shared/made"],
                "securityContext": dict(RESTRICTED_CONTAINER),
                "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
            }
        ],
        volumes=[
            {"name": "config", "configMap": {"name": "config"}},
            {"name": "secret", "secret": {"secretName": "secret"}},
            {"name": "shared", "emptyDir": {}},
            {
                "name": "info",
                "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]},
            },
        ],
    )
    cluster.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config"}, "data": {"colour": "green"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret"}, "stringData": {"word": "hush"}},
        reader,
        namespace=namespace,
    )
    cluster.wait_ready(namespace, "reader")
    seen = json.loads(eventually(lambda: cluster.kubectl("logs", "-n", namespace, "reader").stdout))
    address = cluster.get("pod", "reader", "-n", namespace)["status"]["podIP"]
    assert seen == {
        "config": "green",
        "secret": "hush",
        "env": "green",
        "shared": "by-init",
        "labels": 'app="reader"',
        "ip": address,
        "token": 2,
        "ca": True,
        "host": "reader",
        "memory": str(256 * 2**20),
        "uid": 65532,
    }
    cluster.kubectl("patch", "configmap", "config", "-n", namespace, "-p", '{"data": {"colour": "blue"}}')
    eventually(lambda: cluster.exec(namespace, "reader", "cat", "/config/colour") == "blue", 90)


def test_probes_and_hooks_run(cluster: Cluster, namespace: str) -> None:
    healthy = {"exec": {"command": ["test", "-e", "/tmp/healthy"]}, "periodSeconds": 1, "failureThreshold": 1}
    tmp = {"volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}
    stop = {"preStop": {"exec": {"command": ["sh", "-c", "echo stopping > /proc/1/fd/1; sleep 1"]}}}
    ends_on_term = ["sh", "-c", "trap 'echo ended; exit 0' TERM; touch /tmp/healthy; while :; do sleep 0.1; done"]
    volumes = [{"name": "tmp", "emptyDir": {}}]
    cluster.apply(
        pod("alive", ends_on_term, container={**tmp, "livenessProbe": healthy, "lifecycle": stop}, volumes=volumes),
        pod("ready", SLEEP, container={**tmp, "readinessProbe": healthy}, volumes=volumes),
        namespace=namespace,
    )
    cluster.wait_ready(namespace, "alive")
    cluster.exec(namespace, "alive", "rm", "/tmp/healthy")

    def restarts() -> int:
        return int(cluster.get("pod", "alive", "-n", namespace)["status"]["containerStatuses"][0]["restartCount"])

    eventually(restarts)
    before = cluster.kubectl("logs", "-n", namespace, "alive", "--previous").stdout
    assert before.split() == ["stopping", "ended"]
    conditions = {
        item["type"]: item["status"] for item in cluster.get("pod", "ready", "-n", namespace)["status"]["conditions"]
    }
    assert conditions["Ready"] == "False"
    cluster.exec(namespace, "ready", "touch", "/tmp/healthy")
    cluster.wait_ready(namespace, "ready", 15)


def test_what_fails_says_how(cluster: Cluster, namespace: str) -> None:
    hungry = "import time; b = bytearray(300 << 20); time.sleep(3600)"
    as_someone = {**RESTRICTED_POD, "runAsUser": 1000}
    cluster.apply(
        pod("crashing", ["sh", "-c", "echo bad luck; exit 3"]),
        pod("hungry", ["python", "-c", hungry], container={"resources": {"limits": {"memory": "100Mi"}}}),
        pod("done", ["true"], restartPolicy="Never"),
        pod("absent", ["/no/such/program"]),
        pod("foreign", [], container={"image": "nginx:1", "command": None}, securityContext=as_someone),
        pod("other-version", ["true"], container={"image": "leeway/leeway:0.0.1"}),
        namespace=namespace,
    )

    def container(name: str) -> dict[str, Any]:
        statuses = cluster.get("pod", name, "-n", namespace)["status"].get("containerStatuses") or [{}]
        return statuses[0]

    def last(name: str) -> dict[str, Any]:
        return container(name).get("lastState", {}).get("terminated") or {}

    eventually(lambda: container("crashing").get("restartCount", 0) >= 2)
    assert (last("crashing")["exitCode"], last("crashing")["reason"]) == (3, "Error")
    eventually(lambda: container("crashing")["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff")
    eventually(lambda: last("hungry"))
    assert (last("hungry")["exitCode"], last("hungry")["reason"]) == (137, "OOMKilled")
    done = eventually(lambda: container("done")["state"].get("terminated"))
    assert (done["exitCode"], done["reason"]) == (0, "Completed")
    for name, words in {"absent": "/no/such/program", "foreign": "set command", "other-version": "use the tag"}.items():
        eventually(lambda: words in cluster.events(namespace, name), what=f"an event of {name} that says {words}")  # noqa: B023 - called at once


def test_a_rolling_update_drops_no_request(cluster: Cluster, namespace: str) -> None:
    stop = {"lifecycle": {"preStop": {"exec": {"command": ["sleep", "2"]}}}}
    deployment = workload(
        "Deployment",
        "web",
        2,
        server_spec(**stop),
        strategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        minReadySeconds=1,
    )
    ask = (
        "import sys, time, urllib.request\n"
        "good = bad = 0\n"
        "while True:\n"
        "    try:\n"
        "        urllib.request.urlopen('http://web/', timeout=5).read(); good += 1\n"
        "    except OSError as error:\n"
        "        if good: bad += 1; print('bad', error, flush=True)\n"  # Before that the rules are still being written.
        "    if good and good % 20 == 0: print('good', good, bad, flush=True)\n"
        "    time.sleep(0.02)\n"
    )
    cluster.apply(service("web"), deployment, namespace=namespace)
    cluster.wait_ready(namespace, "deployment/web")
    cluster.apply(pod("client", ["python", "-c", ask]), namespace=namespace)
    cluster.wait_ready(namespace, "client")
    eventually(lambda: "good" in cluster.kubectl("logs", "-n", namespace, "client").stdout)
    cluster.kubectl("rollout", "restart", "-n", namespace, "deployment/web")
    cluster.wait_ready(namespace, "deployment/web", 90)
    time.sleep(3)
    log = cluster.kubectl("logs", "-n", namespace, "client").stdout
    assert "bad" not in log
    assert int(log.split()[-2]) > 50


def test_logs_of_both_streams_are_followed(cluster: Cluster, namespace: str) -> None:
    count = "i=0; while [ $i -lt 40 ]; do echo line $i; echo err $i >&2; i=$((i+1)); sleep 0.05; done; sleep 3600"
    cluster.apply(pod("chatty", ["sh", "-c", count]), namespace=namespace)
    cluster.wait_ready(namespace, "chatty")
    follower = cluster.popen("kubectl", "logs", "-f", "-n", namespace, "chatty")
    try:
        assert follower.stdout
        seen: list[str] = []
        for line in follower.stdout:
            seen.append(line.strip())
            if len(seen) == 80:
                break
    finally:
        follower.kill()
        follower.communicate()
    assert sorted(seen) == sorted([f"line {i}" for i in range(40)] + [f"err {i}" for i in range(40)])
    assert [line for line in seen if line.startswith("line")] == [f"line {i}" for i in range(40)]


def test_exec_and_port_forward(cluster: Cluster, namespace: str) -> None:
    cluster.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": server_spec()}, namespace=namespace
    )
    cluster.wait_ready(namespace, "web")
    failed = cluster.kubectl("exec", "-n", namespace, "web", "--", "sh", "-c", "echo out; exit 7", check=False)
    assert (failed.stdout, failed.returncode) == ("out\n", 7)
    echoed = subprocess.run(
        (cluster.binaries["kubectl"], "exec", "-i", "-n", namespace, "web", "--", "cat"),
        env=cluster.environment,
        input="through stdin",
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert echoed.stdout == "through stdin"
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    forward = cluster.popen("kubectl", "port-forward", "-n", namespace, "pod/web", f"{port}:8080")
    try:
        assert forward.stdout
        assert "Forwarding from" in forward.stdout.readline()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
            assert answer.status == 200
    finally:
        forward.kill()
        forward.communicate()


def test_a_terminal_a_copy_and_what_there_is_in_place_of_attach(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    cluster.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": server_spec()}, namespace=namespace
    )
    cluster.wait_ready(namespace, "web")
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
    command = ("sh", "-c", "test -t 0 && test -t 1 && echo a terminal; sleep 1; stty size")
    shell = subprocess.Popen(
        (cluster.binaries["kubectl"], "exec", "-it", "-n", namespace, "web", "--", *command),
        env=cluster.environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    with closing(open(ours, "rb", buffering=0)) as terminal:
        assert shell.wait(30) == 0
        said = terminal.read(4096).decode()
    assert "a terminal" in said
    assert "33 99" in said

    source = tmp_path / "page"
    source.write_text("copied")
    cluster.kubectl("cp", str(source), f"{namespace}/web:/pages/page")
    cluster.kubectl("cp", f"{namespace}/web:/pages/page", str(tmp_path / "back"))
    assert (tmp_path / "back").read_text() == "copied"

    attached = cluster.kubectl("attach", "-n", namespace, "web", check=False)
    assert attached.returncode != 0
    assert "logs" in attached.stderr


def test_a_sidecar_lives_as_long_as_its_pods_work(cluster: Cluster, namespace: str) -> None:
    said = [{"name": "said", "mountPath": "/said"}]
    work = "until grep -q up /said/sidecar; do sleep 0.1; done"
    spec = pod_spec(["sh", "-c", work], container={"volumeMounts": said}, restartPolicy="Never")
    sidecar = {
        **spec["containers"][0],
        "name": "sidecar",
        "command": ["sh", "-c", "trap 'exit 0' TERM; echo up > /said/sidecar; while :; do sleep 0.1; done"],
        "restartPolicy": "Always",
    }
    spec |= {"initContainers": [sidecar], "volumes": [{"name": "said", "emptyDir": {}}]}
    cluster.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "helped"}, "spec": spec}, namespace=namespace
    )
    status = eventually(
        lambda: (found := cluster.get("pod", "helped", "-n", namespace)["status"])["phase"] == "Succeeded" and found, 30
    )
    (ended,) = status["initContainerStatuses"]
    assert ended["state"]["terminated"]["exitCode"] == 0


def test_an_ephemeral_container_joins_a_pod(cluster: Cluster, namespace: str) -> None:
    cluster.apply(pod("plain", SLEEP), namespace=namespace)
    cluster.wait_ready(namespace, "plain")
    look = ("--image", LEEWAY_IMAGE, "--profile=restricted", "--container=look", "--", "sh", "-c", "hostname; sleep 60")
    cluster.kubectl("debug", "-n", namespace, "plain", *look)
    looked = ("logs", "-n", namespace, "plain", "-c", "look")
    eventually(lambda: cluster.kubectl(*looked, check=False).stdout == "plain\n", 30)


def test_the_kubelet_tells_what_pods_use(cluster: Cluster, namespace: str) -> None:
    cluster.apply(pod("busy", ["sh", "-c", "while :; do :; done"]), namespace=namespace)
    cluster.wait_ready(namespace, "busy")
    (node,) = cluster.get("nodes")["items"]
    path = f"/api/v1/nodes/{node['metadata']['name']}/proxy/stats/summary"

    def used() -> tuple[int, int]:
        pods = json.loads(cluster.kubectl("get", "--raw", path).stdout)["pods"]
        (found,) = [
            each for each in pods if each["podRef"] == {**each["podRef"], "name": "busy", "namespace": namespace}
        ]
        (container,) = found["containers"]
        return container["cpu"].get("usageCoreNanoSeconds", 0), container["memory"].get("workingSetBytes", 0)

    eventually(lambda: used()[0] > 2e8 and used()[1] > 1e5, 30, what="a busy container's use")


def test_a_container_sees_neither_the_user_nor_the_node(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    cluster.apply(pod("curious", SLEEP), namespace=namespace)
    cluster.wait_ready(namespace, "curious")
    installed = installation_folders()
    private = [path for path in Path.home().iterdir() if not any(folder.is_relative_to(path) for folder in installed)]
    for path in (cluster.state.root, tmp_path, *private[:5]):
        assert path.exists()
        seen = cluster.kubectl("exec", "-n", namespace, "curious", "--", "ls", "-d", str(path), check=False)
        assert "No such file" in seen.stderr
    written = cluster.kubectl("exec", "-n", namespace, "curious", "--", "touch", "/usr/x", "/x", check=False)
    assert written.returncode != 0
    processes = cluster.exec(namespace, "curious", "sh", "-c", "ls -d /proc/[0-9]*").split()
    assert len(processes) <= 4
    capabilities = cluster.exec(namespace, "curious", "grep", "CapEff", "/proc/self/status").split()[1]
    assert int(capabilities, 16) == 0


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("hostPID", {"hostPID": True}),
        ("privileged", {"container": {"securityContext": {"privileged": True}}}),
        ("hostPort", {"container": {"ports": [{"containerPort": 80, "hostPort": 80}]}}),
        ("shareProcessNamespace", {"shareProcessNamespace": True}),
        ("resources.limits.cpu", {"container": {"resources": {"limits": {"cpu": "500m"}}}}),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_an_event(
    cluster: Cluster, namespace: str, field: str, change: dict[str, Any]
) -> None:
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=privileged", "--overwrite")
    cluster.apply(pod("odd", SLEEP, **change), namespace=namespace)
    eventually(lambda: field in cluster.events(namespace, "odd"), 30, what=f"an event that names {field}")
