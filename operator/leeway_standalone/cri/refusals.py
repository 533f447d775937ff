"""Which fields of a pod cannot be honoured here. Each is refused, by name and with advice.

Of resources, CPU requests become niceness (`specify`), and what the kubelet sets for cgroups by itself (`unified`) has
no effect, since no cgroup is ours to write.
Further groups (`fsGroup`, `supplementalGroups`) need nothing: all volume files belong to the user a container runs as.
"""

from collections.abc import Iterator

from leeway_standalone.cri import api_pb2 as cri
from leeway_standalone.cri.container import CAPABILITIES

NAMESPACED_SYSCTLS = ("net.", "kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")


class RefusedError(ValueError):
    """What was asked for cannot be honoured; the message names the fields."""


def check_sandbox(config: cri.PodSandboxConfig, runtime_handler: str) -> None:
    """Refuse a pod that needs what is not there."""
    _raise(_sandbox_problems(config, runtime_handler))


def check_container(config: cri.ContainerConfig) -> None:
    """Refuse a container that needs what is not there."""
    _raise(_container_problems(config))


def _raise(problems: Iterator[str]) -> None:
    if found := list(problems):
        raise RefusedError("not possible where containers are local processes: " + "; ".join(found))


def _sandbox_problems(config: cri.PodSandboxConfig, runtime_handler: str) -> Iterator[str]:
    context = config.linux.security_context
    if runtime_handler:
        yield f"runtimeClassName with handler {runtime_handler}: leave it out"
    if context.privileged:
        yield "privileged: leave it out and add single capabilities"
    own_network = context.namespace_options.network != cri.NODE
    if own_network and any(port.host_port for port in config.port_mappings):
        yield "hostPort: use a Service, or hostNetwork"
    for name in config.linux.sysctls:
        if not name.startswith(NAMESPACED_SYSCTLS):
            yield f"sysctl {name}: it is not the pod's own but the whole machine's; set it there"
    yield from _namespace_problems(context.namespace_options)
    yield from _profile_problems(context)


def _container_problems(config: cri.ContainerConfig) -> Iterator[str]:
    context = config.linux.security_context
    if context.privileged:
        yield "privileged: leave it out and add single capabilities"
    if context.run_as_username:
        yield "runAsUserName: give the number in runAsUser"
    if config.stdin or config.tty:
        yield "stdin and tty: leave them out and use kubectl exec -it"
    if config.devices or config.CDI_devices:
        yield "devices: leave them out; the machine's GPUs are visible in every container"
    yield from _resource_problems(config.linux.resources)
    if config.linux.resources.cpuset_cpus or config.linux.resources.cpuset_mems:
        yield "a set of CPUs: use the kubelet's CPU manager policy none"
    if any(limit.limit for limit in config.linux.resources.hugepage_limits):
        yield "hugepages: leave them out of the limits"
    capabilities = context.capabilities
    for name in (*capabilities.add_capabilities, *capabilities.drop_capabilities):
        if name != "ALL" and capability_name(name) not in CAPABILITIES:
            yield f"capability {name}: no such name"
    if capabilities.add_ambient_capabilities:
        yield "ambient capabilities: leave them out"
    for mount in config.mounts:
        if mount.propagation == cri.PROPAGATION_BIDIRECTIONAL:
            yield f"mountPropagation Bidirectional at {mount.container_path}: use HostToContainer"
        if mount.HasField("image"):
            yield f"image volume at {mount.container_path}: use another kind of volume"
    yield from _namespace_problems(context.namespace_options)
    yield from _profile_problems(context)


def check_resources(resources: cri.LinuxContainerResources) -> None:
    """Refuse a change of resources to what cannot be held."""
    _raise(_resource_problems(resources))


def _resource_problems(resources: cri.LinuxContainerResources) -> Iterator[str]:
    if resources.cpu_quota > 0:
        yield "resources.limits.cpu: leave it out; who requests less CPU stands back behind the others"


def _namespace_problems(options: cri.NamespaceOption) -> Iterator[str]:
    if options.pid == cri.NODE:
        yield "hostPID: leave it out"
    if options.pid == cri.POD:
        yield "shareProcessNamespace: leave it out"
    if options.pid == cri.TARGET:
        yield "a container that shares another's processes (targetContainerName): use kubectl exec"
    if options.ipc == cri.NODE:
        yield "hostIPC: leave it out"
    if options.HasField("userns_options") and options.userns_options.mode != cri.NODE:
        yield "hostUsers false: leave it out; the whole node is in a user namespace already"


def _profile_problems(context: cri.LinuxSandboxSecurityContext | cri.LinuxContainerSecurityContext) -> Iterator[str]:
    profile = cri.SecurityProfile
    if context.seccomp.profile_type == profile.Localhost:
        yield "seccompProfile Localhost: use RuntimeDefault"
    if context.HasField("apparmor") and context.apparmor.profile_type != profile.Unconfined:
        yield "appArmorProfile: use Unconfined"
    if context.HasField("selinux_options") and context.selinux_options.ByteSize():
        yield "seLinuxOptions: leave them out"


def capability_name(name: str) -> str:
    """A capability's name without the prefix that some write."""
    return name.upper().removeprefix("CAP_")
