"""What is turned away at the door, with which reason, and when it may come again."""

from contextlib import nullcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_core.policies import AdmissionLimits, Policies
from leeway_engine.scheduling.admission import ACCEPTED, Admission, Answer, Arrival, Occupancy
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.request import Request, RequestRejected
from leeway_engine.scheduling.scheduler import Scheduler

ARRIVAL = Arrival(uncached_tokens=100, prompt_tokens=120, max_tokens=50, expected_output=30)
POD = Occupancy(
    capacity_tokens=1000,
    expected_tokens=800,
    waiting_requests=10,
    tenant_requests=4,
    tenant_waiting_tokens=300,
    queue_s=6.0,
    end_s=2.0,
    tenant_end_s=3.0,
)


@pytest.mark.parametrize(
    ("limits", "answer", "reason", "retry_after_s"),
    [
        (AdmissionLimits(tenant_requests=4), Answer.REJECT, "tenant_requests", 3.0),
        (AdmissionLimits(tenant_waiting_tokens=399), Answer.REJECT, "tenant_tokens", 6.0),
        (AdmissionLimits(waiting_requests=10), Answer.ROUTE, "queue_full", 6.0),
        (AdmissionLimits(queue_delay_s=5.0), Answer.REJECT, "queue_delay", 1.0),
        (AdmissionLimits(kv_percent=92), Answer.ROUTE, "kv_headroom", 2.0),
        (AdmissionLimits(upstream_delay_s=4.0), Answer.QUEUE_UPSTREAM, "queue_upstream", 2.0),
    ],
)
def test_each_limit_has_its_answer(limits: AdmissionLimits, answer: Answer, reason: str, retry_after_s: float) -> None:
    verdict = Admission(limits).judge(ARRIVAL, POD)
    assert (verdict.answer, verdict.reason) == (answer, reason)
    assert verdict.retry_after_s == pytest.approx(retry_after_s)
    assert verdict.message


@pytest.mark.parametrize(
    "limits",
    [
        AdmissionLimits(),
        AdmissionLimits(tenant_requests=5),
        AdmissionLimits(tenant_waiting_tokens=400),
        AdmissionLimits(waiting_requests=11),
        AdmissionLimits(queue_delay_s=6.0),
        AdmissionLimits(kv_percent=93),
        AdmissionLimits(upstream_delay_s=6.0),
    ],
)
def test_at_its_limit_a_request_is_still_accepted(limits: AdmissionLimits) -> None:
    assert Admission(limits).judge(ARRIVAL, POD) == ACCEPTED


def test_an_idle_pod_takes_whatever_fits() -> None:
    idle = POD._replace(expected_tokens=0, waiting_requests=0, tenant_requests=0, tenant_waiting_tokens=0, queue_s=0.0)
    strict = AdmissionLimits(
        tenant_requests=1,
        tenant_waiting_tokens=1,
        waiting_requests=1,
        queue_delay_s=0.001,
        kv_percent=1,
        upstream_delay_s=0.001,
    )
    assert Admission(strict).judge(ARRIVAL, idle) == ACCEPTED


@given(prompt=st.integers(1, 300), output=st.integers(1, 300), capacity=st.integers(1, 400))
@settings(max_examples=100)
def test_what_can_never_fit_is_refused_for_good_and_what_can_is_not(prompt: int, output: int, capacity: int) -> None:
    verdict = Admission(None).fits(Arrival(prompt, prompt, output, output), capacity)
    if prompt + output - 1 > capacity:
        assert (verdict.answer, verdict.reason, verdict.retry_after_s) == (Answer.REJECT, "kv_exceeded", None)
    else:
        assert verdict == ACCEPTED


COUNTS = st.integers(0, 40)
SECONDS = st.floats(0, 40)


