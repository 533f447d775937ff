"""The `leeway` command."""

import os
import signal
import sys
from importlib.metadata import version

import typer
from leeway_core.errors import UserError
from rich.console import Console
from rich.text import Text

from leeway_cli import binaries, demo, down, engine, explain, gateway, load, operator, status, tuner, up
from leeway_cli.extras import needing

app = typer.Typer(
    name="leeway",
    help="Keeps LLM serving on Kubernetes inside its latency objectives by tuning it while it serves.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(rich_help_panel="Standalone")(needing("demo", demo.demo))
app.command(rich_help_panel="Standalone")(needing("standalone", up.up))
app.command(rich_help_panel="Standalone")(status.status)
app.command(rich_help_panel="Standalone")(down.down)
app.command(rich_help_panel="Standalone")(binaries.binaries)
app.command(rich_help_panel="Load")(needing("load", load.load))
app.command(rich_help_panel="In a cluster")(needing("operator", explain.explain))
app.command(rich_help_panel="In a cluster")(needing("operator", operator.operator))
app.command(rich_help_panel="In a cluster")(needing("tuner", tuner.tuner))
app.command(rich_help_panel="In a cluster")(needing("engine", engine.engine))
app.command(rich_help_panel="In a cluster")(needing("gateway", gateway.gateway))


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"leeway {version('leeway')}")
        raise typer.Exit


@app.callback()
def _leeway(
    _version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
    ),
) -> None:
    pass


def run() -> None:
    """Run the command line; what goes wrong is said in words, with a traceback only under LEEWAY_DEBUG=1.

    SIGTERM ends it from here on: the first process of a container would not hear it before its server listens.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        app()
    except UserError as error:
        _fail(str(error), 1)
    except Exception as error:
        if os.environ.get("LEEWAY_DEBUG"):
            raise
        _fail(f"{type(error).__name__}: {error}\nThis is a defect of Leeway. LEEWAY_DEBUG=1 shows where.", 70)


def _fail(message: str, code: int) -> None:
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(Text.assemble(("error:", "bold red"), " ", message))
    sys.exit(code)
