"""The routed network: an address on the node for each pod, behind a veth pair; no bridge, so no kernel module for one.

The node has its address on its loopback device. A pod's `eth0` has its own address alone and sends everything to the
node's, for which the node answers at each of its ends of the pairs; then it routes.
"""

from collections.abc import Collection
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network
from itertools import chain
from pathlib import Path

from pyroute2 import IPRoute, NetlinkError

from leeway_standalone import addresses
from leeway_standalone.linux import Namespace, setns

PODS = IPv4Network(addresses.POD_NETWORK)
NODE_ADDRESS = IPv4Address(addresses.NODE_ADDRESS)
NODE_SYSCTLS = {"ip_forward": "1", "conf/all/send_redirects": "0", "conf/default/send_redirects": "0"}


def prepare_node() -> None:
    """Set up the node's own network namespace, by a process in it."""
    with IPRoute() as node:
        loopback = node.link_lookup(ifname="lo")[0]
        node.link("set", index=loopback, state="up")
        node.addr("replace", index=loopback, address=str(NODE_ADDRESS), prefixlen=32)
        # From the node, too, a Service's address must reach netfilter, which then knows better.
        node.route("replace", dst=addresses.SERVICE_NETWORK, oif=loopback)
    for name, value in NODE_SYSCTLS.items():
        Path("/proc/sys/net/ipv4", name).write_text(value)


def next_address(taken: Collection[IPv4Address], last: IPv4Address | None) -> IPv4Address:
    """A free pod address, by preference one not used lately: the next after the last one given."""
    first, end = int(NODE_ADDRESS) + 1, int(PODS.broadcast_address)
    start = int(last) + 1 if last else first
    for number in chain(range(start, end), range(first, start)):
        if IPv4Address(number) not in taken:
            return IPv4Address(number)
    raise OSError(f"no pod address of {PODS} is free; delete pods")


def attach_pod(link: str, address: IPv4Address, namespace: Path) -> None:
    """Connect a pod's network namespace; the calling thread is in that namespace for a moment."""
    with open("/proc/thread-self/ns/net") as home, namespace.open() as there, IPRoute() as node:
        setns(there.fileno(), Namespace.NETWORK)
        try:
            inside = IPRoute()
        finally:
            setns(home.fileno(), Namespace.NETWORK)
        with inside:
            node.link("add", ifname=link, kind="veth", peer={"ifname": "eth0", "net_ns_fd": there.fileno()})
            inside.link("set", index=inside.link_lookup(ifname="lo")[0], state="up")
            device = inside.link_lookup(ifname="eth0")[0]
            inside.addr("add", index=device, address=str(address), prefixlen=32)
            inside.link("set", index=device, state="up")
            outer = node.link_lookup(ifname=link)[0]
            node.link("set", index=outer, state="up")
            node.route("add", dst=f"{address}/32", oif=outer, prefsrc=str(NODE_ADDRESS), scope="link")
            inside.route("add", dst="default", gateway=str(NODE_ADDRESS), oif=device, flags=["onlink"])


def detach_pod(link: str) -> None:
    """Remove a pod's connection; does nothing when it is gone."""
    with IPRoute() as node, suppress(NetlinkError):
        for index in node.link_lookup(ifname=link):
            node.link("del", index=index)
