"""The CRI's calls about containers."""
# ruff: noqa: N802 - the names are the CRI's

import base64
import secrets
import time

from leeway_standalone.cri import api_pb2 as cri
from leeway_standalone.cri.catalog import Container
from leeway_standalone.cri.refusals import check_container, check_resources
from leeway_standalone.cri.runtime import Context, Runtime, selected
from leeway_standalone.cri.specify import specify


class ContainerCalls:
    """Create, start, stop, remove and list containers, and run commands in them."""

    runtime: Runtime

    async def CreateContainer(self, request: cri.CreateContainerRequest, _: Context) -> cri.CreateContainerResponse:
        """Check what is asked for and put it on record."""
        self.runtime.sandbox(request.pod_sandbox_id)
        config = request.config
        check_container(config)
        name = secrets.token_hex(32)
        image = config.image.image
        spec = specify(name, request, self.runtime.images.find(image))
        status = cri.ContainerStatus(
            id=name, metadata=config.metadata, created_at=time.time_ns(), image=config.image, image_ref=image,
            image_id=image, labels=config.labels, annotations=config.annotations, mounts=config.mounts,
            log_path=spec.log_path, resources=cri.ContainerResources(linux=config.linux.resources),
            user=cri.ContainerUser(linux=cri.LinuxContainerUser(uid=spec.uid, gid=spec.gid)),
            stop_signal=config.stop_signal,
        )  # fmt: skip
        self.runtime.catalog.add_container(Container(status, spec))
        return cri.CreateContainerResponse(container_id=name)

    async def StartContainer(self, request: cri.StartContainerRequest, _: Context) -> cri.StartContainerResponse:
        """Start a container; an error says why its command could not be executed."""
        self.runtime.container(request.container_id, {})
        await self.runtime.keeper("start", container=request.container_id)
        return cri.StartContainerResponse()

    async def StopContainer(self, request: cri.StopContainerRequest, _: Context) -> cri.StopContainerResponse:
        """Stop a container, by force after the grace period."""
        await self.runtime.keeper("stop", container=request.container_id, grace_s=request.timeout)
        return cri.StopContainerResponse()

    async def RemoveContainer(self, request: cri.RemoveContainerRequest, _: Context) -> cri.RemoveContainerResponse:
        """Remove a container, by force if it runs."""
        await self.runtime.remove_container(request.container_id)
        return cri.RemoveContainerResponse()

    async def ContainerStatus(self, request: cri.ContainerStatusRequest, _: Context) -> cri.ContainerStatusResponse:
        """Tell what became of a container."""
        return cri.ContainerStatusResponse(
            status=self.runtime.container(request.container_id, await self.runtime.states())
        )

    async def ListContainers(self, request: cri.ListContainersRequest, _: Context) -> cri.ListContainersResponse:
        """List containers."""
        wanted, states = request.filter, await self.runtime.states()
        known = list(self.runtime.catalog.containers.values())
        statuses = [(self.runtime.container(item.status.id, states), item.spec.sandbox_id) for item in known]
        containers = [
            cri.Container(
                id=status.id, pod_sandbox_id=sandbox, metadata=status.metadata, image=status.image,
                image_ref=status.image_ref, image_id=status.image_id, state=status.state, created_at=status.created_at,
                labels=status.labels, annotations=status.annotations,
            )
            for status, sandbox in statuses
            if wanted.id in ("", status.id)
            and wanted.pod_sandbox_id in ("", sandbox)
            and (not wanted.HasField("state") or wanted.state.state == status.state)
            and selected(status.labels, wanted.label_selector)
        ]  # fmt: skip
        return cri.ListContainersResponse(containers=containers)

    async def UpdateContainerResources(
        self, request: cri.UpdateContainerResourcesRequest, _: Context
    ) -> cri.UpdateContainerResourcesResponse:
        """Change the memory limit; CPU requests count from the next start, and a CPU limit is refused."""
        check_resources(request.linux)
        name, limit = request.container_id, request.linux.memory_limit_in_bytes
        self.runtime.container(name, {})
        self.runtime.catalog.update_resources(name, request.linux)
        if limit:
            await self.runtime.keeper("limit", container=name, memory_bytes=limit)
        return cri.UpdateContainerResourcesResponse()

    async def ReopenContainerLog(
        self, request: cri.ReopenContainerLogRequest, _: Context
    ) -> cri.ReopenContainerLogResponse:
        """Go on in a new log file, after the kubelet has renamed the old one."""
        self.runtime.container(request.container_id, {})
        await self.runtime.keeper("reopen_log", container=request.container_id)
        return cri.ReopenContainerLogResponse()

    async def ExecSync(self, request: cri.ExecSyncRequest, _: Context) -> cri.ExecSyncResponse:
        """Run a command in a container to its end; TimeoutError when it takes too long."""
        self.runtime.container(request.container_id, {})
        result = await self.runtime.keeper(
            "execute", container=request.container_id, argv=list(request.cmd), timeout_s=request.timeout
        )
        if "overdue" in result:
            raise TimeoutError(f"command {' '.join(request.cmd)} timed out after {request.timeout} s")
        outputs = {name: base64.b64decode(result[name]) for name in ("stdout", "stderr")}
        return cri.ExecSyncResponse(exit_code=result["exit_code"], **outputs)
