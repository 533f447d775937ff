"""`leeway demo`: from nothing to a Ready pod that answers through the gateway's port."""

import json
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from rich.console import Console

from leeway_standalone.binaries import ALL, ensure
from leeway_standalone.environment import IMAGE, installation_version
from leeway_standalone.errors import StandaloneError
from leeway_standalone.standalone import Standalone
from leeway_standalone.state import Ports, default_directory

ANSWER_TIMEOUT_S = 60.0

MANIFEST = """\
apiVersion: v1
kind: Service
metadata: {name: hello, labels: {leeway.dev/gateway: "true"}}
spec: {selector: {app: hello}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: hello, labels: {app: hello}}
spec:
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  terminationGracePeriodSeconds: 1
  containers:
    - name: hello
      image: IMAGE
      command: [python, -m, http.server, "8080", --directory, /usr/share]
      readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
      securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
"""

_progress = Console(stderr=True, soft_wrap=True, highlight=False)


def run(*, keep: bool, began_at_s: float) -> None:
    """Print progress, and as the last line one JSON object; the standalone is stopped and removed unless kept."""
    binaries = ensure(ALL)
    with tempfile.TemporaryDirectory(prefix="leeway-demo-") as folder:
        standalone = Standalone(default_directory() if keep else Path(folder) / "state")
        manifest = Path(folder) / "hello.yaml"
        manifest.write_text(MANIFEST.replace("IMAGE", f"{IMAGE}:{installation_version()}"))
        setup_s = time.time() - began_at_s
        try:
            up = standalone.start(
                ports=standalone.state.remembered_ports() or Ports(0, 0, 0),
                binaries=binaries,
                manifests=[manifest],
                on_ready=lambda name, seconds: _progress.print(f"  [green]ready[/] {seconds:6.1f} s  {name}"),
            )
            began_s = time.monotonic()
            _ask(f"http://127.0.0.1:{up.launch.ports.gateway}/")
            answer_s = time.monotonic() - began_s
            _progress.print(f"A pod answered through the gateway's port {answer_s:.1f} s after its manifest.")
        finally:
            if not keep:
                standalone.stop()
    if keep:
        _progress.print(
            f"It goes on running. Look around, then stop it with `leeway down --purge`:\n"
            f"  export KUBECONFIG={standalone.state.kubeconfig}\n"
            f"  kubectl get pods --all-namespaces\n"
            f"  curl http://127.0.0.1:{up.launch.ports.gateway}/\n"
            f"  Prometheus: http://127.0.0.1:{up.launch.ports.prometheus}"
        )
    figures = {"setup_s": round(setup_s, 1), "ready_s": up.seconds, "answer_s": round(answer_s, 1)}
    print(json.dumps(figures))  # noqa: T201 - the figures are this command's output


def _ask(url: str) -> None:
    deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - our own loopback
                return
        except (urllib.error.URLError, OSError) as error:
            if time.monotonic() > deadline_s:
                raise StandaloneError(f"The pod did not answer on {url}: {error}") from error
        time.sleep(0.2)
