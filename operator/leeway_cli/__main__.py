"""Lets `python -m leeway_cli` be the `leeway` command."""

from leeway_cli.main import run

run()
