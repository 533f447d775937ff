"""How far apart two backlogged clients get in what they are served, under token counters and first come, first served.

The published run: 90 and 180 requests a minute of 256 + 256 tokens against a KV pool of 10,000 tokens. The bound is
2·max(w_p·L_in, w_q·M) = 40,000; first come, first served has none. Options: --seconds N, of simulated time.
"""

import argparse
import json
import sys

from leeway_core.policies import FirstCome, TokenCounters
from two_clients import TWO_CLIENT_BOUND, two_client_gaps


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=500.0)
    seconds = parser.parse_args().seconds
    gap_max = max(two_client_gaps(TokenCounters(), seconds))
    fcfs_gap = two_client_gaps(FirstCome(), seconds)[-1]
    print(json.dumps({"gap_max": gap_max, "bound": TWO_CLIENT_BOUND, "fcfs_gap": fcfs_gap}))
    sys.exit(gap_max > TWO_CLIENT_BOUND)


if __name__ == "__main__":
    main()
