"""What cannot be honoured is refused by name; what Pod Security `restricted` uses never is."""

from collections.abc import Callable

import pytest
from leeway_standalone.cri import api_pb2 as cri
from leeway_standalone.cri.refusals import RefusedError, check_container, check_resources, check_sandbox

LOCALHOST = cri.SecurityProfile(profile_type=cri.SecurityProfile.Localhost, localhost_ref="x")
RUNTIME_DEFAULT = cri.SecurityProfile(profile_type=cri.SecurityProfile.RuntimeDefault)


def sandbox() -> cri.PodSandboxConfig:
    """As the kubelet fills it in for an ordinary pod."""
    config = cri.PodSandboxConfig(hostname="pod", port_mappings=[cri.PortMapping(container_port=80)])
    context = config.linux.security_context
    context.namespace_options.pid = cri.CONTAINER
    context.seccomp.CopyFrom(RUNTIME_DEFAULT)
    context.run_as_user.value = 1000
    context.supplemental_groups.append(2000)
    return config


def container() -> cri.ContainerConfig:
    """As the kubelet fills it in under `restricted`."""
    config = cri.ContainerConfig(command=["true"], mounts=[cri.Mount(container_path="/v", host_path="/h")])
    resources = config.linux.resources
    resources.cpu_shares, resources.cpu_quota, resources.memory_limit_in_bytes = 2, 0, 1 << 20
    resources.oom_score_adj = -997
    resources.hugepage_limits.add(page_size="2MB", limit=0)
    resources.unified["memory.oom.group"] = "1"
    context = config.linux.security_context
    context.namespace_options.pid = cri.CONTAINER
    context.seccomp.CopyFrom(RUNTIME_DEFAULT)
    context.run_as_user.value = 1000
    context.no_new_privs = context.readonly_rootfs = True
    context.capabilities.drop_capabilities.append("ALL")
    context.capabilities.add_capabilities.append("NET_BIND_SERVICE")
    return config


def test_restricted_pods_are_accepted() -> None:
    check_sandbox(sandbox(), "")
    check_container(container())


def options(**values: int) -> Callable[[cri.PodSandboxConfig | cri.ContainerConfig], None]:
    return lambda config: config.linux.security_context.namespace_options.MergeFrom(cri.NamespaceOption(**values))


def context(**values: object) -> Callable[[cri.PodSandboxConfig | cri.ContainerConfig], None]:
    return lambda config: config.linux.security_context.MergeFrom(type(config.linux.security_context)(**values))


OF_BOTH = {
    "privileged": context(privileged=True),
    "hostPID": options(pid=cri.NODE),
    "hostIPC": options(ipc=cri.NODE),
    "hostUsers false": lambda config: setattr(
        config.linux.security_context.namespace_options.userns_options, "mode", cri.POD
    ),
    "seccompProfile Localhost": context(seccomp=LOCALHOST),
    "appArmorProfile": context(apparmor=RUNTIME_DEFAULT),
    "seLinuxOptions": context(selinux_options=cri.SELinuxOption(level="s0")),
}
OF_SANDBOX = {
    **OF_BOTH,
    "shareProcessNamespace": lambda config: setattr(config.linux.security_context.namespace_options, "pid", cri.POD),
    "hostPort": lambda config: config.port_mappings.add(host_port=80, container_port=80),
    "sysctl kernel.pid_max": lambda config: config.linux.sysctls.update({"kernel.pid_max": "1"}),
}
OF_CONTAINER = {
    **OF_BOTH,
    "targetContainerName": options(pid=cri.TARGET),
    "stdin and tty": lambda config: setattr(config, "tty", True),
    "devices": lambda config: config.devices.add(host_path="/dev/x"),
    "hugepages": lambda config: config.linux.resources.hugepage_limits.add(page_size="2MB", limit=1),
    "resources.limits.cpu": lambda config: setattr(config.linux.resources, "cpu_quota", 10000),
    "a set of CPUs": lambda config: setattr(config.linux.resources, "cpuset_cpus", "0"),
    "capability NONSENSE": lambda config: config.linux.security_context.capabilities.add_capabilities.append(
        "NONSENSE"
    ),
    "ambient": lambda config: config.linux.security_context.capabilities.add_ambient_capabilities.append("CHOWN"),
    "mountPropagation Bidirectional at /b": lambda config: config.mounts.add(
        container_path="/b", propagation=cri.PROPAGATION_BIDIRECTIONAL
    ),
    "image volume at /i": lambda config: config.mounts.add(container_path="/i", image=cri.ImageSpec(image="x")),
    "runAsUserName": context(run_as_username="me"),
}


@pytest.mark.parametrize("name", OF_SANDBOX)
def test_sandbox_field_is_refused_by_name(name: str) -> None:
    config = sandbox()
    OF_SANDBOX[name](config)
    with pytest.raises(RefusedError) as caught:
        check_sandbox(config, "")
    assert name in str(caught.value)


@pytest.mark.parametrize("name", OF_CONTAINER)
def test_container_field_is_refused_by_name(name: str) -> None:
    config = container()
    OF_CONTAINER[name](config)
    with pytest.raises(RefusedError) as caught:
        check_container(config)
    assert name in str(caught.value)


def test_all_problems_are_told_at_once() -> None:
    config = container()
    config.tty = True
    config.linux.security_context.privileged = True
    with pytest.raises(RefusedError, match=r"privileged: .*; stdin and tty: "):
        check_container(config)


def test_other_runtime_class_is_refused() -> None:
    with pytest.raises(RefusedError, match="runtimeClassName with handler kata"):
        check_sandbox(sandbox(), "kata")


def test_host_port_is_free_to_a_pod_on_the_hosts_network() -> None:
    config = sandbox()
    OF_SANDBOX["hostPort"](config)
    config.linux.security_context.namespace_options.network = cri.NODE
    check_sandbox(config, "")


def test_a_cpu_limit_is_refused_later_too() -> None:
    check_resources(cri.LinuxContainerResources(memory_limit_in_bytes=1 << 20, cpu_quota=-1))
    with pytest.raises(RefusedError, match=r"resources\.limits\.cpu"):
        check_resources(cri.LinuxContainerResources(cpu_quota=10000))