@given(
    limits=st.builds(
        AdmissionLimits,
        tenant_requests=st.none() | st.integers(1, 40),
        tenant_waiting_tokens=st.none() | st.integers(1, 40),
        waiting_requests=st.none() | st.integers(1, 40),
        queue_delay_s=st.none() | st.floats(0.1, 40),
        upstream_delay_s=st.none() | st.floats(0.1, 40),
        kv_percent=st.none() | st.integers(1, 200),
    ),
    arrival=st.builds(Arrival, COUNTS, COUNTS, COUNTS, COUNTS),
    pod=st.tuples(COUNTS, COUNTS, COUNTS, COUNTS, SECONDS, SECONDS, SECONDS),
    emptier=st.tuples(*[st.floats(0, 1)] * 7),
)
def test_what_a_fuller_pod_takes_an_emptier_one_takes_too(
    limits: AdmissionLimits, arrival: Arrival, pod: tuple[float, ...], emptier: tuple[float, ...]
) -> None:
    def occupancy(*shares: float) -> Occupancy:
        counts = [int(most * share) for most, share in zip(pod[:4], shares, strict=False)]
        return Occupancy(50, *counts, *[most * share for most, share in zip(pod[4:], shares[4:], strict=True)])

    admission = Admission(limits)
    if admission.judge(arrival, occupancy(*[1.0] * 7)) == ACCEPTED:
        assert admission.judge(arrival, occupancy(*emptier)) == ACCEPTED


def scheduler(limits: AdmissionLimits | None, running: int = 2) -> Scheduler:
    policies = Policies(admission=limits)
    knobs = PodKnobs(generation=1, token_budget=50, chunk_size=50, running_sequences=running, policies=policies)
    return Scheduler(BlockPool(200, 16), knobs, Ceilings(token_budget=50, chunk_size=50, running_sequences=8))


def run(engine: Scheduler, iterations: int) -> None:
    for _ in range(iterations):
        plan = engine.plan()
        engine.observe(plan, 0.1)
        engine.complete(plan)


def test_quotas_are_each_tenants_own_and_end_with_the_requests() -> None:
    engine = scheduler(AdmissionLimits(tenant_requests=2))
    engine.add("a1", 10, 5, tenant="a")
    engine.add("a2", 10, 5, tenant="a")
    engine.add("b1", 10, 5, tenant="b")
    with pytest.raises(RequestRejected, match="already has 2 requests") as rejection:
        engine.add("a3", 10, 5, tenant="a")
    assert rejection.value.code == "tenant_requests"
    assert rejection.value.retry_after_s is not None
    engine.cancel("a1")
    engine.add("a3", 10, 5, tenant="a")


@given(
    steps=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 60), st.integers(1, 12)) | st.sampled_from(("run", "cancel")),
        min_size=20,
        max_size=120,
    ),
    tenant_requests=st.integers(1, 4),
    tenant_tokens=st.integers(20, 120),
    waiting=st.integers(1, 6),
)
@settings(max_examples=60, deadline=None)
def test_no_storm_takes_a_tenant_past_its_quota_or_the_queue_past_its_length(
    steps: list[tuple[str, int, int] | str], tenant_requests: int, tenant_tokens: int, waiting: int
) -> None:
    engine = scheduler(
        AdmissionLimits(tenant_requests=tenant_requests, tenant_waiting_tokens=tenant_tokens, waiting_requests=waiting)
    )
    accepted: dict[str, str] = {}
    for number, step in enumerate(steps):
        if step == "run":
            run(engine, 1)
        elif step == "cancel":
            here = [*engine.waiting, *engine.running]
            if here:
                engine.cancel(here[number % len(here)])
        else:
            tenant, prompt, output = step
            own = [accepted[name] for name in (*engine.waiting, *engine.running)].count(tenant)
            queued = sum(one.prompt_tokens for name, one in engine.waiting.items() if accepted[name] == tenant)
            full = (
                own >= tenant_requests
                or (queued > 0 and queued + prompt > tenant_tokens)
                or len(engine.waiting) >= waiting
            )
            before = engine.waiting_tokens, len(engine.waiting), engine.pool.free
            accepted[str(number)] = tenant
            with pytest.raises(RequestRejected) if full else nullcontext():
                engine.add(str(number), prompt, output, tenant=tenant)
            if full:
                assert before == (engine.waiting_tokens, len(engine.waiting), engine.pool.free)
    for _ in range(len(steps) * 8):
        run(engine, 1)
    assert (dict(engine.running), dict(engine.waiting)) == ({}, {}), "whoever was accepted is served"


