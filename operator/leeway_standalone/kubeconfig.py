"""Kubeconfig files: how each component, and the user, reaches the API server."""

import base64
import os
from pathlib import Path

import yaml

from leeway_standalone.pki import Credential


def write_kubeconfig(path: Path, *, server: str, authority: Path, credential: Credential) -> None:
    """Write a self-contained kubeconfig, readable by its owner alone."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "leeway",
        "clusters": [
            {"name": "leeway", "cluster": {"server": server, "certificate-authority-data": _encoded(authority)}}
        ],
        "users": [
            {
                "name": "leeway",
                "user": {
                    "client-certificate-data": _encoded(credential.certificate),
                    "client-key-data": _encoded(credential.key),
                },
            }
        ],
        "contexts": [{"name": "leeway", "context": {"cluster": "leeway", "user": "leeway"}}],
    }
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        yaml.safe_dump(document, file)


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
