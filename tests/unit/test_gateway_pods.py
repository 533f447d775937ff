"""Which pods take requests, and which one takes the next."""

import asyncio
from typing import Any

import pytest
from leeway_gateway.endpoint_slices import ready_pods
from leeway_gateway.placement.least_loaded import PodLoad, least_loaded
from leeway_gateway.roster import Pod, Roster

A, B = Pod("a", "http://10.0.0.1:8000"), Pod("b", "http://10.0.0.2:8000")


def endpoint(name: str, address: str, **conditions: bool) -> dict[str, Any]:
    return {"addresses": [address], "conditions": conditions, "targetRef": {"kind": "Pod", "name": name}}


def endpoint_slice(*endpoints: dict[str, Any], family: str = "IPv4") -> dict[str, Any]:
    ports = [{"name": "knobs", "port": 8001}, {"name": "http", "port": 8000}]
    return {"addressType": family, "ports": ports, "endpoints": list(endpoints)}


def test_the_pod_with_the_fewest_requests_is_next() -> None:
    assert least_loaded([PodLoad(2, 1, "a"), PodLoad(1, 9, "b"), PodLoad(3, 0, "c")]) == "b"


def test_among_equals_the_turn_goes_round() -> None:
    roster = Roster([A, B])
    chosen = []
    for _ in range(4):
        pod = roster.choose(())
        assert pod is not None
        with roster.request_on(pod):
            chosen.append(pod.name)
    assert chosen == ["a", "b", "a", "b"]


def test_a_pod_in_use_is_passed_over_for_an_idle_one() -> None:
    roster = Roster([A, B])
    with roster.request_on(A), roster.request_on(B), roster.request_on(B):
        assert roster.choose(()) == A
        assert roster.choose({A}) == B
        assert roster.choose({A, B}) is None


def test_a_pod_that_left_is_chosen_no_more_and_one_that_came_back_elsewhere_is_new() -> None:
    roster = Roster([A, B])
    moved = Pod("a", "http://10.0.0.9:8000")
    with roster.request_on(A):
        roster.replace([moved])
        assert roster.choose(()) == moved
    assert roster.choose({moved}) is None


def test_whoever_waits_learns_of_a_new_pod_at_once() -> None:
    async def wait() -> None:
        roster = Roster()
        waiting = asyncio.create_task(roster.wait_for_change(60))
        await asyncio.sleep(0)
        roster.replace([A])
        await asyncio.wait_for(waiting, 1)

    asyncio.run(wait())


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [({"ready": True}, True), ({}, True), ({"ready": False}, False), ({"ready": False, "serving": True}, False)],
)
def test_only_ready_endpoints_are_pods_and_an_unknown_condition_is_ready(
    conditions: dict[str, bool], ready: bool
) -> None:
    pods = ready_pods([endpoint_slice(endpoint("a", "10.0.0.1", **conditions))], "http")
    assert pods == ([A] if ready else [])


def test_slices_are_joined_and_the_port_is_found_by_name() -> None:
    slices = [endpoint_slice(endpoint("a", "10.0.0.1")), endpoint_slice(endpoint("b", "10.0.0.2"))]
    assert ready_pods(slices, "http") == [A, B]
    assert [pod.url for pod in ready_pods(slices, "knobs")] == ["http://10.0.0.1:8001", "http://10.0.0.2:8001"]
    assert ready_pods(slices, "other") == []


def test_ipv6_addresses_and_empty_slices_are_fine() -> None:
    slices = [endpoint_slice(endpoint("a", "fd00::1"), family="IPv6"), {"addressType": "IPv4", "endpoints": None}]
    assert ready_pods(slices, "http") == [Pod("a", "http://[fd00::1]:8000")]
