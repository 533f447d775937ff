"""How far apart two backlogged clients get in what they are served, under token counters and first come, first served.

The published run: 90 and 180 requests a minute of 256 + 256 tokens against a KV pool of 10,000 tokens. The bound is
2·max(w_p·L_in, w_q·M) = 40,000; first come, first served has none. Beside that run, whose arrivals are even, seeds move
each arrival; `gap_max` is the largest of all, `fcfs_gap` is of the published run. Options: --seconds N, of simulated
time; --seeds N.
"""

import argparse
import json
import sys

from leeway_core.policies import FirstCome, TokenCounters
from two_clients import TWO_CLIENT_BOUND, two_client_gaps


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    seeds = [None, *range(options.seeds)]
    gaps = [max(two_client_gaps(TokenCounters(), options.seconds, seed)) for seed in seeds]
    fcfs_gaps = [two_client_gaps(FirstCome(), options.seconds, seed)[-1] for seed in seeds]
    print(f"token counters {min(gaps)} to {max(gaps)}, fcfs {min(fcfs_gaps)} to {max(fcfs_gaps)}", file=sys.stderr)
    gap_max, fcfs_gap = max(gaps), fcfs_gaps[0]
    print(json.dumps({"gap_max": gap_max, "bound": TWO_CLIENT_BOUND, "fcfs_gap": fcfs_gap}))
    sys.exit(gap_max > TWO_CLIENT_BOUND)


if __name__ == "__main__":
    main()
