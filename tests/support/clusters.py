"""A standalone for tests, and the few things that every test does with one."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml
from leeway_standalone.binaries import ALL, ensure
from leeway_standalone.environment import IMAGE, installation_version
from leeway_standalone.standalone import Standalone, Up
from leeway_standalone.state import Ports

LEEWAY_IMAGE = f"{IMAGE}:{installation_version()}"
RESTRICTED_POD: Mapping[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
RESTRICTED_CONTAINER: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
ANY_PORTS = Ports(0, 0, 0)

T = TypeVar("T")


class Cluster:
    """A running standalone, spoken to from outside with kubectl and helm."""

    def __init__(self, standalone: Standalone, up: Up, binaries: Mapping[str, Path]) -> None:
        self.standalone = standalone
        self.state = standalone.state
        self.up = up
        self.binaries = binaries
        self.environment = {
            **os.environ,
            "KUBECONFIG": str(self.state.kubeconfig),
            **{f"HELM_{kind}_HOME": str(self.state.root / "helm") for kind in ("CACHE", "CONFIG", "DATA")},
        }

    @classmethod
    @contextmanager
    def running(cls, root: Path) -> Iterator[Self]:
        """Start a standalone on free ports in `root`; stopped in the end."""
        binaries = ensure(ALL)
        standalone = Standalone(root)
        up = standalone.start(ports=ANY_PORTS, binaries=binaries)
        try:
            yield cls(standalone, up, binaries)
        finally:
            standalone.stop()

    def kubectl(
        self, *arguments: str, input: str | None = None, check: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        """Run kubectl; a failure shows what it said."""
        return self._run("kubectl", *arguments, input=input, check=check)

    def helm(self, *arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run helm."""
        return self._run("helm", *arguments, input=None, check=check)

    def popen(self, name: str, *arguments: str) -> "subprocess.Popen[str]":
        """Start kubectl or helm and go on."""
        return subprocess.Popen(
            (self.binaries[name], *arguments),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def apply(self, *objects: Mapping[str, Any], namespace: str) -> None:
        """Apply objects."""
        self.kubectl("apply", "-n", namespace, "-f", "-", input=yaml.safe_dump_all(map(dict, objects)))

    def get(self, *arguments: str) -> Any:
        """Return what `kubectl get -o json` shows."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json").stdout)

    def exec(self, namespace: str, pod: str, *command: str, check: bool = True) -> str:
        """Run a command in a pod and return its output."""
        return self.kubectl("exec", "-n", namespace, pod, "--", *command, check=check).stdout

    def events(self, namespace: str, name: str) -> str:
        """Return the messages of an object's events."""
        selector = f"involvedObject.name={name}"
        items = self.get("events", "-n", namespace, "--field-selector", selector)["items"]
        return "\n".join(f"{item['reason']}: {item['message']}" for item in items)

    def wait_ready(self, namespace: str, what: str, timeout_s: int = 60) -> None:
        """Wait for a pod to be Ready, or for a rollout (`deployment/x`, `statefulset/x`) to be done."""
        if "/" in what:
            self.kubectl("rollout", "status", "-n", namespace, what, f"--timeout={timeout_s}s")
        else:
            self.kubectl("wait", "-n", namespace, f"pod/{what}", "--for=condition=Ready", f"--timeout={timeout_s}s")

    def _run(self, name: str, *arguments: str, input: str | None, check: bool) -> "subprocess.CompletedProcess[str]":
        result = subprocess.run(
            (self.binaries[name], *arguments),
            env=self.environment,
            input=input,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        if check and result.returncode:
            raise AssertionError(f"{name} {' '.join(arguments)} failed:\n{result.stdout}{result.stderr}")
        return result


def eventually(look: Callable[[], T], timeout_s: float = 60, every_s: float = 0.3, what: str = "") -> T:
    """Return the first truthy answer of `look`; fails with the last one."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        answer = look()
        if answer:
            return answer
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {timeout_s} s: {what or look}; last: {answer!r}")
        time.sleep(every_s)


def pod(name: str, command: list[str], *, container: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a pod that fits Pod Security `restricted`, of one container that runs `command`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": pod_spec(command, container=container, **spec),
    }


def pod_spec(command: list[str], *, container: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return the spec of such a pod, as templates take it."""
    return {
        "securityContext": dict(RESTRICTED_POD),
        "terminationGracePeriodSeconds": 5,
        "containers": [
            {
                "name": "main",
                "image": LEEWAY_IMAGE,
                "command": command,
                "securityContext": dict(RESTRICTED_CONTAINER),
                **(container or {}),
            }
        ],
        **spec,
    }
