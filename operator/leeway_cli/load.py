"""`leeway load`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

SERVER, CLASSES, TIMES, PROMPTS, CLIENTS = "Server", "Objectives", "Send times", "Prompts and outputs", "Clients"
VOID = 3
"""Exit status of a void report."""


def load(
    trace: Annotated[Path, typer.Argument(help="Azure 2023 trace (.csv) or Mooncake trace (.jsonl).")],
    url: Annotated[str, typer.Option(help="Base address of the server.", rich_help_panel=SERVER)],
    *,
    model: Annotated[
        str | None, typer.Option(help="Model to ask for; else the first the server lists.", rich_help_panel=SERVER)
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(help="Bearer token.", envvar="OPENAI_API_KEY", rich_help_panel=SERVER)
    ] = None,
    objective: Annotated[
        list[str] | None,
        typer.Option(
            help="Class of requests as NAME:KEY=VALUE,... with keys of a ServingProfile's objective, and `weight` for "
            "its share of the requests; repeat it for more classes.",
            rich_help_panel=CLASSES,
        ),
    ] = None,
    ramp: Annotated[
        bool,
        typer.Option("--ramp", help="Raise the rate until the queue no longer settles.", rich_help_panel=CLASSES),
    ] = False,
    ramp_factor: Annotated[
        float, typer.Option(help="Rate of a step over that of the one before.", rich_help_panel=CLASSES)
    ] = 1.25,
    rate: Annotated[
        float | None, typer.Option(help="Requests per second; of a ramp, the first step's.", rich_help_panel=TIMES)
    ] = None,
    time_scale: Annotated[
        float, typer.Option(help="Stretch the trace's time: 2 halves the rate.", rich_help_panel=TIMES)
    ] = 1.0,
    duration_s: Annotated[
        float | None, typer.Option(help="Stop sending after so long; of a ramp, each step.", rich_help_panel=TIMES)
    ] = None,
    requests: Annotated[
        int | None, typer.Option(help="Use only so many of the trace's first requests.", rich_help_panel=TIMES)
    ] = None,
    burst_period_s: Annotated[
        float | None, typer.Option(help="Send each such period's requests in a burst.", rich_help_panel=TIMES)
    ] = None,
    burst_share: Annotated[
        float, typer.Option(help="Part of its period that a burst takes.", rich_help_panel=TIMES)
    ] = 0.2,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal requests.", rich_help_panel=TIMES)] = 0,
    prompt_scale: Annotated[float, typer.Option(help="Multiply prompt lengths.", rich_help_panel=PROMPTS)] = 1.0,
    output_scale: Annotated[float, typer.Option(help="Multiply output lengths.", rich_help_panel=PROMPTS)] = 1.0,
    max_prompt_tokens: Annotated[int | None, typer.Option(help="Cut prompts to this.", rich_help_panel=PROMPTS)] = None,
    max_output_tokens: Annotated[int | None, typer.Option(help="Cut outputs to this.", rich_help_panel=PROMPTS)] = None,
    lengths: Annotated[
        Literal["all", "short", "long"], typer.Option(help="Which prompts to send.", rich_help_panel=PROMPTS)
    ] = "all",
    short_tokens: Annotated[
        int, typer.Option(help="Longest prompt that counts as short.", rich_help_panel=PROMPTS)
    ] = 512,
    prefix_hit_share: Annotated[
        float | None,
        typer.Option(
            help="Share of the prompts that begin like earlier ones; else as the trace has it.",
            rich_help_panel=PROMPTS,
        ),
    ] = None,
    token_ids: Annotated[
        tuple[int, int],
        typer.Option(help="Make prompts of token ids from the first up to the second.", rich_help_panel=PROMPTS),
    ] = (1000, 20_000),
    ignore_eos: Annotated[
        bool, typer.Option(help="Ask for outputs exactly as long as the trace's.", rich_help_panel=PROMPTS)
    ] = True,
    tenants: Annotated[int, typer.Option(help="Number of tenants.", rich_help_panel=CLIENTS)] = 1,
    tenant_skew: Annotated[
        float, typer.Option(help="Zipf exponent of the tenants' shares; 0 is even.", rich_help_panel=CLIENTS)
    ] = 0.0,
    cancel_share: Annotated[float, typer.Option(help="Share of clients that leave.", rich_help_panel=CLIENTS)] = 0.0,
    cancel_within_s: Annotated[
        float, typer.Option(help="How soon those leave, at most.", rich_help_panel=CLIENTS)
    ] = 10.0,
    timeout_s: Annotated[
        float, typer.Option(help="How long clients wait for the last token.", rich_help_panel=CLIENTS)
    ] = 600.0,
    hasty_share: Annotated[float, typer.Option(help="Share of clients that wait less.", rich_help_panel=CLIENTS)] = 0.0,
    hasty_timeout_s: Annotated[float, typer.Option(help="How long those wait.", rich_help_panel=CLIENTS)] = 1.0,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print JSON; the tables then go to standard error.")
    ] = False,
) -> None:
    """Replay a trace of requests against an OpenAI-compatible server and say which objectives were met.

    Requests go out at their times, whatever becomes of earlier ones. Exits with 3 if they went out too late.
    """
    import leeway_load
    from leeway_load.terminal import print_result, progress_bar

    target = leeway_load.Target(
        url=url, model=model, api_key=api_key, token_ids=range(*token_ids), ignore_eos=ignore_eos
    )
    workload = leeway_load.Workload(
        classes=tuple(leeway_load.TrafficClass.parse(text) for text in objective or ()),
        seed=seed,
        max_requests=requests,
        duration_s=duration_s,
        rate=rate,
        time_scale=time_scale,
        prompt_scale=prompt_scale,
        output_scale=output_scale,
        max_prompt_tokens=max_prompt_tokens,
        max_output_tokens=max_output_tokens,
        lengths=leeway_load.Lengths(lengths),
        short_tokens=short_tokens,
        prefix_hit_share=prefix_hit_share,
        tenants=tenants,
        tenant_skew=tenant_skew,
        burst_period_s=burst_period_s,
        burst_share=burst_share,
        cancel_share=cancel_share,
        cancel_within_s=cancel_within_s,
        timeout_s=timeout_s,
        hasty_share=hasty_share,
        hasty_timeout_s=hasty_timeout_s,
    )
    with progress_bar(Console(stderr=True)) as progress:
        result = (
            leeway_load.run_ramp(trace, target, workload, ramp_factor, progress)
            if ramp
            else leeway_load.run(trace, target, workload, progress)
        )
    print_result(result, Console(stderr=json_output))
    if json_output:
        typer.echo(json.dumps(asdict(result), indent=2))
    if result.void:
        raise typer.Exit(VOID)
