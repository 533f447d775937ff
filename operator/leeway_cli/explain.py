"""`leeway explain`."""

from typing import Annotated

import typer
from rich.console import Console


def explain(
    profile: Annotated[str, typer.Argument(help="Name of the ServingProfile.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")] = "default",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many of the last decisions to show.")] = 50,
) -> None:
    """Say what Leeway has seen of a profile, what it tried, what it chose, and why."""
    from leeway_operator.explain import run

    run(profile, namespace, limit, Console(soft_wrap=True))
