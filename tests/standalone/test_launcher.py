"""`leeway up` and `leeway down` as a user meets them: side by side, killed, refused, kept, and without root."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest
import unprivileged
import yaml
from clusters import ANY_PORTS, Cluster, eventually, pod
from leeway_standalone.binaries import ALL, ensure
from leeway_standalone.environment import installation_folders
from leeway_standalone.standalone import Standalone
from leeway_standalone.state import Ports, StateDirectory

NOBODY = 65534


def leeway(
    *arguments: str, environment: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
) -> "subprocess.CompletedProcess[str]":
    """Run the command line as a user does."""
    return subprocess.run(
        (*prefix, sys.executable, "-m", "leeway_cli", *arguments),
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def traces(root: Path) -> dict[str, list[str]]:
    """Find whatever a standalone in `root` has on the machine: processes and mounts."""
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
        if str(root) in command and folder.name != str(os.getpid()):
            processes.append(command)
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(root) in line]
    return {"processes": processes, "mounts": mounts}


def is_listening(port: int) -> bool:
    with closing(socket.socket()) as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


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
    assert "already runs" in leeway("up", "--state", str(root)).stderr

    os.kill(up.launch.pid, signal.SIGKILL)
    assert eventually(lambda: second.state.running() is None, 10)
    eventually(lambda: not any(traces(root).values()), 5, what=f"nothing left of {root}")
    assert not any(is_listening(port) for port in vars(up.launch.ports).values())
    assert leeway("status", "--state", str(root)).returncode == 1

    # What the killed launcher left in its folder is no hindrance: same ports, same objects.
    again = second.start(ports=second.state.remembered_ports() or ANY_PORTS, binaries=ensure(ALL))
    assert again.launch.ports == up.launch.ports
    assert other.kubectl("get", "configmap", "mine", "-n", "default").returncode == 0
    stopped = leeway("down", "--state", str(root), "--purge")
    assert "Its state is removed" in stopped.stdout
    assert not root.exists()
    assert not any(traces(root).values())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can drop to another user; as a user, every test is this one")
def test_it_runs_without_root() -> None:
    home = Path(f"/var/tmp/leeway-nobody-{os.getpid()}")
    home.mkdir(mode=0o700)
    os.chown(home, NOBODY, NOBODY)
    root = home / "state"
    binaries = ensure(ALL)
    environment = {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home),
        "KUBEBUILDER_ASSETS": str(binaries["etcd"].parent),
        "KUBECONFIG": f"{root}/kubeconfig",
    }
    folders = {*installation_folders(), binaries["etcd"].parent}
    support = Path(unprivileged.__file__)
    as_nobody = (sys.executable, str(support), str(NOBODY), *map(str, folders), "--")
    ports = ("--api-port", "0", "--gateway-port", "0", "--prometheus-port", "0")
    manifest = home / "pod.yaml"
    manifest.write_text(yaml.safe_dump(pod("hello", ["sh", "-c", "id -u; sleep 3600"])))
    try:
        up = leeway("up", str(manifest), "--state", str(root), *ports, environment=environment, prefix=as_nobody)
        assert up.returncode == 0, up.stderr
        assert f"export KUBECONFIG={root}/kubeconfig" in up.stdout

        def kubectl(*arguments: str) -> str:
            command = (binaries["kubectl"], *arguments)
            return subprocess.run(
                command, env={**os.environ, **environment}, check=True, capture_output=True, text=True, timeout=90
            ).stdout

        kubectl("wait", "pod/hello", "--for=condition=Ready", "--timeout=60s")
        assert kubectl("logs", "hello").strip() == "65532"
        state = json.loads(leeway("status", "--state", str(root), "--json").stdout)
        assert os.stat(f"/proc/{state['running']['pid']}").st_uid == NOBODY
    finally:
        down = leeway("down", "--state", str(root), environment=environment, prefix=as_nobody)
        shutil.rmtree(home)
    assert down.returncode == 0, down.stderr
    assert not any(traces(root).values())


def test_a_port_in_use_is_named(place: Path) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = leeway("up", "--state", str(place), "--api-port", str(port))
    assert refused.returncode == 1
    assert f"Port {port}" in refused.stderr
    assert "--api-port" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not any(traces(place).values())


def test_a_component_that_dies_shows_its_last_lines(place: Path, tmp_path: Path) -> None:
    broken = tmp_path / "etcd"
    broken.write_text("#!/bin/sh\necho the disk is made of cheese\nexit 4\n")
    broken.chmod(0o755)
    with pytest.raises(Exception, match=r"(?s)etcd ended with exit code 4.*made of cheese"):
        Standalone(place).start(ports=ANY_PORTS, binaries={**ensure(ALL), "etcd": broken})
    assert StateDirectory(place).running() is None
    assert not any(traces(place).values())


def test_forbidden_user_namespaces_are_explained(tmp_path: Path) -> None:
    limit = Path("/proc/sys/user/max_user_namespaces")
    script = (
        "import sys; from pathlib import Path; from leeway_standalone import linux; "
        "linux.unshare(linux.Namespace.USER); "
        f"Path('{limit}').write_text('0'); "
        "from leeway_standalone import enclosure\n"
        "try: enclosure.enter()\n"
        "except enclosure.StandaloneError as error: print(error)"
    )
    said = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, timeout=30, check=False)
    assert "does not let you make user namespaces" in said.stdout
    assert "max_user_namespaces" in said.stdout


def test_down_and_status_without_a_standalone(tmp_path: Path) -> None:
    assert "Nothing ran" in leeway("down", "--state", str(tmp_path)).stdout
    status = leeway("status", "--state", str(tmp_path))
    assert (status.returncode, "leeway up" in status.stdout) == (1, True)


def test_ports_that_were_free_are_kept(place: Path) -> None:
    state = StateDirectory(place)
    state.create()
    assert state.remembered_ports() is None
    (place / "ports.json").write_text('{"api": 1, "gateway": 2, "prometheus": 3}')
    assert state.remembered_ports() == Ports(1, 2, 3)