def test_a_rejected_request_leaves_nothing_behind() -> None:
    engine = scheduler(AdmissionLimits(waiting_requests=1))
    engine.add("a", 10, 5)
    with pytest.raises(RequestRejected):
        engine.add("b", 10, 5)
    run(engine, 20)
    assert (engine.running, dict(engine.waiting), engine.waiting_tokens, engine.pool.free) == ({}, {}, 0, 200)
    engine.add("b", 10, 5)


def test_the_predicted_queue_delay_is_about_the_one_that_comes() -> None:
    engine = scheduler(AdmissionLimits(queue_delay_s=1e9), running=8)
    for number in range(20):
        engine.add(f"lesson {number}", 50, 8)
    run(engine, 60)
    for number in range(8):
        engine.add(str(number), 200, 8)
    predicted_s = engine._occupancy("").queue_s
    last = engine.add("last", 50, 8)
    iterations = 0
    while not last.computed:
        run(engine, 1)
        iterations += 1
    assert predicted_s == pytest.approx(iterations * 0.1, rel=0.3)


BUSY = AdmissionLimits(queue_delay_s=1e9)


def taught(limits: AdmissionLimits, running: int, outputs: list[int], blocks: int = 2000) -> Scheduler:
    """A pod whose every iteration takes 0.1 s, and that has seen such outputs of the class `chat`."""
    policies = Policies(admission=AdmissionLimits())
    knobs = PodKnobs(generation=1, token_budget=256, chunk_size=64, running_sequences=running, policies=policies)
    engine = Scheduler(BlockPool(blocks, 16), knobs, Ceilings(token_budget=256, chunk_size=64, running_sequences=64))
    for number, output in enumerate(outputs):
        engine.add(f"lesson {number}", 8, output, slo_class="chat")
    while engine.running or engine.waiting:
        run(engine, 1)
    limited = Policies(admission=limits)
    engine.accept(knobs.model_copy(update={"generation": 2, "policies": limited}))
    return engine


def wait_s(engine: Scheduler, request: Request) -> float:
    """Run until the request has its first chunk, and return how long that took."""
    iterations = 0
    while not request.computed:
        run(engine, 1)
        iterations += 1
    return 0.1 * iterations


@pytest.mark.parametrize(
    ("running", "waiting", "prompt", "output"),
    [
        pytest.param(2, 0, 8, 100, id="the first to wait"),
        pytest.param(2, 18, 8, 100, id="a queue"),
        pytest.param(8, 5, 8, 60, id="fewer wait than run"),
        pytest.param(8, 50, 8, 20, id="many more wait than run"),
        pytest.param(32, 40, 300, 30, id="prefills and decodes"),
    ],
)
def test_the_predicted_queue_delay_knows_that_all_running_sequences_are_in_use(
    running: int, waiting: int, prompt: int, output: int
) -> None:
    engine = taught(BUSY, running, [output] * 20)
    for number in range(running + waiting):
        engine.add(str(number), prompt, 400, slo_class="chat")
    run(engine, 3)
    predicted_s = engine._occupancy("").queue_s
    last = engine.add("last", 8, 1)
    waited_s = 0.0
    while not last.computed:
        run(engine, 1)
        for request in [r for r in engine.running.values() if r.generated == output]:
            engine.stop(request.request_id)
        waited_s += 0.1
    assert predicted_s == pytest.approx(waited_s, rel=0.15, abs=0.3)


