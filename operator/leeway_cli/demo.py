"""`leeway demo`."""

import os
import time
from typing import Annotated

import typer


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave it running afterwards, and say how to look around.")
    ] = False,
) -> None:
    """Start a whole Kubernetes with Leeway, run a pod in it, ask the pod from outside, and say what it took."""
    from leeway_standalone import demonstration

    began_at_s = float(os.environ.get("LEEWAY_DEMO_BEGAN_AT_S", time.time()))
    demonstration.run(keep=keep, began_at_s=began_at_s)
