"""A gateway tells by which objectives it judges."""

import asyncio
from pathlib import Path

import pytest
from leeway_core.objective import digest
from leeway_gateway import objectives
from leeway_gateway.metrics import GatewayMetrics
from leeway_gateway.objectives import Objectives

FIRST, SECOND = (f'[{{"name": "only", "ttftMs": {bound}}}]' for bound in (500, 1000))


def obeyed(metrics: GatewayMetrics) -> dict[str, float]:
    """Return the digests that a scrape shows."""
    families = {family.name: family.samples for family in metrics.registry.collect()}
    return {sample.labels["digest"]: sample.value for sample in families["leeway_gateway_objectives_info"]}


def test_the_objectives_in_force_are_shown_from_the_start_and_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objectives, "_LOOK_EVERY_S", 0.0)
    file, metrics = tmp_path / "objectives.json", GatewayMetrics()
    file.write_text(FIRST)
    followed = Objectives(file, metrics.expect)
    assert obeyed(metrics) == {digest(FIRST.encode()): 1}

    async def change(text: str) -> None:
        file.write_text(text)
        task = asyncio.create_task(followed.follow())
        await asyncio.sleep(0.05)
        task.cancel()

    asyncio.run(change("["))
    assert obeyed(metrics) == {digest(FIRST.encode()): 1}, "what cannot be read is not obeyed"
    asyncio.run(change(SECOND))
    assert obeyed(metrics) == {digest(SECOND.encode()): 1}
