"""`leeway status`."""

from typing import Annotated

import typer

from leeway_cli.options import StateOption


def status(
    state: StateOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say whether the standalone runs, since when, and where it is reached."""
    from leeway_standalone import console

    console.status(state=state, as_json=as_json)
