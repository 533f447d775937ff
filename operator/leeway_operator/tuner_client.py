"""The tuner, as the operator asks it."""

import re

import aiohttp
from leeway_core.decision import Decision, SequenceBehind
from leeway_core.snapshot import Snapshot
from pydantic import ValidationError

DECIDE_S = 10.0
"""How long the tuner may take: asking the sampler for a candidate is slow at times."""


class TunerError(Exception):
    """The tuner gave no decision, and why."""


class TunerClient:
    """Asks for decisions."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        """Ask the tuner at this address."""
        self._session = session
        self._url = url.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=DECIDE_S, sock_connect=2.0)

    @property
    def service(self) -> str:
        """The Service at that address: its namespace, a slash, its name; empty where the address is none's."""
        found = re.match(r"http://([^./:]+)\.([^./:]+)\.svc(?=[.:/]|$)", self._url)
        return f"{found[2]}/{found[1]}" if found else ""

    async def decide(self, snapshot: Snapshot) -> Decision:
        """Return what to do; a sequence that was used already, before the operator's memory, is passed over."""
        status, body = await self._ask(snapshot)
        if status == 409 and (last := _last_sequence(body)) is not None:
            status, body = await self._ask(snapshot.model_copy(update={"sequence": last + 1}))
        if status != 200:
            raise TunerError(f"the tuner answers {status}: {body.decode(errors='replace')[:200]}")
        try:
            return Decision.model_validate_json(body)
        except ValidationError as error:
            raise TunerError(f"the tuner's answer makes no sense: {error}") from error

    async def _ask(self, snapshot: Snapshot) -> tuple[int, bytes]:
        try:
            async with self._session.post(
                f"{self._url}/v1/decide",
                data=snapshot.model_dump_json(by_alias=True),
                headers={"Content-Type": "application/json"},
                timeout=self._timeout,
            ) as response:
                return response.status, await response.read()
        except (TimeoutError, aiohttp.ClientError) as error:
            raise TunerError(
                f"the tuner at {self._url} cannot be reached: {str(error) or type(error).__name__}"
            ) from error


def _last_sequence(body: bytes) -> int | None:
    """Return the sequence that a 409 names, or None where it is somebody else's, such as a proxy's."""
    try:
        return SequenceBehind.model_validate_json(body).last_sequence
    except ValidationError:
        return None
