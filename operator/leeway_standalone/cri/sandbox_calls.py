"""The CRI's calls about pod sandboxes."""
# ruff: noqa: N802 - the names are the CRI's

import asyncio
import secrets
import socket
import time
from ipaddress import IPv4Address
from typing import Any

from leeway_standalone import network
from leeway_standalone.cri import api_pb2 as cri
from leeway_standalone.cri.record import PODS
from leeway_standalone.cri.refusals import check_sandbox
from leeway_standalone.cri.runtime import Context, Runtime, selected
from leeway_standalone.cri.sandbox import discard_sandbox, resolv_conf, set_ready


class SandboxCalls:
    """Run, stop, remove and list pod sandboxes."""

    runtime: Runtime

    async def RunPodSandbox(self, request: cri.RunPodSandboxRequest, _: Context) -> cri.RunPodSandboxResponse:
        """Make a pod's namespaces and connect its network."""
        config = request.config
        check_sandbox(config, request.runtime_handler)
        options = config.linux.security_context.namespace_options
        own_network = options.network != cri.NODE
        status = cri.PodSandboxStatus(
            id=secrets.token_hex(32), metadata=config.metadata, created_at=time.time_ns(), labels=config.labels,
            annotations=config.annotations, linux=cri.LinuxPodSandboxStatus(namespaces=cri.Namespace(options=options)),
        )  # fmt: skip
        self.runtime.catalog.add_sandbox(status, own_address=own_network)
        try:
            await self._build(status, config, own_network=own_network)
        except BaseException:
            await self._free(status.id)
            self.runtime.catalog.remove_sandbox(status.id)
            raise
        return cri.RunPodSandboxResponse(pod_sandbox_id=status.id)

    async def StopPodSandbox(self, request: cri.StopPodSandboxRequest, _: Context) -> cri.StopPodSandboxResponse:
        """Kill what runs in the pod and free its network."""
        sandbox = request.pod_sandbox_id
        stops = [
            self.runtime.keeper("stop", container=container, grace_s=0)
            for container in self.runtime.catalog.containers_of(sandbox)
        ]
        await asyncio.gather(*stops)
        await self._free(sandbox)
        return cri.StopPodSandboxResponse()

    async def RemovePodSandbox(self, request: cri.RemovePodSandboxRequest, _: Context) -> cri.RemovePodSandboxResponse:
        """Forget a pod, with its containers."""
        sandbox = request.pod_sandbox_id
        await asyncio.gather(*map(self.runtime.remove_container, self.runtime.catalog.containers_of(sandbox)))
        await self._free(sandbox)
        self.runtime.catalog.remove_sandbox(sandbox)
        return cri.RemovePodSandboxResponse()

    async def PodSandboxStatus(self, request: cri.PodSandboxStatusRequest, _: Context) -> cri.PodSandboxStatusResponse:
        """Tell a sandbox's state and address."""
        return cri.PodSandboxStatusResponse(status=self.runtime.sandbox(request.pod_sandbox_id))

    async def ListPodSandbox(self, request: cri.ListPodSandboxRequest, _: Context) -> cri.ListPodSandboxResponse:
        """List sandboxes."""
        wanted = request.filter
        statuses = map(self.runtime.sandbox, self.runtime.catalog.sandboxes)
        items = [
            cri.PodSandbox(
                id=status.id, metadata=status.metadata, state=status.state, created_at=status.created_at,
                labels=status.labels, annotations=status.annotations, runtime_handler=status.runtime_handler,
            )
            for status in statuses
            if wanted.id in ("", status.id)
            and (not wanted.HasField("state") or wanted.state.state == status.state)
            and selected(status.labels, wanted.label_selector)
        ]  # fmt: skip
        return cri.ListPodSandboxResponse(items=items)

    async def UpdatePodSandboxResources(
        self, _request: cri.UpdatePodSandboxResourcesRequest, _: Context
    ) -> cri.UpdatePodSandboxResourcesResponse:
        """Accept limits of the pod as a whole; only containers have limits here."""
        return cri.UpdatePodSandboxResourcesResponse()

    async def _build(self, status: cri.PodSandboxStatus, config: cri.PodSandboxConfig, *, own_network: bool) -> None:
        hostname = config.hostname or socket.gethostname()
        dns = config.dns_config
        files = {
            "hostname": f"{hostname}\n",
            "hosts": f"127.0.0.1 localhost\n{status.network.ip or '127.0.1.1'} {hostname}\n",
            "resolv.conf": resolv_conf(list(dns.servers), list(dns.searches), list(dns.options)),
        }
        await self.runtime.keeper(
            "sandbox", sandbox=status.id, hostname=hostname, own_network=own_network,
            sysctls=dict(config.linux.sysctls), files=files,
        )  # fmt: skip
        if own_network:
            namespace = PODS / status.id / "ns" / "net"
            await self._in_network(network.attach_pod, link_name(status.id), IPv4Address(status.network.ip), namespace)
        set_ready(status.id)

    async def _free(self, sandbox: str) -> None:
        if (PODS / sandbox).exists():
            await self._in_network(network.detach_pod, link_name(sandbox))
            discard_sandbox(sandbox)

    async def _in_network(self, call: Any, *arguments: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(self.runtime.network_thread, call, *arguments)


def link_name(sandbox: str) -> str:
    """The node's end of a pod's veth pair; a device's name has 15 characters at most."""
    return f"veth{sandbox[:11]}"
