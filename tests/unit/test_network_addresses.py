"""Each pod has an address of its own, and one just freed rests before it is given again."""

from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway_standalone.network import NODE_ADDRESS, PODS, next_address

addresses = st.integers(int(PODS[2]), int(PODS[30])).map(IPv4Address)


@given(st.sets(addresses), st.none() | addresses)
def test_address_is_a_free_one_of_the_network(taken: set[IPv4Address], last: IPv4Address | None) -> None:
    found = next_address(taken, last)
    assert found in PODS
    assert found not in taken
    assert found not in {PODS.network_address, NODE_ADDRESS, PODS.broadcast_address}


@given(addresses)
def test_freed_address_is_not_the_next(last: IPv4Address) -> None:
    assert next_address(set(), last) == last + 1


def test_addresses_come_round() -> None:
    assert next_address(set(), PODS[-2]) == PODS[2]
    everything = set(PODS.hosts())
    assert next_address(everything - {PODS[7]}, PODS[9]) == PODS[7]
    with pytest.raises(OSError, match="delete pods"):
        next_address(everything, None)
