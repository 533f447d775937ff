"""Open-loop load from public traces against any OpenAI-compatible server, and what it showed."""

from leeway_load.ramp import RampReport, RampStep
from leeway_load.report import Report
from leeway_load.runner import run, run_ramp, send
from leeway_load.target import Target
from leeway_load.workload import Lengths, TrafficClass, Workload

__all__ = [
    "Lengths",
    "RampReport",
    "RampStep",
    "Report",
    "Target",
    "TrafficClass",
    "Workload",
    "run",
    "run_ramp",
    "send",
]
