"""The tuner's service: it tells whether it can record what it learns, and answers alike."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import optuna
import pytest
from leeway_core.errors import UserError
from leeway_core.snapshot import Snapshot
from leeway_tuner.main import run
from leeway_tuner.service import service
from leeway_tuner.store import open_storage
from leeway_tuner.tuner import KEPT_S, Tuner
from optuna.trial import TrialState
from plant import Plant, interference

JSON = {"Content-Type": "application/json"}


def ask(tuner: Tuner, data_dir: Path, method: str, path: str, body: str | None = None) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(service(data_dir, tuner))
        async with httpx.AsyncClient(transport=transport, base_url="http://tuner") as client:
            return await client.request(method, path, content=body, headers=JSON)

    return asyncio.run(ask())


def decide(tuner: Tuner, data_dir: Path, snapshot: Snapshot) -> dict[str, Any]:
    answer = ask(tuner, data_dir, "POST", "/v1/decide", snapshot.model_dump_json(by_alias=True))
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def until_it_tries(plant: Plant, tuner: Tuner) -> Snapshot:
    """Pass time until a trial begins; returns the Snapshot that it was decided on."""
    while True:
        plant.pass_time()
        snapshot = plant.snapshot()
        plant.apply(tuner.decide(snapshot))
        if plant.record.trying:
            return snapshot


@pytest.fixture
def plant() -> Plant:
    return Plant(interference)


@pytest.fixture
def tuner(tmp_path: Path, plant: Plant) -> Iterator[Tuner]:
    with closing(Tuner(tmp_path, clock=lambda: plant.now_s)) as tuner:
        yield tuner


def test_a_tuner_with_a_writable_folder_is_ready(tmp_path: Path, tuner: Tuner) -> None:
    assert ask(tuner, tmp_path, "GET", "/healthz").status_code == 200
    assert ask(tuner, tmp_path, "GET", "/readyz").status_code == 200
    assert [file.name for file in tmp_path.iterdir()] == ["leeway.db"]


def test_a_tuner_whose_folder_is_gone_lives_but_is_not_ready(tmp_path: Path, tuner: Tuner) -> None:
    answer = ask(tuner, tmp_path / "gone", "GET", "/readyz")
    assert answer.status_code == 503
    assert "gone cannot be written: No such file" in answer.json()["detail"]
    assert ask(tuner, tmp_path / "gone", "GET", "/healthz").status_code == 200


def test_the_same_question_has_the_same_answer_and_an_older_one_none(
    tmp_path: Path, tuner: Tuner, plant: Plant
) -> None:
    plant.pass_time()
    first = plant.snapshot()
    answer = decide(tuner, tmp_path, first)
    tried = until_it_tries(plant, tuner)
    plant.snapshot()
    assert decide(tuner, tmp_path, tried)["action"] == "Try"
    assert decide(tuner, tmp_path, tried)["record"] == plant.record.model_dump(mode="json", by_alias=True)
    assert answer["action"] == "Hold"
    behind = ask(tuner, tmp_path, "POST", "/v1/decide", first.model_dump_json(by_alias=True))
    assert behind.status_code == 409, "of decisions to hold for the same reason only the last is kept"
    assert behind.json()["lastSequence"] == plant.sequence - 1


def test_another_snapshot_under_a_used_sequence_is_not_given_the_old_answer(
    tmp_path: Path, tuner: Tuner, plant: Plant
) -> None:
    """An operator that restarts in mid-trial takes the trial back, and may count from a sequence that was used."""
    until_it_tries(plant, tuner)
    plant.pass_time()
    used = plant.snapshot()
    tuner.decide(used)
    assert used.record.candidate is not None
    taken_back = used.model_copy(update={"record": used.record.back(plant.now_s)})
    answer = ask(tuner, tmp_path, "POST", "/v1/decide", taken_back.model_dump_json(by_alias=True))
    assert answer.status_code == 409
    higher = taken_back.model_copy(update={"sequence": answer.json()["lastSequence"] + 1})
    assert not tuner.decide(higher).record.trying


def test_a_profile_that_nobody_asks_about_is_forgotten_after_a_month_and_no_other(
    tmp_path: Path, tuner: Tuner, plant: Plant
) -> None:
    until_it_tries(plant, tuner)
    other = plant.snapshot().model_copy(update={"uid": "other"})
    gone = other.model_copy(update={"uid": "gone", "now_s": plant.now_s - KEPT_S})
    storage = open_storage(tmp_path)
    for snapshot in (other, gone):
        tuner.decide(snapshot)
        optuna.create_study(storage=storage, study_name=f"{snapshot.uid}/space")
    assert tuner.decisions("gone", 10)
    plant.now_s += 86400
    tuner.decide(other.model_copy(update={"sequence": other.sequence + 1, "now_s": plant.now_s}))
    assert not tuner.decisions("gone", 10)
    assert tuner.decisions("other", 10)
    assert tuner.decisions("plant", 10)
    names = {name.partition("/")[0] for name in optuna.get_all_study_names(storage)}
    assert names == {"plant", "other"}
    assert not tuner.decide(gone.model_copy(update={"now_s": plant.now_s})).record.trying, "it begins anew"


def test_what_was_seen_and_decided_can_be_read(tmp_path: Path, tuner: Tuner, plant: Plant) -> None:
    until_it_tries(plant, tuner)
    newest, *older = ask(tuner, tmp_path, "GET", "/v1/profiles/plant/decisions").json()
    assert newest["decision"]["action"] == "Try"
    assert newest["decision"]["message"].startswith("Trying token budget")
    assert newest["decision"]["evidence"]["incumbentAttainment"] < 0.5
    assert newest["snapshot"]["telemetry"]["attainment"]["kind"] == "Value"
    assert {item["decision"]["reason"] for item in older} >= {"Measuring"}
    assert len(older) <= 4, "the ticks on which nothing new was found are one"
    assert len(ask(tuner, tmp_path, "GET", "/v1/profiles/plant/decisions?limit=1").json()) == 1
    assert ask(tuner, tmp_path, "GET", "/v1/profiles/unheard-of/decisions").json() == []


def test_a_snapshot_that_makes_no_sense_is_refused(tmp_path: Path, tuner: Tuner, plant: Plant) -> None:
    plant.pass_time()
    body = plant.snapshot().model_dump_json(by_alias=True)
    for wrong in (body.replace('"sequence":1', '"sequence":0'), body.replace('"windowS":10.0', '"windowS":NaN'), "{"):
        assert wrong != body
        assert ask(tuner, tmp_path, "POST", "/v1/decide", wrong).status_code == 422


def test_a_tuner_that_comes_back_goes_on_with_the_trial(tmp_path: Path, plant: Plant) -> None:
    with closing(Tuner(tmp_path, clock=lambda: plant.now_s)) as first:
        until_it_tries(plant, first)
    with closing(Tuner(tmp_path, clock=lambda: plant.now_s)) as second:
        plant.pass_time()
        assert second.decide(plant.snapshot()).reason == "MeasuringCandidate"


def test_a_tuner_that_lost_its_folder_goes_back_to_the_incumbent(tmp_path: Path, tuner: Tuner, plant: Plant) -> None:
    until_it_tries(plant, tuner)
    (tmp_path / "new").mkdir()
    with closing(Tuner(tmp_path / "new", clock=lambda: plant.now_s)) as other:
        decision = other.decide(plant.snapshot())
    assert (decision.action, decision.reason) == ("RollBack", "TrialUnknown")


def test_trials_of_the_study_that_run_for_nobody_are_failed(tmp_path: Path, tuner: Tuner, plant: Plant) -> None:
    until_it_tries(plant, tuner)
    storage = open_storage(tmp_path)
    (name,) = optuna.get_all_study_names(storage)
    study = optuna.load_study(study_name=name, storage=storage)
    assert name.startswith("plant/")
    (running,) = study.get_trials(states=(TrialState.RUNNING,))
    orphan = study.ask(running.distributions)
    for _ in range(40):
        plant.pass_time()
        plant.apply(tuner.decide(plant.snapshot()))
    states = {trial.number: trial.state for trial in study.get_trials()}
    assert states[orphan.number] == TrialState.FAIL
    assert states[running.number] == TrialState.COMPLETE
    assert list(states.values()).count(TrialState.RUNNING) <= 1
    storage.engine.dispose()


def test_a_missing_folder_stops_the_start_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"nowhere cannot be used: No such file or directory\. Make it, or name another"
    ):
        run(data_dir=tmp_path / "nowhere")


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"127.0.0.1:{port}: Address already in use"):
            run(metrics_port=port, data_dir=tmp_path)
