"""What a pod's metrics say of its iterations."""

from leeway_engine.messages import EngineStats, Iteration
from leeway_engine.server.channel import Stepped
from leeway_engine.server.metrics import ServerMetrics


def stepped(iterations: int, last: Iteration) -> Stepped:
    return Stepped([], EngineStats(1, 0, 0, 0, 0, iterations, 0, 0, 0, last))


def test_the_error_of_a_prediction_counts_once_there_is_a_prediction() -> None:
    metrics = ServerMetrics()
    metrics.stepped(stepped(1, Iteration(seconds=0.1)))
    metrics.stepped(stepped(2, Iteration(seconds=0.1, predicted_s=0.08)))
    metrics.stepped(stepped(2, Iteration(seconds=0.1, predicted_s=0.08)))
    metrics.stepped(stepped(3, Iteration(seconds=0.1, predicted_s=0.15)))
    name = "leeway_engine_prediction_error_ratio"
    value = metrics.registry.get_sample_value
    assert value(f"{name}_count") == 2
    assert value(f"{name}_sum") is not None
    assert value(f"{name}_bucket", {"le": "0.3"}) == 1
    assert abs((value(f"{name}_sum") or 0.0) - 0.7) < 1e-9
