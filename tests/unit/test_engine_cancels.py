"""A cancel or a fault ends a request anywhere in its life: nothing leaks or goes on, and nobody else notices."""

import pytest
from cancel_tally import Tally
from engine_storm import BORDERS, Border, EngineStorm, Questions
from loop_storm import FLIGHT_BORDERS, FlightBorder, LoopStorm

CANCELS = 6


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Questions:
    return Questions(tmp_path_factory.mktemp("models") / "tiny")


def check(tally: Tally) -> None:
    assert tally.faults == []
    assert tally.cancels >= CANCELS
    assert tally.survivors > 0
    assert tally.leaked_blocks == 0
    assert tally.zombie_steps_max <= 1


@pytest.mark.parametrize("plan_ahead", [False, True])
@pytest.mark.parametrize("border", BORDERS, ids=lambda border: border.name)
def test_a_request_cancelled_at_any_time_is_gone(questions: Questions, border: Border, plan_ahead: bool) -> None:
    check(EngineStorm(questions, border, CANCELS, plan_ahead=plan_ahead).run())


@pytest.mark.parametrize("plan_ahead", [False, True])
@pytest.mark.parametrize("border", BORDERS[1:], ids=lambda border: border.name)
def test_a_failed_iteration_ends_its_requests_and_no_wrong_token_or_block_is_left_of_it(
    questions: Questions, border: Border, plan_ahead: bool
) -> None:
    tally = EngineStorm(questions, border, 2 * CANCELS, faults=True, plan_ahead=plan_ahead).run()
    check(tally)
    assert tally.failures > 0


@pytest.mark.parametrize("plan_ahead", [False, True])
@pytest.mark.parametrize("border", FLIGHT_BORDERS, ids=lambda border: border.name)
def test_a_request_cancelled_while_an_iteration_runs_is_gone_after_it(
    questions: Questions, border: FlightBorder, plan_ahead: bool
) -> None:
    check(LoopStorm(questions, border, CANCELS, plan_ahead=plan_ahead).run())
