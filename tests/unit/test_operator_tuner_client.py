"""The operator's questions to the tuner: one that has forgotten what it asked is told, and goes on from there."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from leeway_core.decision import Decision, SequenceBehind
from leeway_core.snapshot import Snapshot
from leeway_operator.tuner_client import TunerClient, TunerError
from leeway_tuner.tuner import SequenceBehindError, Tuner
from plant import Plant, interference

Decide = Callable[[Snapshot], Decision]


async def ask(decide: Decide, snapshot: Snapshot) -> Decision:
    """Ask once, of a tuner that answers so."""

    async def answer(request: web.Request) -> web.Response:
        try:
            decision = decide(Snapshot.model_validate_json(await request.read()))
        except SequenceBehindError as error:
            behind = SequenceBehind(last_sequence=error.last_sequence, message=str(error))
            return web.Response(status=409, text=behind.model_dump_json(by_alias=True))
        return web.Response(text=decision.model_dump_json(by_alias=True))

    app = web.Application()
    app.router.add_post("/v1/decide", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        async with aiohttp.ClientSession() as session:
            return await TunerClient(session, f"http://{host}:{port}").decide(snapshot)
    finally:
        await runner.cleanup()


def test_an_operator_that_lost_its_sequence_is_answered_under_the_next_one(tmp_path: Path) -> None:
    plant = Plant(interference)
    with closing(Tuner(tmp_path, clock=lambda: plant.now_s)) as tuner:
        for _ in range(7):
            plant.pass_time()
            plant.apply(tuner.decide(plant.snapshot()))
        plant.pass_time()
        forgotten = plant.snapshot().model_copy(update={"sequence": 1})
        asked: list[int] = []

        def decide(snapshot: Snapshot) -> Decision:
            asked.append(snapshot.sequence)
            return tuner.decide(snapshot)

        decision = asyncio.run(ask(decide, forgotten))
        newest = tuner.decisions("plant", 1)[0]
    assert asked == [1, 8]
    assert decision.sequence == 8
    assert newest.decision == decision
    assert newest.snapshot == forgotten.model_copy(update={"sequence": 8})


def test_a_409_that_is_none_of_the_tuners_is_a_refusal_like_any_other() -> None:
    def decide(snapshot: Snapshot) -> Decision:
        raise web.HTTPConflict(text="no upstream")

    plant = Plant(interference)
    plant.pass_time()
    with pytest.raises(TunerError, match="the tuner answers 409: no upstream"):
        asyncio.run(ask(decide, plant.snapshot()))


def test_a_tuner_that_is_always_ahead_is_asked_no_third_time() -> None:
    asked: list[int] = []

    def decide(snapshot: Snapshot) -> Decision:
        asked.append(snapshot.sequence)
        raise SequenceBehindError(snapshot.sequence)

    plant = Plant(interference)
    plant.pass_time()
    with pytest.raises(TunerError, match="the tuner answers 409"):
        asyncio.run(ask(decide, plant.snapshot()))
    assert asked == [1, 2]
