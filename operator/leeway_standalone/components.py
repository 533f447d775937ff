"""What runs on the node of a standalone: each component's command line, and how it is known to be ready."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from leeway_standalone import addresses as at
from leeway_standalone.credentials import Credentials
from leeway_standalone.state import StateDirectory

RUN = Path("/run/leeway")
"""Sockets and namespaces of the node; a tmpfs inside the standalone, gone with it."""

CRI_SOCKET = RUN / "cri.sock"
KEEPER_SOCKET = RUN / "keeper.sock"
STREAMING_SOCKET = RUN / "streaming.sock"


@dataclass(frozen=True)
class Probe:
    """Ready when the URL answers 200 to the client's credential or, for a path, when the socket accepts."""

    target: str | Path
    client: str | None = None


@dataclass(frozen=True)
class Component:
    """A process of the node. It starts after those before it in its list are ready."""

    name: str
    argv: tuple[str, ...]
    probe: Probe | None = None
    joins: bool = False
    """Whether it starts together with the component before it."""
    inherits: tuple[int, ...] = ()
    """Open descriptors that are handed down to it."""


def list_components(
    state: StateDirectory, credentials: Credentials, binaries: Mapping[str, Path], kubelet_configuration: Path
) -> list[Component]:
    """List the node's processes in the order of their start."""
    pki = credentials.of
    authority = str(credentials.authority.certificate)
    python = (sys.executable, "-P", "-m")
    root = ("--root", str(state.node / "cri"))
    keeper = ("--keeper", str(KEEPER_SOCKET))

    def binary(name: str, *flags: str) -> tuple[str, ...]:
        return (str(binaries[name]), *flags)

    def kubeconfig(name: str) -> str:
        return str(credentials.kubeconfig_of[name])

    return [
        Component(
            "etcd",
            binary(
                "etcd",
                f"--data-dir={state.etcd}",
                f"--listen-client-urls=https://127.0.0.1:{at.ETCD_PORT}",
                f"--advertise-client-urls=https://127.0.0.1:{at.ETCD_PORT}",
                "--listen-peer-urls=http://127.0.0.1:0",
                f"--cert-file={pki['etcd'].certificate}",
                f"--key-file={pki['etcd'].key}",
                f"--trusted-ca-file={authority}",
                "--client-cert-auth",
                "--log-level=warn",
            ),
            Probe(f"https://127.0.0.1:{at.ETCD_PORT}/health", client="etcd-client"),
        ),
        Component(
            "kube-apiserver",
            binary(
                "kube-apiserver",
                f"--bind-address={at.NODE_ADDRESS}",
                f"--advertise-address={at.NODE_ADDRESS}",
                f"--secure-port={at.API_PORT}",
                f"--etcd-servers=https://127.0.0.1:{at.ETCD_PORT}",
                f"--etcd-cafile={authority}",
                f"--etcd-certfile={pki['etcd-client'].certificate}",
                f"--etcd-keyfile={pki['etcd-client'].key}",
                f"--client-ca-file={authority}",
                f"--tls-cert-file={pki['kube-apiserver'].certificate}",
                f"--tls-private-key-file={pki['kube-apiserver'].key}",
                f"--kubelet-certificate-authority={authority}",
                f"--kubelet-client-certificate={pki['kubelet-client'].certificate}",
                f"--kubelet-client-key={pki['kubelet-client'].key}",
                "--kubelet-preferred-address-types=InternalIP",
                f"--service-account-issuer=https://kubernetes.default.svc.{at.CLUSTER_DOMAIN}",
                f"--service-account-key-file={credentials.service_accounts.certificate}",
                f"--service-account-signing-key-file={credentials.service_accounts.key}",
                f"--service-cluster-ip-range={at.SERVICE_NETWORK}",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--allow-privileged",  # the runtime refuses what it cannot do, and says why
                "--profiling=false",
            ),
            Probe(f"{at.API_URL}/readyz", client="admin"),
            joins=True,
        ),
        Component(
            "cri-keeper",
            (*python, "leeway_standalone.cri.keeper", *root, "--socket", str(KEEPER_SOCKET)),
            Probe(KEEPER_SOCKET),
            joins=True,
        ),
        Component(
            "cri-streaming",
            binary(
                *("leeway-streaming", f"--socket={STREAMING_SOCKET}", "--"),
                *(*python, "leeway_standalone.cri.enter", *root, *keeper),
            ),
            Probe(STREAMING_SOCKET),
            joins=True,
        ),
        Component(
            "cri",
            (
                *(*python, "leeway_standalone.cri.service", *root, *keeper, "--socket", str(CRI_SOCKET)),
                *("--images", str(state.node / "images.json"), "--streaming", str(STREAMING_SOCKET)),
            ),
            Probe(CRI_SOCKET),
            joins=True,
        ),
        Component(
            "kubelet",
            (
                *(*python, "leeway_standalone.cri.ownerless", str(binaries["kubelet"])),
                f"--config={kubelet_configuration}",
                f"--kubeconfig={kubeconfig('kubelet')}",
                f"--hostname-override={at.NODE_NAME}",
                f"--node-ip={at.NODE_ADDRESS}",
                f"--root-dir={state.node / 'kubelet'}",
                f"--cert-dir={state.node / 'kubelet/pki'}",
            ),
            Probe(f"{at.API_URL}/api/v1/nodes/{at.NODE_NAME}", client="admin"),
        ),
        Component(
            "kube-controller-manager",
            binary(
                "kube-controller-manager",
                f"--kubeconfig={kubeconfig('kube-controller-manager')}",
                "--bind-address=127.0.0.1",
                f"--root-ca-file={authority}",
                f"--service-account-private-key-file={credentials.service_accounts.key}",
                "--use-service-account-credentials",
                "--leader-elect=false",
                "--enable-hostpath-provisioner",
                "--kube-api-qps=200",
                "--kube-api-burst=400",
                "--profiling=false",
            ),
            Probe("https://127.0.0.1:10257/healthz"),
            joins=True,
        ),
        Component(
            "kube-scheduler",
            binary(
                "kube-scheduler",
                f"--kubeconfig={kubeconfig('kube-scheduler')}",
                "--bind-address=127.0.0.1",
                "--leader-elect=false",
                "--profiling=false",
            ),
            Probe("https://127.0.0.1:10259/healthz"),
            joins=True,
        ),
        Component(
            "kube-proxy",
            binary(
                "kube-proxy",
                "--proxy-mode=nftables",
                f"--kubeconfig={kubeconfig('kube-proxy')}",
                f"--hostname-override={at.NODE_NAME}",
                f"--cluster-cidr={at.POD_NETWORK}",
                "--conntrack-max-per-core=0",
                "--conntrack-min=0",
                "--conntrack-tcp-timeout-established=0",
                "--conntrack-tcp-timeout-close-wait=0",
                "--healthz-bind-address=127.0.0.1:10256",
                "--metrics-bind-address=127.0.0.1:10249",
            ),
            Probe("http://127.0.0.1:10256/healthz"),
            joins=True,
        ),
    ]


def kubelet_configuration(state: StateDirectory, credentials: Credentials) -> dict[str, object]:
    """Return the KubeletConfiguration of a node without cgroups of its own, in a user namespace."""
    serving = credentials.of["kubelet"]
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": at.NODE_ADDRESS,
        "healthzBindAddress": "127.0.0.1",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(credentials.authority.certificate)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        "containerRuntimeEndpoint": f"unix://{CRI_SOCKET}",
        "clusterDNS": [at.DNS_SERVICE],
        "clusterDomain": at.CLUSTER_DOMAIN,
        "resolvConf": "",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "makeIPTablesUtilChains": False,
        "failSwapOn": False,
        "featureGates": {"KubeletInUserNamespace": True, "PodAndContainerStatsFromCRI": True},
        "podLogsDir": str(state.node / "pod-logs"),
        "volumePluginDir": str(state.node / "volume-plugins"),
        "staticPodPath": "",
        "serializeImagePulls": False,
        "registryPullQPS": 0,
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "5s",
        # The machine's disk is the user's: a full one is said at the start, not met by evicting pods.
        "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%", "memory.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
    }
