"""`leeway up` and `leeway down` as a user meets them: refused, kept, and without root."""

import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import unprivileged
import yaml
from clusters import ANY_PORTS, pod
from launching import leeway, traces
from leeway_standalone.binaries import ALL, ensure
from leeway_standalone.environment import chart_folder, installation_folders
from leeway_standalone.standalone import Standalone
from leeway_standalone.state import Ports, StateDirectory

NOBODY = 65534


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
    folders = {*installation_folders(), chart_folder(), binaries["etcd"].parent}
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
