"""The standalone as a user reaches it from outside: kubectl, the gateway's port, Prometheus."""

import json
import os
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar

from leeway_core.errors import UserError
from leeway_standalone.state import Launch

from leeway_demo.profile import NAME, NAMESPACE

PODS = f"leeway.dev/profile={NAME}"
LOOK_EVERY_S = 1.0
ANSWER_TIMEOUT_S = 10.0
TRIES = 3
"""A call of a machine that serves, tunes and measures may be slow once, which is no end of a demonstration."""

T = TypeVar("T")


class Cluster:
    """A running standalone."""

    def __init__(self, launch: Launch, kubeconfig: Path, kubectl: Path) -> None:
        """Reach it by its ports and its kubeconfig."""
        self.kubeconfig = kubeconfig
        self.gateway_url = f"http://127.0.0.1:{launch.ports.gateway}"
        self.prometheus_url = f"http://127.0.0.1:{launch.ports.prometheus}"
        self._kubectl = kubectl

    def apply(self, manifest: Mapping[str, Any]) -> None:
        """Run `kubectl apply`."""
        self._run("apply", "-f", "-", text=json.dumps(manifest))

    def delete(self) -> None:
        """Delete the profile and all that it made, if it is there."""
        self._run("delete", "sp", NAME, "--ignore-not-found", "--cascade=foreground")

    def patch(self, patch: Mapping[str, Any]) -> None:
        """Change the profile's spec, as `kubectl edit` would."""
        self._run("patch", "sp", NAME, "--type=merge", f"--patch={json.dumps(patch)}")

    def profile(self) -> dict[str, Any]:
        """Return the profile as it is."""
        found: dict[str, Any] = json.loads(self._run("get", "sp", NAME, "-o", "json"))
        return found

    def restarts(self) -> dict[str, int]:
        """Return how often the containers of each of the profile's pods restarted; pods are told apart by uid."""
        pods = json.loads(self._run("get", "pods", "-l", PODS, "-o", "json"))["items"]
        return {
            pod["metadata"]["uid"]: sum(each["restartCount"] for each in pod["status"].get("containerStatuses", ()))
            for pod in pods
        }

    def wait(self, look: Callable[[dict[str, Any]], bool], timeout_s: float, what: str) -> dict[str, Any]:
        """Return the profile as soon as `look` says so of it."""
        deadline_s = time.monotonic() + timeout_s
        while not look(profile := self.profile()):
            if time.monotonic() > deadline_s:
                said = profile.get("status", {}).get("summary", "it has no status")
                raise UserError(f"The profile is not {what} after {timeout_s:.0f} s: {said}")
            time.sleep(LOOK_EVERY_S)
        return profile

    def query(self, expression: str) -> list[tuple[Mapping[str, str], float]]:
        """Ask Prometheus: labels and value of each series of an instant vector."""
        parameters = urllib.parse.urlencode({"query": expression})
        url = f"{self.prometheus_url}/api/v1/query?{parameters}"

        def ask() -> list[tuple[Mapping[str, str], float]]:
            try:
                with urllib.request.urlopen(url, timeout=ANSWER_TIMEOUT_S) as response:  # noqa: S310 - our own loopback
                    answer = json.load(response)
            except (OSError, HTTPException, ValueError) as error:
                raise UserError(f"Prometheus does not answer: {error}") from error
            return [(each["metric"], float(each["value"][1])) for each in answer["data"]["result"]]

        return _patiently(ask)

    def _run(self, *arguments: str, text: str | None = None) -> str:
        command: Sequence[str] = (str(self._kubectl), "--namespace", NAMESPACE, *arguments)
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}

        def call() -> str:
            done = subprocess.run(command, env=environment, input=text, capture_output=True, text=True, check=False)
            if done.returncode:
                raise UserError(f"kubectl {arguments[0]} failed: {done.stderr.strip()}")
            return done.stdout

        return _patiently(call)


def _patiently(call: Callable[[], T]) -> T:
    """Return what a call gives that may be made more than once, and does not fail each time."""
    for _ in range(TRIES - 1):
        try:
            return call()
        except UserError:
            time.sleep(LOOK_EVERY_S)
    return call()
