"""Reads the telemetry of a profile."""

from leeway_core.reading import Error
from leeway_core.snapshot import Telemetry

from leeway_operator.telemetry.prometheus import PrometheusError, ask
from leeway_operator.telemetry.window import Scope, judge_window

_LOOKBACK_S = 180.0
"""Raw samples are fetched from at least so long ago, to know the scrape interval."""
_LATENCIES_S = 60.0
"""Quantiles are taken over at least so long."""


def read(url: str, scope: Scope, from_s: float, now_s: float) -> Telemetry:
    """Return the readings of `scope` from `from_s` to `now_s`; what fails is an Error reading, never an exception."""
    window_s = now_s - from_s
    counters = f"leeway_gateway_verdicts_total{_selector(scope)}[{_duration(max(_LOOKBACK_S, window_s))}]"
    quantiles = _quantiles_query(_selector(scope), _duration(max(_LATENCIES_S, window_s)))
    try:
        verdicts, latencies = ask(url, counters, quantiles, at_s=now_s)
    except PrometheusError as error:
        failed = Error(message=str(error))
        return Telemetry(attainment=failed, objectives=dict.fromkeys(scope.objectives, failed), goodput_rps=failed)
    return judge_window(verdicts, latencies, scope, from_s, now_s)


def _selector(scope: Scope) -> str:
    pods = "|".join(sorted(pod.replace(".", "[.]") for pod in scope.pods))
    return f'{{namespace="{scope.namespace}",pod=~"{pods}"}}'


def _quantiles_query(selector: str, window: str) -> str:
    parts = []
    for kind in ("ttft", "itl"):
        series = f"leeway_gateway_{kind}_seconds"
        buckets = f"sum by (objective, le) (rate({series}_bucket{selector}[{window}]))"
        count = f"sum by (objective) (increase({series}_count{selector}[{window}]))"
        parts.append(f'label_replace(histogram_quantile(0.95, {buckets}), "what", "{kind}", "", "")')
        parts.append(f'label_replace({count}, "what", "{kind}_count", "", "")')
    return " or ".join(parts)


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1e3)}ms"
