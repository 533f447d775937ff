"""`leeway down`."""

from typing import Annotated

import typer

from leeway_cli.options import StateOption


def down(
    state: StateOption = None,
    purge: Annotated[bool, typer.Option("--purge", help="Remove the state as well: objects, volumes, logs.")] = False,
) -> None:
    """Stop the standalone; its state is kept for the next `leeway up`."""
    from leeway_standalone import console

    console.down(state=state, purge=purge)
