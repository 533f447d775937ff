"""Options that several subcommands have."""

from pathlib import Path
from typing import Annotated

import typer

StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state", help="Folder that holds the standalone's state.", envvar="LEEWAY_STATE", show_default=False
    ),
]

HostOption = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all of a pod's.")]
