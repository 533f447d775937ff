"""The running installation, as the image that Leeway's own containers run in."""

import importlib.util
import sys
import sysconfig
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

IMAGE = "leeway/leeway"
COMPONENT_IMAGE = "leeway/standalone"


def installation_version() -> str:
    """Return the version of the running Leeway."""
    return version("leeway")


def installation_folders() -> list[Path]:
    """List the folders that hold the interpreter, its packages and Leeway's own code; none lies in another."""
    roots = {Path(sys.prefix), Path(sys.base_prefix), Path(sysconfig.get_path("purelib"))}
    for package in ("leeway_core", "leeway_operator", "leeway_tuner", "leeway_cli", "leeway_standalone"):
        spec = importlib.util.find_spec(package)
        if spec and spec.origin:
            roots.add(Path(spec.origin).parent.parent)
    resolved = {root.resolve() for root in roots} | {root.absolute() for root in roots}
    return sorted(root for root in resolved if not any(other in root.parents for other in resolved))


def chart_folder() -> Path:
    """Return Leeway's Helm chart: part of the installed package, or of the checkout."""
    package = Path(__file__).parent
    installed = package / "chart"
    return installed if installed.is_dir() else package.parent.parent / "charts" / "leeway"


def images(binaries: Sequence[Path]) -> dict[str, dict[str, object]]:
    """Say what the images that this machine has are made of: the installation, and the folders of binaries."""
    scripts = Path(sys.executable).parent
    path = ":".join(map(str, (scripts, "/usr/local/bin", "/usr/bin", "/bin")))
    return {
        IMAGE: {
            "version": installation_version(),
            "entrypoint": [sys.executable, "-P", "-m", "leeway_cli"],
            "binds": [str(folder) for folder in installation_folders()],
            "env": {"PATH": path, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        },
        COMPONENT_IMAGE: {
            "version": installation_version(),
            "entrypoint": [],
            "binds": [str(folder) for folder in binaries],
            "env": {"PATH": ":".join([*map(str, binaries), "/usr/local/bin", "/usr/bin", "/bin"])},
        },
    }
