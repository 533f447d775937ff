"""`leeway engine`."""

import logging
from pathlib import Path
from typing import Annotated, Literal

import typer

LISTEN, HOLD, WATCH = "Addresses", "What it holds", "What it tells, and when it gives up"


def engine(
    model: Annotated[Path, typer.Option(help="Hugging Face folder or GGUF file of the model.")],
    knobs_token_file: Annotated[Path, typer.Option(help="File with the bearer token of the knob endpoint.")],
    *,
    served_model: Annotated[str, typer.Option(help="Name under which clients ask for the model.")],
    knobs_file: Annotated[
        Path | None, typer.Option(help="JSON file of the knobs to boot with; else the ceilings themselves.")
    ] = None,
    max_token_budget: Annotated[
        int, typer.Option(min=1, help="Ceiling of token budget and chunk size.", rich_help_panel=HOLD)
    ] = 2048,
    max_running_sequences: Annotated[
        int, typer.Option(min=1, help="Ceiling of the requests that decode at a time.", rich_help_panel=HOLD)
    ] = 128,
    max_requests: Annotated[
        int, typer.Option(min=1, help="Most requests, read, waiting and running; more get a 503.", rich_help_panel=HOLD)
    ] = 2048,
    kv_blocks: Annotated[int, typer.Option(min=1, help="Blocks of the KV cache.", rich_help_panel=HOLD)] = 1024,
    block_size: Annotated[int, typer.Option(min=1, help="Tokens of a block.", rich_help_panel=HOLD)] = 16,
    swap_blocks: Annotated[
        int, typer.Option(min=0, help="Blocks of host memory for preempted requests.", rich_help_panel=HOLD)
    ] = 0,
    prefix_reuse: Annotated[
        bool, typer.Option(help="Let prompts that begin alike share their KV.", rich_help_panel=HOLD)
    ] = True,
    context: Annotated[
        int | None,
        typer.Option(min=1, help="Most tokens of a request; else the model's own.", rich_help_panel=HOLD),
    ] = None,
    device: Annotated[str, typer.Option(help="Device as torch names it.", rich_help_panel=HOLD)] = "cpu",
    dtype: Annotated[
        Literal["float64", "float32", "bfloat16", "float16"],
        typer.Option(help="Type of weights and KV cache.", rich_help_panel=HOLD),
    ] = "float32",
    kernels: Annotated[
        Literal["auto", "eager"],
        typer.Option(help="Compiled kernels where they can be had, or plain torch.", rich_help_panel=HOLD),
    ] = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads; else what torch takes.", rich_help_panel=HOLD)
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.", rich_help_panel=LISTEN)] = "0.0.0.0",
    port: Annotated[int, typer.Option(help="Port of OpenAI's API, probes, /metrics.", rich_help_panel=LISTEN)] = 8000,
    knobs_port: Annotated[int, typer.Option(help="Port of the knob endpoint.", rich_help_panel=LISTEN)] = 8001,
    unready_after_s: Annotated[
        float,
        typer.Option(min=1, help="Seconds of work in hand and none done until it is not ready.", rich_help_panel=WATCH),
    ] = 30.0,
    kill_after_s: Annotated[
        float, typer.Option(min=1, help="Seconds until an engine loop that hangs is ended.", rich_help_panel=WATCH)
    ] = 120.0,
    event_log: Annotated[
        Path | None, typer.Option(help="File for what happens to requests, as JSON lines.", rich_help_panel=WATCH)
    ] = None,
    event_log_share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the requests in the event log.", rich_help_panel=WATCH)
    ] = 1.0,
    event_log_mib: Annotated[
        int, typer.Option(min=1, help="Size of a file of the event log, MiB.", rich_help_panel=WATCH)
    ] = 64,
    event_log_files: Annotated[
        int, typer.Option(min=1, help="Most files of the event log.", rich_help_panel=WATCH)
    ] = 4,
) -> None:
    """Run an engine pod: it serves one model, and its knobs can be turned meanwhile."""
    from leeway_core.errors import UserError
    from leeway_core.pod_knobs import Ceilings
    from leeway_engine.server.config import EngineConfig, ServerConfig, boot_knobs
    from leeway_engine.server.run import run

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    if not model.exists():
        raise UserError(f"There is no model at {model}. Name a folder or a GGUF file that this pod sees.")
    ceilings = Ceilings(
        token_budget=max_token_budget, chunk_size=max_token_budget, running_sequences=max_running_sequences
    )
    try:
        engine_config = EngineConfig(
            model=model,
            device=device,
            dtype=dtype,
            kernels=kernels,
            threads=threads,
            kv_blocks=kv_blocks,
            block_size=block_size,
            swap_blocks=swap_blocks,
            prefix_reuse=prefix_reuse,
            context=context,
            event_share=event_log_share if event_log else 0.0,
            ceilings=ceilings,
            knobs=boot_knobs(knobs_file, ceilings),
        )
        config = ServerConfig(
            served_model,
            knobs_token_file,
            host=host,
            port=port,
            knobs_port=knobs_port,
            max_requests=max_requests,
            unready_after_s=unready_after_s,
            kill_after_s=kill_after_s,
            event_log=event_log,
            event_log_bytes=event_log_mib << 20,
            event_log_files=event_log_files,
        )
        run(config, engine_config)
    except (OSError, ValueError) as error:
        raise UserError(f"The engine cannot start: {error}") from error
