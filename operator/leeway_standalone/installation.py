"""What is installed into a fresh standalone: its add-ons by kubectl, Leeway by Helm, then the user's manifests."""

import importlib.resources
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from leeway_standalone import addresses as at
from leeway_standalone.environment import chart_folder, installation_version
from leeway_standalone.errors import StandaloneError
from leeway_standalone.state import StateDirectory

NAMESPACE = "leeway-system"
RELEASE = "leeway"
READY_TIMEOUT_S = 120
LAST_LINES = 15

OnReady = Callable[[str, float], None]


class Installation:
    """Runs kubectl and Helm from outside the standalone, as a user would."""

    def __init__(
        self,
        state: StateDirectory,
        binaries: Mapping[str, str],
        manifests: Sequence[str] = (),
        chart_values: Sequence[str] = (),
    ) -> None:
        """`manifests` are files for `kubectl apply`; `chart_values` are files for `helm --values`."""
        self.state = state
        self._binaries = binaries
        self._manifests = manifests
        self._chart_values = chart_values
        helm_folders = {f"HELM_{kind}_HOME": str(state.root / "helm") for kind in ("CACHE", "CONFIG", "DATA")}
        self._environment = {**os.environ, **helm_folders, "KUBECONFIG": str(state.kubeconfig)}

    def install(self, on_ready: OnReady) -> None:
        """Install all and wait until it is ready; raises with what stands in the way."""
        began_s = time.monotonic()
        self._kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=_addons())
        values = [flag for file in self._chart_values for flag in ("--values", file)]
        self._run(
            "helm",
            *("upgrade", "--install", RELEASE, str(chart_folder()), "--namespace", NAMESPACE),
            *("--set", f"image.tag={installation_version()}"),
            *values,
        )

        def tell(name: str) -> None:
            on_ready(name, round(time.monotonic() - began_s, 2))

        self._wait((f"node/{at.NODE_NAME}",), "Ready", "default", tell)
        for namespace in ("kube-system", NAMESPACE):
            self._wait(("deployment", "--all"), "Available", namespace, tell)
        for file in self._manifests:
            self._kubectl("apply", "-f", file)

    def _wait(self, target: Sequence[str], condition: str, namespace: str, tell: Callable[[str], None]) -> None:
        process = subprocess.Popen(
            (
                *(self._binaries["kubectl"], "wait", *target, f"--for=condition={condition}"),
                *("--namespace", namespace, f"--timeout={READY_TIMEOUT_S}s"),
            ),
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout
        for line in process.stdout:
            tell(line.split()[0].replace(".apps", ""))
        _, errors = process.communicate()
        if process.returncode:
            raise StandaloneError(f"Not all became ready: {errors.strip()}\n{self._evidence(namespace)}")

    def _evidence(self, namespace: str) -> str:
        """Say what a user would look at next: warnings, and the last lines of the pods that are not ready."""
        parts = [self._kubectl("get", "events", "-n", namespace, "--field-selector", "type=Warning")]
        for pod in json.loads(self._kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"]:
            conditions = {item["type"]: item["status"] for item in pod["status"].get("conditions", ())}
            if conditions.get("Ready") != "True":
                name = pod["metadata"]["name"]
                log = self._run("kubectl", "logs", "-n", namespace, name, f"--tail={LAST_LINES}", check=False)
                parts.append(f"The last lines of pod {name}:\n{log}")
        return "\n".join(parts)

    def _kubectl(self, *arguments: str, text: str | None = None) -> str:
        return self._run("kubectl", *arguments, text=text)

    def _run(self, name: str, *arguments: str, text: str | None = None, check: bool = True) -> str:
        result = subprocess.run(
            (self._binaries[name], *arguments),
            env=self._environment,
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode and check:
            raise StandaloneError(f"{name} {arguments[0]} failed:\n{result.stderr.strip()}")
        return result.stdout


def _addons() -> str:
    folder = importlib.resources.files("leeway_standalone") / "addons"
    texts = [file.read_text() for file in sorted(folder.iterdir(), key=lambda file: file.name)]
    return "\n---\n".join(texts).replace("@VERSION@", installation_version())
