"""`leeway demo`."""

import os
import time
from pathlib import Path
from typing import Annotated

import typer


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave it running afterwards, and say how to look around.")
    ] = False,
    report: Annotated[Path, typer.Option(help="Where the report goes, one HTML file.", dir_okay=False)] = Path(
        "leeway-demo.html"
    ),
) -> None:
    """Show a profile that misses its objectives under the usual knobs, tunes itself, and meets them.

    Takes eleven minutes. Exits with 1 if the same requests did not fare better with the knobs found.
    """
    from leeway_demo import demonstration

    began_at_s = float(os.environ.get("LEEWAY_DEMO_BEGAN_AT_S", time.time()))
    if not demonstration.run(keep=keep, report=report, began_at_s=began_at_s):
        raise typer.Exit(1)
