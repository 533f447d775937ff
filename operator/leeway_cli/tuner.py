"""`leeway tuner`."""

from pathlib import Path
from typing import Annotated

import typer

from leeway_cli.options import HostOption


def tuner(
    host: HostOption = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the service.")] = 8081,
    metrics_port: Annotated[int, typer.Option(help="Port of /metrics.")] = 9091,
    data_dir: Annotated[Path, typer.Option(help="Folder that keeps the studies; it must exist.")] = Path(
        "/var/lib/leeway"
    ),
) -> None:
    """Run the tuner: it decides on knobs."""
    from leeway_tuner.main import run

    run(host=host, port=port, metrics_port=metrics_port, data_dir=data_dir)
