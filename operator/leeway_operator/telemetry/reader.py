"""Reads the telemetry of a profile."""

from leeway_core.reading import Error, Missing, Outdated, Reading, Stale
from leeway_core.snapshot import Telemetry

from leeway_operator.telemetry.obedience import Obedience
from leeway_operator.telemetry.prometheus import PrometheusError, ask
from leeway_operator.telemetry.window import Scope, judge_window

_LOOKBACK_S = 180.0
"""Raw samples are fetched from at least so long ago, to know the scrape interval."""
_LATENCIES_S = 60.0
"""Quantiles are taken over at least so long."""


def read(url: str, scope: Scope, digest: str, from_s: float, now_s: float) -> Telemetry:
    """Return the readings of `scope` from `from_s` to `now_s`; what fails is an Error reading, never an exception.

    Only verdicts count by which every live gateway judged by the objectives of `digest`: before, none is a Value, and
    the window begins at the first scrape that shows it.
    """
    window_s = now_s - from_s
    selector, lookback = _selector(scope), _duration(max(_LOOKBACK_S, window_s))
    counters = f"leeway_gateway_verdicts_total{selector}[{lookback}]"
    objectives = f"leeway_gateway_objectives_info{selector}[{lookback}]"
    quantiles = _quantiles_query(selector, _duration(max(_LATENCIES_S, window_s)))
    try:
        verdicts, latencies, shown = ask(url, counters, quantiles, objectives, at_s=now_s)
    except PrometheusError as error:
        return _none(scope, Error(message=str(error)))
    obedience = Obedience.of(shown, scope.pods, digest)
    telemetry = judge_window(verdicts, latencies, scope, max(from_s, obedience.since_s), now_s)
    if not obedience.behind or _says_more(telemetry.attainment, obedience):
        return telemetry
    outdated = _none(scope, Outdated(pods=obedience.behind))
    return outdated.model_copy(update={"ttft_s": telemetry.ttft_s, "itl_s": telemetry.itl_s})


def _says_more(reading: Reading, obedience: Obedience) -> bool:
    """Tell whether a reading says why the gateways' objectives are not known either."""
    return isinstance(reading, Stale | Error) or (isinstance(reading, Missing) and not obedience.former)


def _none(scope: Scope, why: Reading) -> Telemetry:
    return Telemetry(attainment=why, objectives=dict.fromkeys(scope.objectives, why), goodput_rps=why)


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
