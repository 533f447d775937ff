"""From what the kubelet asks for to a container's spec; pure."""

import math
import os
import signal

from leeway_standalone.cri import api_pb2 as cri
from leeway_standalone.cri.container import CAPABILITIES
from leeway_standalone.cri.images import DEFAULT_PATH, Image, full_command
from leeway_standalone.cri.record import ContainerSpec, Mount
from leeway_standalone.cri.refusals import capability_name

DEFAULT_CAPABILITIES = frozenset({
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW",
    "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
})  # fmt: skip
"""As containerd gives them."""


def specify(container: str, request: cri.CreateContainerRequest, image: Image) -> ContainerSpec:
    """The spec of a container that was checked for refusals before."""
    config, pod = request.config, request.sandbox_config
    context, resources = config.linux.security_context, config.linux.resources
    uid = context.run_as_user.value if context.HasField("run_as_user") else image.uid or 0
    image_gid = uid if uid == image.uid else 0
    home = {"HOME": "/root" if uid == 0 else "/"}
    own_env = {item.key: os.fsdecode(item.value) for item in config.envs}
    host_name = {"HOSTNAME": pod.hostname} if pod.hostname else {}
    log_path = os.path.join(pod.log_directory, config.log_path) if pod.log_directory and config.log_path else ""
    return ContainerSpec(
        id=container,
        sandbox_id=request.pod_sandbox_id,
        argv=full_command(image, config.image.image, [*config.command], [*config.args]),
        env={"PATH": DEFAULT_PATH} | home | host_name | image.env | own_env,
        working_dir=config.working_dir or "/",
        uid=uid,
        gid=context.run_as_group.value if context.HasField("run_as_group") else image_gid,
        capabilities=sorted(capabilities(context.capabilities)),
        no_new_privileges=context.no_new_privs,
        filter_system_calls=context.HasField("seccomp")
        and context.seccomp.profile_type == cri.SecurityProfile.RuntimeDefault,
        read_only_root=context.readonly_rootfs,
        masked_paths=list(context.masked_paths),
        read_only_paths=list(context.readonly_paths),
        mounts=sorted(map(_mount, config.mounts), key=lambda mount: mount.target.count("/")),  # outer ones first
        image_binds=image.binds,
        log_path=log_path,
        niceness=niceness(resources.cpu_shares),
        memory_limit_bytes=resources.memory_limit_in_bytes,
        oom_score_adj=resources.oom_score_adj,
        stop_signal=stop_signal(config.stop_signal),
    )


def niceness(cpu_shares: int) -> int:
    """How far a container stands back when processors are short: 0 for one that requests a CPU (1024 shares) or more.

    A step of niceness is a quarter of weight (sched(7)). Only root could let a container go before the machine's own.
    """
    if not cpu_shares:
        return 0
    return min(19, max(0, round(math.log(1024 / cpu_shares, 1.25))))


def capabilities(asked: cri.Capability) -> frozenset[str]:
    """The default ones, less what is dropped, with what is added; `ALL` comes before single names."""
    added = {capability_name(name) for name in asked.add_capabilities}
    dropped = {capability_name(name) for name in asked.drop_capabilities}
    start = frozenset(CAPABILITIES) if "ALL" in added else DEFAULT_CAPABILITIES
    kept = frozenset() if "ALL" in dropped else start - dropped
    return kept | (added - {"ALL"})


def stop_signal(asked: cri.Signal) -> int:
    """The number of a signal, from its name in the CRI (SIGRTMIN and SIGRTMAX with distances)."""
    name = cri.Signal.Name(asked)
    if name == "RUNTIME_DEFAULT":
        return signal.SIGTERM
    base, _, distance = name.replace("PLUS", "+").replace("MINUS", "+-").partition("+")
    return int(getattr(signal, base)) + int(distance or 0)


def _mount(mount: cri.Mount) -> Mount:
    return Mount(
        source=mount.host_path,
        target=mount.container_path,
        read_only=mount.readonly,
        recursive_read_only=mount.recursive_read_only,
        receives_mounts=mount.propagation == cri.PROPAGATION_HOST_TO_CONTAINER,
    )
