"""What the demonstration concludes, and the report it writes."""

import re
from dataclasses import replace
from importlib.resources import files

import pytest
import yaml
from leeway_core.objective import Objective
from leeway_core.verdict import Timeline
from leeway_demo import html
from leeway_demo.comparison import Difference, compare
from leeway_demo.history import Decision, Moment
from leeway_demo.pace import REFERENCE_S, Pace
from leeway_demo.phase import Phase
from leeway_demo.profile import freed, held_at, manifest, objectives
from leeway_demo.summary import succeeded, summarize
from leeway_demo.traffic import RATE, WARM_UP_S, requests
from leeway_load.exchange import Exchange
from leeway_operator.knobs import knob_ranges, starting_knobs
from leeway_operator.spec import Spec
from leeway_tuner.space import Space

CHAT = Objective(name="chat", ttft_ms=1500, itl_ms=400)
DOCUMENTS = Objective(name="documents", ttft_ms=6000, itl_ms=400)
KNOBS = {
    "generation": 4,
    "tokenBudget": 128,
    "prefillHeavyChunk": 64,
    "decodeHeavyChunk": 64,
    "prefillHeavyPercent": 100,
    "runningSequences": 16,
}


def shares(met: int, of: int = 80) -> dict[int, bool]:
    """Requests of which every n-th met its objective."""
    return {index: index * met // of != (index + 1) * met // of for index in range(of)}


def phase(title: str, began_s: float, gap_s: float) -> Phase:
    """A phase whose requests all wait so long for each token."""
    exchanges = [
        Exchange(
            each, Timeline(each.send_s, [each.send_s + 0.2 + gap_s * n for n in range(4)], each.send_s + 9, "finished")
        )
        for each in requests(60, RATE, CHAT, DOCUMENTS)
    ]
    return Phase(title, began_s, exchanges, {"chat": CHAT, "documents": DOCUMENTS})


def test_a_large_gain_is_told_from_chance() -> None:
    difference = compare(shares(30), shares(75), shares(32))
    assert difference.is_gain
    assert difference.low < difference.mean < difference.high
    assert difference.mean == pytest.approx((75 - 31) / 80)


@pytest.mark.parametrize(("before", "after", "again"), [(40, 41, 40), (40, 20, 40), (20, 45, 70)])
def test_no_gain_a_loss_and_a_drift_are_none(before: int, after: int, again: int) -> None:
    assert not compare(shares(before), shares(after), shares(again)).is_gain


def test_the_same_outcomes_always_give_the_same_interval() -> None:
    assert compare(shares(30), shares(60), shares(30)) == compare(shares(30), shares(60), shares(30))


def test_only_requests_of_all_three_phases_count() -> None:
    assert compare({1: False, 2: True}, {1: True, 3: True}, {1: False}).mean == 1
    assert not compare({}, {}, {}).is_gain


def test_the_load_is_the_same_for_every_phase_and_holds_short_and_long_prompts() -> None:
    planned = requests(90, RATE, CHAT, DOCUMENTS)
    assert planned == requests(90, RATE, CHAT, DOCUMENTS)
    assert len(planned) == pytest.approx(90 * RATE, rel=0.1)
    chats, documents = (
        [each.prompt_tokens for each in planned if each.class_name == name] for name in ("chat", "documents")
    )
    assert max(chats) < min(documents)
    assert len({each.index for each in planned}) == len(planned)


def test_bounds_and_load_follow_the_pace_of_the_machine() -> None:
    written = [CHAT.model_dump(by_alias=True, exclude_none=True)]
    slow, fast = Pace(2 * REFERENCE_S), Pace(REFERENCE_S / 4)
    assert [Objective.model_validate(each).itl_ms for each in slow.objectives(written)] == [800]
    assert [Objective.model_validate(each).ttft_ms for each in fast.objectives(written)] == [375]
    assert len(requests(90, RATE / fast.slowness, CHAT, DOCUMENTS)) == pytest.approx(4 * 90 * RATE, rel=0.1)


def test_figures_leave_the_warm_up_out_but_count_every_request() -> None:
    before, after, again = phase("1", 0, 0.5), phase("3", 100, 0.1), phase("4", 200, 0.5)
    warm_up = [each for each in before.exchanges if each.request.send_s < WARM_UP_S]
    assert warm_up
    assert len(before.met) == len(before.exchanges) - len(warm_up)
    difference = compare(before.met, after.met, again.met)
    figures = summarize((before, after, again), (before, after, again), difference, {"pod_restarts": 0})
    assert figures["requests"] == figures["completed"] == 3 * len(before.exchanges)
    assert (figures["attainment_before"], figures["attainment_after"]) == (0, 1)
    assert figures["goodput_after_rps"] > figures["goodput_before_rps"] == 0
    assert succeeded(figures, difference)
    after.exchanges[-1] = replace(after.exchanges[-1], lost=True)
    cut = summarize((before, after, again), (before, after, again), difference, {"pod_restarts": 0})
    assert (cut["lost"], cut["errors"]) == (1, 1)
    assert not succeeded(cut, difference)
    assert not succeeded({**figures, "lost": 1}, difference)
    assert not succeeded({**figures, "pod_restarts": 1}, difference)
    assert not succeeded(figures, Difference(0.1, 0.0, 0.2))


def test_the_report_needs_nothing_else_to_open() -> None:
    phases = [phase("1 default knobs", 1e9, 0.5), phase("3 knobs found", 1e9 + 100, 0.1)]
    moments = [Moment(1e9 + second, "Serving", KNOBS) for second in (0, 50, 100)]
    decisions = [Decision(7, 1e9 + 50, "Promote", "chunk <64> is better")]
    compared = [(phases[0], KNOBS), (phases[1], KNOBS)]
    text = html.page(phases, Difference(1.0, 0.9, 1.0), moments, decisions, compared)
    assert "<svg" in text
    assert "chunk &lt;64&gt; is better" in text
    outside = [url for url in re.findall(r'(?:src|href)="([^"]+)"', text) if not url.startswith("#")]
    assert outside == []
    assert "@import" not in text


def test_held_knobs_leave_no_other_value() -> None:
    spec = held_at(KNOBS)["spec"]["tuning"]
    assert spec["mode"] == "Observe"
    assert spec["knobs"]["tokenBudget"] == {"min": 128, "max": 128, "start": 128}
    assert "generation" not in spec["knobs"]


def test_the_profile_is_one_that_the_operator_takes() -> None:
    spec = Spec.model_validate(yaml.safe_load((files("leeway_demo") / "profile.yaml").read_text())["spec"])
    assert set(objectives({"spec": spec.model_dump(by_alias=True)})) == {"chat", "documents"}
    starting = starting_knobs(spec)
    assert starting.token_budget == starting.prefill_heavy_chunk == spec.engine.ceilings.token_budget
    assert len(list(Space.of(knob_ranges(spec)).points(starting))) >= 30


def test_a_profile_left_behind_has_its_own_bounds_again() -> None:
    applied = manifest()
    knobs = dict(applied["spec"]["tuning"]["knobs"])
    for patch in (held_at(KNOBS), freed(applied)):
        for name, bounds in patch["spec"]["tuning"]["knobs"].items():  # as a merge patch is applied
            merged = {**knobs[name], **bounds}
            knobs[name] = {key: value for key, value in merged.items() if value is not None}
    assert knobs == applied["spec"]["tuning"]["knobs"]
    assert freed(applied)["spec"]["tuning"]["mode"] == "Auto"


def test_a_machine_that_became_slower_is_told_of_and_no_other() -> None:
    first = Pace(1.0)
    assert "2.5 times slower meanwhile" in first.warning(Pace(2.5))
    assert "1.00 s at first and takes 2.50 s now" in first.warning(Pace(2.5))
    assert not first.warning(Pace(1.1))
    assert not first.warning(Pace(0.5))
