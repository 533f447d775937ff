"""What cancels leave behind: blocks, zombie iterations and wrong tokens, at each border of a request's life.

In the engine, which plans ahead or does not, a request is cancelled between two iterations or while one runs; at a real
pod or its gateway, the client goes away, the request's time is up or it is aborted, and the pod's metrics tell what was
launched. The model is tiny and in float64, so that whoever survives must say exactly what it says alone.
Options: --cancels N, at each border.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cancel_tally import Tally
from client_storm import CLIENT_BORDERS, ClientStorm, faults_of_gateway
from engine_storm import BORDERS, EngineStorm, Questions
from loop_storm import FLIGHT_BORDERS, LoopStorm
from serving import gateway, pod, tiny_model

MOST_REQUESTS = 16
LOOSE = {"name": "loose", "ttftMs": 600_000, "itlMs": 600_000}


def in_engine(folder: Path, cancels: int) -> Iterator[Tally]:
    questions = Questions(folder / "engine-model")
    for plan_ahead in (False, True):
        for border in BORDERS:
            yield EngineStorm(questions, border, cancels, plan_ahead=plan_ahead).run()
        for flight_border in FLIGHT_BORDERS:
            yield LoopStorm(questions, flight_border, cancels, plan_ahead=plan_ahead).run()


def at_pod(folder: Path, cancels: int) -> Iterator[Tally]:
    objectives = folder / "objectives.json"
    objectives.write_text(json.dumps([LOOSE]))
    model = tiny_model(folder / "pod-model")
    engine = {"dtype": "float64", "kv_blocks": 4096}
    with (
        pod(model, folder, engine=engine, max_requests=MOST_REQUESTS) as running,
        gateway([running.url], objectives, wait_s=600.0) as front,
    ):
        storm = ClientStorm(running, front, MOST_REQUESTS)
        through_gateway = 0
        for border in CLIENT_BORDERS:
            tally = storm.run(border, cancels)
            if border.gateway:
                through_gateway += tally.cancels
                tally.faults += faults_of_gateway(front, through_gateway)
            yield tally


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cancels", type=int, default=50)
    cancels = parser.parse_args().cancels
    tallies = []
    with tempfile.TemporaryDirectory() as name:
        for storm in (in_engine, at_pod):
            for tally in storm(Path(name), cancels):
                print(tally, file=sys.stderr)
                tallies.append(tally)
    figures = {
        "borders": [tally.border for tally in tallies],
        "cancels": sum(tally.cancels for tally in tallies),
        "survivors": sum(tally.survivors for tally in tallies),
        "leaked_blocks": sum(tally.leaked_blocks for tally in tallies),
        "zombie_steps_max": max(tally.zombie_steps_max for tally in tallies),
        "wrong": sum(len(tally.faults) for tally in tallies),
    }
    print(json.dumps(figures))
    sys.exit(figures["leaked_blocks"] > 0 or figures["zombie_steps_max"] > 1 or figures["wrong"] > 0)


if __name__ == "__main__":
    main()
