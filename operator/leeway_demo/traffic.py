"""The load: short chats and long documents of a public trace, in one open-loop stream."""

from pathlib import Path

from leeway_core.objective import Objective
from leeway_load import Lengths, Target, TrafficClass, Workload, send
from leeway_load.exchange import Exchange
from leeway_load.runner import unwatched
from leeway_load.schedule import PlannedRequest, plan
from leeway_load.trace import read_trace

RATE = 1.0
"""Requests a second, at the pace that the profile is written for: what two cores serve with time to spare, if no long
prompt holds up the others."""
WARM_UP_S = 10.0
"""What is sent before this time of a phase finds an emptier server than the rest and does not count."""
SHORT_TOKENS = 128


def requests(duration_s: float, rate: float, chat: Objective, documents: Objective) -> list[PlannedRequest]:
    """Plan the load for so long: short prompts are chats, all others are documents.

    The trace's lengths are scaled to what a model of 135 million parameters does in a second on one core.
    """

    def cohort(lengths: Lengths, objective: Objective) -> list[PlannedRequest]:
        return plan(
            trace,
            Workload(
                classes=(TrafficClass(objective),),
                lengths=lengths,
                short_tokens=SHORT_TOKENS,
                rate=rate,
                duration_s=duration_s,
                prompt_scale=0.6,
                output_scale=0.4,
                max_prompt_tokens=1600,
                max_output_tokens=64,
            ),
        )

    trace = read_trace(_trace_file())
    both = cohort(Lengths.SHORT, chat) + cohort(Lengths.LONG, documents)
    return sorted(both, key=lambda request: request.send_s)


def replay(planned: list[PlannedRequest], url: str, phase: str) -> list[Exchange]:
    """Send the requests; each phase has tokens of its own, so that none begins like one of an earlier phase."""
    return send(planned, Target(url=url), phase, unwatched(phase, len(planned)))


def _trace_file() -> Path:
    """The slice of the trace: part of the installed package, or of the checkout."""
    package = Path(__file__).parent
    name = "azure-conversations.csv"
    installed = package / name
    return installed if installed.exists() else package.parent.parent / "examples" / name
