"""Carries connections from the host's loopback to the API server, to Prometheus and to the gateway inside.

It runs inside the standalone, on sockets that the launcher opened outside and handed down: a socket stays in the
network namespace in which it was made.
"""

import argparse
import asyncio
import json
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.request import urlopen

from leeway_standalone import addresses as at

CHUNK_BYTES = 1 << 16
CONNECT_TIMEOUT_S = 5.0
LOOKUP_LIFE_S = 1.0
GATEWAY_SELECTOR = "leeway.dev%2Fgateway%3Dtrue"

NO_GATEWAY = b"""HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 5\r\n\
Connection: close\r\n\r\n{"error": {"message": "No Service labelled leeway.dev/gateway=true answers yet. \
Apply a ServingProfile (kubectl apply -f) and wait until it is Ready.", "type": "service_unavailable"}}\n"""

Target = Callable[[], Awaitable[tuple[str, int]]]


class GatewayLookup:
    """Finds the oldest Service that is labelled as a gateway."""

    def __init__(self, context: ssl.SSLContext) -> None:
        """Ask the API server with the relay's own credential."""
        self._context = context
        self._found: tuple[str, int] | None = None
        self._looked_at_s = -LOOKUP_LIFE_S

    async def __call__(self) -> tuple[str, int]:
        """Return its cluster address and port; LookupError when there is none."""
        if time.monotonic() - self._looked_at_s > LOOKUP_LIFE_S:
            self._found = await asyncio.to_thread(self._look)
            self._looked_at_s = time.monotonic()
        if self._found is None:
            raise LookupError("no gateway")
        return self._found

    def _look(self) -> tuple[str, int] | None:
        url = f"{at.API_URL}/api/v1/services?labelSelector={GATEWAY_SELECTOR}"
        with urlopen(url, timeout=CONNECT_TIMEOUT_S, context=self._context) as answer:  # noqa: S310 - our own https
            services = json.load(answer)["items"]
        for service in sorted(services, key=lambda item: item["metadata"]["creationTimestamp"]):
            address = service["spec"].get("clusterIP")
            if address and address != "None":
                return address, service["spec"]["ports"][0]["port"]
        return None


def fixed(host: str, port: int) -> Target:
    """Return a target that is always the same address."""

    async def target() -> tuple[str, int]:
        return host, port

    return target


async def serve(listener: socket.socket, target: Target, refusal: bytes = b"") -> asyncio.Server:
    """Accept on `listener`; carry each connection to the target, or answer `refusal` when there is none."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            host, port = await target()
            inner_reader, inner_writer = await asyncio.wait_for(
                asyncio.open_connection(host, port, limit=CHUNK_BYTES), CONNECT_TIMEOUT_S
            )
        except (OSError, LookupError, TimeoutError):
            with suppress(OSError):
                if refusal:
                    await asyncio.wait_for(reader.read(CHUNK_BYTES), CONNECT_TIMEOUT_S)
                    writer.write(refusal)
                    await writer.drain()
            writer.close()
            return
        await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))
        for side in (writer, inner_writer):
            side.close()

    return await asyncio.start_server(carry, sock=listener, limit=CHUNK_BYTES)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end, then close the writing half; a broken connection breaks the other one too."""
    try:
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()


async def _run(api: int, gateway: int, prometheus: int, context: ssl.SSLContext) -> None:
    def listener(descriptor: int) -> socket.socket:
        return socket.socket(fileno=descriptor)

    servers = [
        await serve(listener(api), fixed(at.NODE_ADDRESS, at.API_PORT)),
        await serve(listener(gateway), GatewayLookup(context), NO_GATEWAY),
        await serve(listener(prometheus), fixed(at.PROMETHEUS_SERVICE, at.PROMETHEUS_PORT)),
    ]
    await asyncio.gather(*(server.serve_forever() for server in servers))


def main() -> None:
    """Relay until ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("api", "gateway", "prometheus"):
        parser.add_argument(f"--{name}-descriptor", type=int, required=True)
    for name in ("authority", "certificate", "key"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    context = ssl.create_default_context(cafile=options.authority)
    context.load_cert_chain(options.certificate, options.key)
    asyncio.run(_run(options.api_descriptor, options.gateway_descriptor, options.prometheus_descriptor, context))


if __name__ == "__main__":
    main()
