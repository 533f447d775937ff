"""Build hook: generates the CRI's protobuf and gRPC modules from the pinned `api.proto`."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("operator/leeway_standalone/cri")


class CriStubs(BuildHookInterface[Any]):
    """Runs protoc (from grpcio-tools) when the generated modules are missing or older than the proto."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Write `api_pb2.py`, `api_pb2.pyi` and `api_pb2_grpc.py` beside the proto."""
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