def test_an_output_is_expected_by_its_class_and_never_beyond_its_own_limit() -> None:
    engine = taught(BUSY, 1, [50] * 20)
    engine.add("runs", 8, 400, slo_class="chat")
    run(engine, 1)
    usual_s = engine._occupancy("").queue_s
    assert usual_s == pytest.approx(4.9, rel=0.1)
    engine.add("short", 8, 7, slo_class="chat")
    assert engine._occupancy("").queue_s - usual_s == pytest.approx(0.7, rel=0.1)
    engine.add("as all others", 8, 400, slo_class="of another class")
    assert engine._occupancy("").queue_s - usual_s == pytest.approx(5.7, rel=0.1)


def test_a_free_slot_is_no_wait_and_kv_that_holds_no_more_is_as_good_as_none() -> None:
    engine = taught(BUSY, 8, [40] * 20, blocks=20)
    for number in range(3):
        engine.add(str(number), 60, 40, slo_class="chat")
    run(engine, 2)
    assert engine._occupancy("").queue_s < 0.2
    for number in range(3, 6):
        engine.add(str(number), 60, 40, slo_class="chat")
    run(engine, 2)
    assert len(engine.running) < 6
    predicted_s = engine._occupancy("").queue_s
    assert predicted_s == pytest.approx(wait_s(engine, engine.add("last", 60, 40, slo_class="chat")), rel=0.4)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (AdmissionLimits(queue_delay_s=20.0), "queue_delay"),
        (AdmissionLimits(upstream_delay_s=20.0), "queue_upstream"),
        (AdmissionLimits(kv_percent=1), "kv_headroom"),
        (AdmissionLimits(tenant_requests=4), "tenant_requests"),
    ],
)
def test_who_comes_again_when_told_to_is_taken_and_not_much_earlier(limits: AdmissionLimits, reason: str) -> None:
    engine = taught(limits, 2, [100] * 20, blocks=4000 if reason == "kv_headroom" else 2000)
    # One end more, and a new one waits for no more than 20 s, or has room in the KV that is to be filled.
    for number in range(4):
        engine.add(str(number), 8, 100 if number < 2 else 200, slo_class="chat")
        run(engine, 1)
    if reason in ("queue_delay", "queue_upstream"):
        for number in range(4, 6):
            engine.add(str(number), 8, 100, slo_class="chat")
    with pytest.raises(RequestRejected) as rejection:
        engine.add("again", 150, 100, slo_class="chat")
    assert rejection.value.code == reason
    retry_after_s = rejection.value.retry_after_s
    assert retry_after_s is not None
    iterations = 0
    while True:
        run(engine, 1)
        iterations += 1
        try:
            engine.add("again", 150, 100, slo_class="chat")
        except RequestRejected:
            continue
        break
    assert retry_after_s == pytest.approx(iterations * 0.1, rel=0.15)


def test_a_long_queue_is_turned_away_and_taken_again_once_it_is_shorter() -> None:
    engine = scheduler(AdmissionLimits(queue_delay_s=3.0), running=8)
    for number in range(20):
        engine.add(f"lesson {number}", 50, 8)
    run(engine, 60)
    for number in range(8):
        engine.add(str(number), 200, 8)
    with pytest.raises(RequestRejected) as rejection:
        engine.add("one more", 200, 8)
    assert rejection.value.code == "queue_delay"
    assert rejection.value.retry_after_s is not None
    run(engine, 10 * (1 + int(rejection.value.retry_after_s)))
    engine.add("again", 200, 8)


def test_limits_are_switched_live() -> None:
    engine = scheduler(None)
    for number in range(5):
        engine.add(str(number), 10, 5)
    limited = Policies(admission=AdmissionLimits(waiting_requests=1))
    engine.accept(engine.accepted.model_copy(update={"generation": 2, "policies": limited}))
    run(engine, 1)
    with pytest.raises(RequestRejected):
        engine.add("more", 10, 5)
    run(engine, 30)
    assert engine.pool.free == 200
