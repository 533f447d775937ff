"""The `leeway` command."""

import os
import sys

import typer
from leeway_core.errors import UserError
from rich.console import Console

from leeway_cli import binaries, demo, down, engine, explain, gateway, load, operator, status, tuner, up

app = typer.Typer(
    name="leeway",
    help="Keeps LLM serving on Kubernetes inside its latency objectives by tuning it while it serves.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(rich_help_panel="Standalone")(demo.demo)
app.command(rich_help_panel="Standalone")(up.up)
app.command(rich_help_panel="Standalone")(status.status)
app.command(rich_help_panel="Standalone")(down.down)
app.command(rich_help_panel="Standalone")(binaries.binaries)
app.command(rich_help_panel="Load")(load.load)
app.command(rich_help_panel="In a cluster")(explain.explain)
app.command(rich_help_panel="In a cluster")(operator.operator)
app.command(rich_help_panel="In a cluster")(tuner.tuner)
app.command(rich_help_panel="In a cluster")(engine.engine)
app.command(rich_help_panel="In a cluster")(gateway.gateway)


@app.callback()
def _leeway(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"leeway {installed('leeway')}")
        raise typer.Exit


def run() -> None:
    """Run the command line; what goes wrong is said in words, with a traceback only under LEEWAY_DEBUG=1."""
    try:
        app()
    except UserError as error:
        _fail(str(error), 1)
    except Exception as error:
        if os.environ.get("LEEWAY_DEBUG"):
            raise
        _fail(f"{type(error).__name__}: {error}\nThis is a defect of Leeway. LEEWAY_DEBUG=1 shows where.", 70)


def _fail(message: str, code: int) -> None:
    Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {message}", highlight=False)
    sys.exit(code)
