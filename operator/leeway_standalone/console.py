"""What `leeway up`, `status`, `down` and `binaries` say to the user."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.text import Text

from leeway_standalone.binaries import ALL, ensure
from leeway_standalone.standalone import Standalone
from leeway_standalone.state import Launch, Ports, StateDirectory, default_directory

_out = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
_progress = Console(stderr=True, soft_wrap=True, highlight=False)


def up(
    *,
    state: Path | None,
    api_port: int | None,
    gateway_port: int | None,
    prometheus_port: int | None,
    manifests: Sequence[Path],
    chart_values: Sequence[Path],
) -> None:
    """Start the standalone, and print what is ready when, and where it is reached."""
    standalone = Standalone(state or default_directory())
    ports = _choose_ports(standalone.state, api_port, gateway_port, prometheus_port)
    found = ensure(ALL)
    began_s = time.monotonic()
    started = standalone.start(
        ports=ports,
        binaries=found,
        manifests=manifests,
        chart_values=chart_values,
        on_ready=partial(print_ready, _progress),
    )
    _progress.print(f"Up after {time.monotonic() - began_s:.1f} s.")
    _print_addresses(standalone.state, started.launch)


def print_ready(console: Console, name: str, seconds: float) -> None:
    """Print that a part of a standalone is ready, and after how many seconds."""
    console.print(Text.assemble("  ", ("ready", "green"), f" {seconds:6.1f} s  {name}"))


def status(*, state: Path | None, as_json: bool) -> None:
    """Print whether it runs, which components do not, and where it is reached; exit code 1 when it does not run."""
    directory = StateDirectory(state or default_directory())
    launch = directory.running()
    ailing = directory.ailing()
    if as_json:
        running = {**asdict(launch), "kubeconfig": str(directory.kubeconfig), "ailing": ailing} if launch else None
        _out.print_json(json.dumps({"state": str(directory.root), "running": running}))
    elif launch:
        minutes = (time.time() - launch.started_at_s) / 60
        _out.print(f"Runs since {minutes:.0f} minutes (launcher: process {launch.pid}).")
        for said in ailing.values():
            _out.print(f"  {said}")
        _print_addresses(directory, launch)
    else:
        _out.print(f"No standalone runs in {directory.root}. Start one with `leeway up`.")
    if launch is None:
        raise SystemExit(1)


def down(*, state: Path | None, purge: bool) -> None:
    """Stop the standalone; with `purge`, remove its state."""
    standalone = Standalone(state or default_directory())
    ran = standalone.stop()
    if purge:
        standalone.state.purge()
    said = "Stopped." if ran else "Nothing ran."
    kept = "Its state is removed." if purge else f"Its state is kept in {standalone.state.root}."
    _out.print(f"{said} {kept}")


def binaries() -> None:
    """Build what is missing, and print where each binary is."""
    for name, path in ensure(ALL).items():
        _out.print(f"{name:24} {path}")


def _choose_ports(state: StateDirectory, api: int | None, gateway: int | None, prometheus: int | None) -> Ports:
    """Take what was asked for, else the ports of the last start, else the usual ones."""
    before = state.remembered_ports() or Ports()
    return Ports(
        api=before.api if api is None else api,
        gateway=before.gateway if gateway is None else gateway,
        prometheus=before.prometheus if prometheus is None else prometheus,
    )


def _print_addresses(state: StateDirectory, launch: Launch) -> None:
    _out.print(f"  Gateway     http://127.0.0.1:{launch.ports.gateway}")
    _out.print(f"  Prometheus  http://127.0.0.1:{launch.ports.prometheus}")
    _out.print(f"  API server  https://127.0.0.1:{launch.ports.api}")
    _out.print(f"export KUBECONFIG={state.kubeconfig}")
