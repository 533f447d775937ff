"""The Container Runtime Interface, served by running containers as local processes.

Two processes. The `keeper` is small and has one thread; it forks containers directly, writes their logs, watches their
memory and keeps their states. The `service` is the gRPC server that the kubelet talks to; it keeps what was asked for,
asks the keeper over a unix socket, and may be restarted while containers go on. A way to read:

- `record`: what is known of a container, as data. `specify`: from the kubelet's request to that. `refusals`: what
  cannot be honoured and is refused. `images`: what an image name means here.
- `sandbox`: what a pod's containers share. `container`: what happens in a container's process before its command runs,
  with its root from `rootfs` and its filter from `seccomp`.
- `loop`, `child`, `running`, `execution`, `logs`, `usage`: the keeper's parts; `keeper` puts them together.
- `catalog`, `runtime`, `stats`, and the calls in `sandbox_calls`, `container_calls`, `node_calls`, `image_service`: the
  service's parts; `service` puts them together.
- `enter`: a process that runs a command in a container, or connects to a port of a pod, for the streaming server.
  `ownerless`: a way to run the kubelet.

What differs from other runtimes, besides what `refusals` lists:

- An image is no file system: a container sees the machine's programs, read-only.
- Memory limits are held by watching, a few times a second; shared memory and volumes of medium Memory do not count.
- CPU limits are refused; CPU weights become niceness.
- `runAsUser` and `runAsGroup` hold for the container's own view; outside, all is the user who started the node.
- `HostToContainer` needs mounts of the node that are shared (mount_namespaces(7)).
- Containers live no longer than the keeper.
"""
