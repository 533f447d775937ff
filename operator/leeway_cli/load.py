"""`leeway load`: replays a trace against an OpenAI-compatible server."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

app = typer.Typer()


@app.command()
def load(
    trace: Annotated[Path, typer.Argument(help="Azure 2023 trace (.csv) or Mooncake trace (.jsonl)")],
    url: Annotated[str, typer.Option(help="base address of the server")],
    *,
    model: Annotated[str | None, typer.Option(help="model to ask for; else the first that the server lists")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="OPENAI_API_KEY", help="bearer token")] = None,
    token_ids: Annotated[
        tuple[int, int], typer.Option(help="make prompts of token ids from the first up to the second")
    ] = (1000, 20_000),
    ignore_eos: Annotated[bool, typer.Option(help="ask for outputs exactly as long as the trace's")] = True,
    objective: Annotated[
        list[str],
        typer.Option(
            help="class of requests, NAME:KEY=VALUE,... with keys of a ServingProfile's objective, and `weight` for "
            "its share; repeat for more classes",
            show_default=False,
        ),
    ] = [],  # noqa: B006
    seed: Annotated[int, typer.Option(help="equal seeds give equal requests")] = 0,
    requests: Annotated[int | None, typer.Option(help="use only so many of the trace's first requests")] = None,
    duration_s: Annotated[float | None, typer.Option(help="stop sending after so long; of a ramp, each step")] = None,
    rate: Annotated[float | None, typer.Option(help="requests per second; of a ramp, the first step's")] = None,
    time_scale: Annotated[float, typer.Option(help="stretch time: 2 halves the rate")] = 1.0,
    prompt_scale: Annotated[float, typer.Option(help="multiply prompt lengths")] = 1.0,
    output_scale: Annotated[float, typer.Option(help="multiply output lengths")] = 1.0,
    max_prompt_tokens: Annotated[int | None, typer.Option(help="cut prompts to this")] = None,
    max_output_tokens: Annotated[int | None, typer.Option(help="cut outputs to this")] = None,
    lengths: Annotated[Literal["all", "short", "long"], typer.Option(help="which prompts to send")] = "all",
    short_tokens: Annotated[int, typer.Option(help="longest prompt that counts as short")] = 512,
    prefix_hit_share: Annotated[
        float | None, typer.Option(help="share of prompts that begin like earlier ones; else as the trace has it")
    ] = None,
    tenants: Annotated[int, typer.Option(help="number of tenants")] = 1,
    tenant_skew: Annotated[float, typer.Option(help="Zipf exponent of the tenants' shares; 0 is even")] = 0.0,
    burst_period_s: Annotated[float | None, typer.Option(help="send each such period's requests in a burst")] = None,
    burst_share: Annotated[float, typer.Option(help="part of the period that the burst takes")] = 0.2,
    cancel_share: Annotated[float, typer.Option(help="share of clients that leave")] = 0.0,
    cancel_within_s: Annotated[float, typer.Option(help="how soon they leave, at most")] = 10.0,
    timeout_s: Annotated[float, typer.Option(help="how long clients wait for the last token")] = 600.0,
    hasty_share: Annotated[float, typer.Option(help="share of clients that wait less")] = 0.0,
    hasty_timeout_s: Annotated[float, typer.Option(help="how long those wait")] = 1.0,
    ramp: Annotated[bool, typer.Option("--ramp", help="raise the rate until the queue no longer settles")] = False,
    ramp_factor: Annotated[float, typer.Option(help="rate of a step over that of the step before")] = 1.25,
    json_output: Annotated[
        bool, typer.Option("--json", help="print JSON; the tables then go to standard error")
    ] = False,
) -> None:
    """Replay TRACE open-loop: requests go out at their times, whatever becomes of earlier ones.

    Prints latencies, attainment, breaches, errors and the send lag; exits with 1 if that lag voids the report.
    """
    import leeway_load as part
    from leeway_load.terminal import print_result, progress_bar

    try:
        target = part.Target(url=url, model=model, api_key=api_key, token_ids=range(*token_ids), ignore_eos=ignore_eos)
        workload = part.Workload(
            classes=tuple(part.TrafficClass.parse(text) for text in objective),
            seed=seed,
            max_requests=requests,
            duration_s=duration_s,
            rate=rate,
            time_scale=time_scale,
            prompt_scale=prompt_scale,
            output_scale=output_scale,
            max_prompt_tokens=max_prompt_tokens,
            max_output_tokens=max_output_tokens,
            lengths=part.Lengths(lengths),
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
                part.run_ramp(trace, target, workload, ramp_factor, progress)
                if ramp
                else part.run(trace, target, workload, progress)
            )
    except part.LoadError as error:
        typer.echo(f"leeway load: {error}", err=True)
        raise typer.Exit(2) from error
    print_result(result, Console(stderr=json_output))
    if json_output:
        typer.echo(json.dumps(asdict(result), indent=2))
    if result.void:
        raise typer.Exit(1)
