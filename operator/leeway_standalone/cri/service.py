"""The CRI server that the kubelet talks to. It may be killed and started again at any time: containers go on."""

import argparse
import asyncio
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc

from leeway_standalone.cri import api_pb2_grpc
from leeway_standalone.cri.container_calls import ContainerCalls
from leeway_standalone.cri.image_service import ImageService
from leeway_standalone.cri.images import ImageError, Images
from leeway_standalone.cri.keeper_client import KeeperError
from leeway_standalone.cri.node_calls import NodeCalls
from leeway_standalone.cri.refusals import RefusedError
from leeway_standalone.cri.runtime import Context, Runtime
from leeway_standalone.cri.sandbox_calls import SandboxCalls

CODES: dict[type[BaseException], grpc.StatusCode] = {
    LookupError: grpc.StatusCode.NOT_FOUND,
    RefusedError: grpc.StatusCode.INVALID_ARGUMENT,
    ImageError: grpc.StatusCode.INVALID_ARGUMENT,
    TimeoutError: grpc.StatusCode.DEADLINE_EXCEEDED,
    KeeperError: grpc.StatusCode.UNKNOWN,
    OSError: grpc.StatusCode.INTERNAL,
}


class RuntimeService(SandboxCalls, ContainerCalls, NodeCalls, api_pb2_grpc.RuntimeServiceServicer):  # type: ignore[misc]
    """The CRI's RuntimeService; calls that are not listed answer UNIMPLEMENTED."""

    def __init__(self, runtime: Runtime) -> None:
        """Answer from what the runtime knows."""
        self.runtime = runtime


class Errors(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # the class takes none at run time
    """Turns the errors of calls into statuses with their message, which become events of the pod."""

    async def intercept_service(
        self, proceed: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """Wrap the handler of one call."""
        handler = await proceed(details)
        if handler is None or handler.unary_unary is None:
            return handler

        async def answer(request: Any, context: Context) -> Any:
            try:
                return await handler.unary_unary(request, context)
            except grpc.aio.AioRpcError as error:  # from the streaming server
                await context.abort(error.code(), error.details() or "")
            except tuple(CODES) as error:
                code = next(code for kind, code in CODES.items() if isinstance(error, kind))
                if code is grpc.StatusCode.INTERNAL:
                    traceback.print_exc()
                await context.abort(code, str(error).strip("'\""))

        return grpc.unary_unary_rpc_method_handler(answer, handler.request_deserializer, handler.response_serializer)


async def serve(runtime: Runtime, socket: Path) -> None:
    """Answer on a unix socket until cancelled."""
    server = grpc.aio.server(interceptors=[Errors()])
    api_pb2_grpc.add_RuntimeServiceServicer_to_server(RuntimeService(runtime), server)
    api_pb2_grpc.add_ImageServiceServicer_to_server(ImageService(runtime), server)
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    await server.wait_for_termination()


def main() -> None:
    """Run until killed."""
    parser = argparse.ArgumentParser(prog="leeway_standalone.cri.service", description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="directory of the runtime's records")
    parser.add_argument("--keeper", type=Path, required=True, help="unix socket of the keeper")
    parser.add_argument("--socket", type=Path, required=True, help="unix socket to answer the kubelet on")
    parser.add_argument("--images", type=Path, required=True, help="JSON file of the images that mean an environment")
    parser.add_argument("--streaming", type=Path, required=True, help="unix socket of the streaming server")
    arguments = parser.parse_args()
    runtime = Runtime(arguments.root, Images.read(arguments.images), arguments.keeper, arguments.streaming)
    arguments.socket.unlink(missing_ok=True)
    asyncio.run(serve(runtime, arguments.socket))


if __name__ == "__main__":
    main()
