"""The knob endpoints of pods."""

import aiohttp
from leeway_core.pod_knobs import KnobsReply, PodKnobs
from pydantic import ValidationError

from leeway_operator.names import KNOBS_PORT
from leeway_operator.pods import Pod

PUSH_S = 3.0
"""How long a pod may take to answer."""


class PushRefusedError(Exception):
    """A pod that did not take knobs, and why."""


class PodClient:
    """Pushes to pods, and reads back."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        """Use this session."""
        self._session = session
        self._timeout = aiohttp.ClientTimeout(total=PUSH_S)

    async def read(self, pod: Pod, token: str) -> KnobsReply | None:
        """Return a pod's knobs, or None while it does not tell."""
        try:
            return await self._call("GET", pod, token)
        except PushRefusedError:
            return None

    async def push(self, pod: Pod, knobs: PodKnobs, token: str) -> KnobsReply:
        """Have a pod take knobs; raises PushRefusedError."""
        return await self._call("PUT", pod, token, knobs.model_dump_json(by_alias=True))

    async def _call(self, method: str, pod: Pod, token: str, content: str | None = None) -> KnobsReply:
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        url = f"http://{host}:{KNOBS_PORT}/v1/knobs"
        try:
            async with self._session.request(
                method, url, data=content, headers=headers, timeout=self._timeout
            ) as response:
                answer = await response.json()
                if response.status != 200:
                    refusal = answer.get("refusal") if isinstance(answer, dict) else None
                    raise PushRefusedError(f"{pod.name}: {refusal or response.status}")
                return KnobsReply.model_validate(answer)
        except (TimeoutError, aiohttp.ClientError, ValidationError, ValueError) as error:
            raise PushRefusedError(f"{pod.name}: {str(error) or type(error).__name__}") from error
