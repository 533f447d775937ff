"""How the operator, and the command line, find the API server and prove who they are."""

import dataclasses
import os

import kopf


def log_in(settings: kopf.OperatorSettings) -> kopf.ConnectionInfo:
    """Return the API server of the pod's own cluster, or else of the kubeconfig; raises kopf.LoginError."""
    try:
        found = kopf.login_with_service_account(settings=settings) or kopf.login_with_kubeconfig(settings=settings)
    except (OSError, KeyError) as error:
        raise kopf.LoginError(f"the kubeconfig cannot be used: {error}") from error
    if found is None:
        raise kopf.LoginError("neither a service account nor a kubeconfig")
    return by_address(found)


def by_address(found: kopf.ConnectionInfo) -> kopf.ConnectionInfo:
    """Reach the API server of the pod's own cluster by address, which works before the cluster's DNS does."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not (host and port and found.server == "https://kubernetes.default.svc"):
        return found
    return dataclasses.replace(found, server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")
