"""One credential for each component, and the kubeconfigs that carry them."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from leeway_standalone import addresses
from leeway_standalone.kubeconfig import write_kubeconfig
from leeway_standalone.pki import Authority, Credential, Identity
from leeway_standalone.state import StateDirectory

API_SERVER_NAMES = (
    "localhost",
    "127.0.0.1",
    addresses.NODE_ADDRESS,
    addresses.KUBERNETES_SERVICE,
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    f"kubernetes.default.svc.{addresses.CLUSTER_DOMAIN}",
)

IDENTITIES: Mapping[str, Identity] = {
    "admin": Identity("leeway-admin", ("system:masters",)),
    "etcd": Identity("etcd", served_names=("127.0.0.1",)),
    "etcd-client": Identity("kube-apiserver"),
    "kube-apiserver": Identity("kube-apiserver", served_names=API_SERVER_NAMES),
    "kubelet-client": Identity("kube-apiserver-kubelet-client"),
    "kubelet": Identity(
        f"system:node:{addresses.NODE_NAME}",
        ("system:nodes",),
        served_names=(addresses.NODE_NAME, addresses.NODE_ADDRESS),
    ),
    "kube-controller-manager": Identity("system:kube-controller-manager"),
    "kube-scheduler": Identity("system:kube-scheduler"),
    "kube-proxy": Identity("system:kube-proxy"),
    "relay": Identity("leeway:relay"),
}
"""What each component is to the API server. What it may do is RBAC's: built in, or in `addons/access.yaml`."""

WITH_KUBECONFIG = ("kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet")


@dataclass(frozen=True)
class Credentials:
    """Files that the components are started with."""

    authority: Credential
    service_accounts: Credential
    of: Mapping[str, Credential]
    kubeconfig_of: Mapping[str, Path]


def issue_credentials(state: StateDirectory, api_port: int, now: datetime.datetime) -> Credentials:
    """Issue or renew every credential, and write the kubeconfigs (the user's one points at the host's loopback)."""
    authority = Authority(state.pki, now)
    issued = {name: authority.issue(name, identity) for name, identity in IDENTITIES.items()}
    kubeconfigs = {name: state.pki / f"{name}.kubeconfig" for name in WITH_KUBECONFIG}
    for name, path in kubeconfigs.items():
        write_kubeconfig(path, server=addresses.API_URL, authority=authority.files.certificate, credential=issued[name])
    write_kubeconfig(
        state.kubeconfig,
        server=f"https://127.0.0.1:{api_port}",
        authority=authority.files.certificate,
        credential=issued["admin"],
    )
    return Credentials(authority.files, authority.signing_key("service-accounts"), issued, kubeconfigs)
