"""The inside of a standalone, from its namespaces to its components. Started by the launcher, controlled by pipes.

Standard input: closed by the launcher to stop the node. Standard output: one JSON object a line for each event.
"""

import datetime
import json
import os
import select
import signal
import sys
from pathlib import Path

import yaml

from leeway_standalone import components, enclosure, linux
from leeway_standalone.components import Component
from leeway_standalone.credentials import Credentials, issue_credentials
from leeway_standalone.environment import images, installation_folders
from leeway_standalone.errors import StandaloneError
from leeway_standalone.linux import MountFlag
from leeway_standalone.network import prepare_node
from leeway_standalone.settings import NodeSettings
from leeway_standalone.state import StateDirectory
from leeway_standalone.supervisor import Supervisor

PROVISIONED_VOLUMES = Path("/tmp/hostpath_pv")  # noqa: S108 - where Kubernetes' host-path provisioner puts them


def main() -> None:
    """Run the node until told to stop; the settings are the only argument."""
    settings = NodeSettings.from_json(sys.argv[1])
    try:
        _run(settings)
    except StandaloneError as error:
        _tell(event="failed", message=str(error))
        sys.exit(1)


def _run(settings: NodeSettings) -> None:
    state = StateDirectory(Path(settings.state))
    binaries = {name: Path(path) for name, path in settings.binaries.items()}
    folders = {path.parent for path in binaries.values()}
    enclosure.enter()
    enclosure.furnish([state.root, *installation_folders(), *folders])
    PROVISIONED_VOLUMES.mkdir()
    linux.mount(state.volumes, PROVISIONED_VOLUMES, flags=MountFlag.BIND)
    components.RUN.mkdir()
    prepare_node()
    state.empty_node()
    credentials = issue_credentials(state, settings.api_port, datetime.datetime.now(datetime.UTC))
    (state.node / "images.json").write_text(json.dumps(images(sorted(folders))))
    kubelet_file = state.node / "kubelet.yaml"
    kubelet_file.write_text(yaml.safe_dump(components.kubelet_configuration(state, credentials)))
    path = ":".join([*map(str, folders), "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"])
    supervisor = Supervisor(state.logs, {"PATH": path, "HOME": "/run", "LANG": "C.UTF-8"}, credentials)
    stopping = False

    def on_signal(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    supervisor.start(
        [*components.list_components(state, credentials, binaries, kubelet_file), _relay(settings, credentials)],
        on_ready=lambda name, seconds: _tell(event="ready", name=name, seconds=round(seconds, 2)),
    )
    _tell(event="started")
    supervisor.supervise(lambda: stopping or _launcher_said_stop(), state.tell_ailing)
    supervisor.stop()


def _relay(settings: NodeSettings, credentials: Credentials) -> Component:
    files = credentials.of["relay"]
    return Component(
        "relay",
        (
            *(sys.executable, "-P", "-m", "leeway_standalone.relay"),
            *(f"--{name}-descriptor={descriptor}" for name, descriptor in settings.descriptors.items()),
            f"--authority={credentials.authority.certificate}",
            f"--certificate={files.certificate}",
            f"--key={files.key}",
        ),
        joins=True,
        inherits=tuple(settings.descriptors.values()),
    )


def _launcher_said_stop() -> bool:
    readable, _, _ = select.select([0], [], [], 0)
    return bool(readable) and os.read(0, 1) == b""


def _tell(**event: object) -> None:
    print(json.dumps(event), flush=True)  # noqa: T201 - this is how the node speaks to the launcher


if __name__ == "__main__":
    main()
