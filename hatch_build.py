"""Build hook: generates the CRI's modules from the pinned `api.proto`, and puts chart and example trace into wheels."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("operator/leeway_standalone/cri")


class LeewayBuild(BuildHookInterface[Any]):
    """Runs protoc (from grpcio-tools) when the generated modules are missing or older than the proto."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write `api_pb2.py`, `api_pb2.pyi` and `api_pb2_grpc.py` beside the proto; include chart and trace."""
        if version != "editable":
            trace = "azure-conversations.csv"
            build_data["force_include"]["charts/leeway"] = "leeway_standalone/chart"
            build_data["force_include"][f"examples/{trace}"] = f"leeway_demo/{trace}"
            build_data["force_include"]["examples/NOTICE.md"] = "leeway_demo/NOTICE.md"
        root = Path(self.root)
        proto = root / PACKAGE / "api.proto"
        outputs = [proto.with_name(name) for name in ("api_pb2.py", "api_pb2.pyi", "api_pb2_grpc.py")]
        if all(out.exists() and out.stat().st_mtime >= proto.stat().st_mtime for out in outputs):
            return
        from grpc_tools import protoc

        base = root / "operator"
        arguments = [f"--{kind}_out={base}" for kind in ("python", "pyi", "grpc_python")]
        code = protoc.main(["protoc", f"-I{base}", *arguments, str(proto)])
        if code:
            raise RuntimeError(f"protoc failed on {proto} with exit code {code}")
