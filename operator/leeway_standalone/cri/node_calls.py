"""The CRI's calls about the runtime itself, usage, and streaming."""
# ruff: noqa: N802 - the names are the CRI's

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import grpc

from leeway_standalone.cri import api_pb2 as cri
from leeway_standalone.cri import api_pb2_grpc, stats
from leeway_standalone.cri.refusals import RefusedError
from leeway_standalone.cri.runtime import Context, Runtime, State, selected
from leeway_standalone.cri.sandbox_calls import link_name
from leeway_standalone.cri.usage import Usage, container_usage

NAME = "leeway"
NO_STREAMING = "kubectl exec and port-forward need leeway-streaming, which does not run; use kubectl logs, or a Service"


class NodeCalls:
    """Version, status, statistics; and exec and port-forward, which the streaming server answers."""

    runtime: Runtime

    async def Version(self, _request: cri.VersionRequest, _: Context) -> cri.VersionResponse:
        """Tell who answers."""
        own = version("leeway")
        return cri.VersionResponse(version=own, runtime_name=NAME, runtime_version=own, runtime_api_version="v1")

    async def Status(self, request: cri.StatusRequest, _: Context) -> cri.StatusResponse:
        """Tell that containers and network are ready: the runtime does not answer before."""
        await self.runtime.keeper("states", container="none")
        conditions = [cri.RuntimeCondition(type=name, status=True) for name in ("RuntimeReady", "NetworkReady")]
        info = {"sandboxes": len(self.runtime.catalog.sandboxes), "containers": len(self.runtime.catalog.containers)}
        return cri.StatusResponse(
            status=cri.RuntimeStatus(conditions=conditions),
            info={"config": json.dumps(info)} if request.verbose else None,
            runtime_handlers=[cri.RuntimeHandler(features=cri.RuntimeHandlerFeatures(recursive_read_only_mounts=True))],
        )

    async def RuntimeConfig(self, _request: cri.RuntimeConfigRequest, _: Context) -> cri.RuntimeConfigResponse:
        """Tell the kubelet which cgroup driver to use; there are no cgroups."""
        return cri.RuntimeConfigResponse(linux=cri.LinuxRuntimeConfiguration(cgroup_driver=cri.CGROUPFS))

    async def UpdateRuntimeConfig(
        self, _request: cri.UpdateRuntimeConfigRequest, _: Context
    ) -> cri.UpdateRuntimeConfigResponse:
        """Take note of the node's pod addresses; they are always the same here."""
        return cri.UpdateRuntimeConfigResponse()

    async def ContainerStats(self, request: cri.ContainerStatsRequest, _: Context) -> cri.ContainerStatsResponse:
        """Tell a container's usage."""
        states = await self.runtime.states()
        self.runtime.container(request.container_id, states)
        usage = self._usages(states).get(request.container_id)
        return cri.ContainerStatsResponse(stats=self._container(request.container_id, usage))

    async def ListContainerStats(
        self, request: cri.ListContainerStatsRequest, _: Context
    ) -> cri.ListContainerStatsResponse:
        """List the usage of running containers."""
        wanted, known = request.filter, self.runtime.catalog.containers
        chosen = [
            self._container(name, usage)
            for name, usage in self._usages(await self.runtime.states()).items()
            if wanted.id in ("", name)
            and wanted.pod_sandbox_id in ("", known[name].spec.sandbox_id)
            and selected(known[name].status.labels, wanted.label_selector)
        ]
        return cri.ListContainerStatsResponse(stats=chosen)

    async def PodSandboxStats(self, request: cri.PodSandboxStatsRequest, _: Context) -> cri.PodSandboxStatsResponse:
        """Tell a pod's usage."""
        self.runtime.sandbox(request.pod_sandbox_id)
        usages = self._usages(await self.runtime.states())
        return cri.PodSandboxStatsResponse(stats=self._pod(request.pod_sandbox_id, usages))

    async def ListPodSandboxStats(
        self, request: cri.ListPodSandboxStatsRequest, _: Context
    ) -> cri.ListPodSandboxStatsResponse:
        """List the usage of pods."""
        wanted, usages = request.filter, self._usages(await self.runtime.states())
        chosen = [
            self._pod(name, usages)
            for name, status in self.runtime.catalog.sandboxes.items()
            if wanted.id in ("", name) and selected(status.labels, wanted.label_selector)
        ]
        return cri.ListPodSandboxStatsResponse(stats=chosen)

    async def ListMetricDescriptors(
        self, _request: cri.ListMetricDescriptorsRequest, _: Context
    ) -> cri.ListMetricDescriptorsResponse:
        """List no metrics beyond the statistics."""
        return cri.ListMetricDescriptorsResponse()

    async def ListPodSandboxMetrics(
        self, _request: cri.ListPodSandboxMetricsRequest, _: Context
    ) -> cri.ListPodSandboxMetricsResponse:
        """List no metrics beyond the statistics."""
        return cri.ListPodSandboxMetricsResponse()

    async def Exec(self, request: cri.ExecRequest, _: Context) -> cri.ExecResponse:
        """Have the streaming server prepare `kubectl exec`."""
        response: cri.ExecResponse = await self._forward("Exec", request)
        return response

    async def PortForward(self, request: cri.PortForwardRequest, _: Context) -> cri.PortForwardResponse:
        """Have the streaming server prepare `kubectl port-forward`."""
        response: cri.PortForwardResponse = await self._forward("PortForward", request)
        return response

    async def Attach(self, _request: cri.AttachRequest, _: Context) -> cri.AttachResponse:
        """Refuse: the streams of a container belong to its log."""
        raise RefusedError("attach is not possible here; use kubectl logs -f, or kubectl exec")

    async def _forward(self, call: str, request: Any) -> Any:
        if not self.runtime.streaming.exists():
            raise RefusedError(NO_STREAMING)
        async with grpc.aio.insecure_channel(f"unix:{self.runtime.streaming}") as channel:
            return await getattr(api_pb2_grpc.RuntimeServiceStub(channel), call)(request)

    def _usages(self, states: Mapping[str, State]) -> dict[str, Usage]:
        usages = {}
        for name in self.runtime.catalog.containers:
            if (state := states.get(name)) and state["pid"]:
                with suppress(OSError):  # it has just ended
                    usages[name] = container_usage(state["pid"])
        self.runtime.rates.forget_all_but({*usages, *self.runtime.catalog.sandboxes})
        return usages

    def _container(self, name: str, usage: Usage | None) -> cri.ContainerStats:
        known, now_ns = self.runtime.catalog.containers[name].status, time.time_ns()
        attributes = cri.ContainerAttributes(
            id=name, metadata=known.metadata, labels=known.labels, annotations=known.annotations
        )
        if usage is None:
            return cri.ContainerStats(attributes=attributes)
        return cri.ContainerStats(
            attributes=attributes,
            cpu=stats.cpu(name, usage.cpu_ns, now_ns, self.runtime.rates),
            memory=stats.memory([usage], known.resources.linux.memory_limit_in_bytes, now_ns),
            writable_layer=stats.written(usage, self.runtime.root, now_ns),
        )

    def _pod(self, sandbox: str, usages: Mapping[str, Usage]) -> cri.PodSandboxStats:
        known, now_ns = self.runtime.catalog.sandboxes[sandbox], time.time_ns()
        own = {name: usages[name] for name in self.runtime.catalog.containers_of(sandbox) if name in usages}
        processes = cri.UInt64Value(value=sum(usage.processes for usage in own.values()))
        linux = cri.LinuxPodSandboxStats(
            cpu=stats.cpu(sandbox, sum(usage.cpu_ns for usage in own.values()), now_ns, self.runtime.rates),
            memory=stats.memory(list(own.values()), 0, now_ns),
            network=stats.network(link_name(sandbox), now_ns),
            process=cri.ProcessUsage(timestamp=now_ns, process_count=processes),
            containers=[self._container(name, usage) for name, usage in own.items()],
        )
        attributes = cri.PodSandboxAttributes(
            id=sandbox, metadata=known.metadata, labels=known.labels, annotations=known.annotations
        )
        return cri.PodSandboxStats(attributes=attributes, linux=linux)
