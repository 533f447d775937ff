"""Visits every profile in turns: each has a task of its own, so that one that hangs holds up no other."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from leeway_operator.cluster import ApiError
from leeway_operator.memory import Memory
from leeway_operator.metrics import VISIT_FAILURES, VISITS, forget
from leeway_operator.profile import Profile
from leeway_operator.reconciler import Reconciler

logger = logging.getLogger(__name__)

TICK_S = 5.0
"""Time between two visits of a profile to which nothing happens."""
SOON_S = 0.5
"""How long a visit waits for further events, so that a burst of them is answered once."""

Key = tuple[str, str]
"""Namespace and name of a profile."""


class _Turn:
    """A profile as it was last seen, and the task that visits it."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.body = body
        self.memory = Memory()
        self.due = asyncio.Event()
        self.due.set()
        self.task: asyncio.Task[None] | None = None


class Rounds:
    """Knows the profiles, and visits them."""

    def __init__(self, reconciler: Reconciler) -> None:
        """Visit with this reconciler."""
        self._reconciler = reconciler
        self._turns: dict[Key, _Turn] = {}

    def see(self, body: Mapping[str, Any]) -> None:
        """Take a profile as it is now; a change of its spec makes it due."""
        key = _key(body)
        turn = self._turns.get(key)
        if turn is not None and _identity(turn.body) != _identity(body):
            self.forget(body)
            turn = None
        if turn is None:
            turn = self._turns[key] = _Turn(body)
            turn.task = asyncio.create_task(self._visit_always(turn), name=f"visits of {key[0]}/{key[1]}")
            return
        if turn.body["metadata"]["generation"] != body["metadata"]["generation"]:
            turn.due.set()
        turn.body = body

    def forget(self, body: Mapping[str, Any]) -> None:
        """Visit a deleted profile no more."""
        turn = self._turns.pop(_key(body), None)
        if turn is not None and turn.task is not None:
            turn.task.cancel()
            forget(*_key(body))

    def disturb(self, namespace: str, profile: str, *, child: bool) -> None:
        """Make a profile due, for one of its pods, or of its other children, has changed."""
        turn = self._turns.get((namespace, profile))
        if turn is not None:
            turn.memory.children_due |= child
            turn.due.set()

    async def stop(self) -> None:
        """End all visits."""
        tasks = [turn.task for turn in self._turns.values() if turn.task is not None]
        self._turns.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _visit_always(self, turn: _Turn) -> None:
        while True:
            turn.due.clear()
            await self._visit(turn)
            try:
                await asyncio.wait_for(turn.due.wait(), TICK_S)
                await asyncio.sleep(SOON_S)
            except TimeoutError:
                pass

    async def _visit(self, turn: _Turn) -> None:
        namespace, name = _key(turn.body)
        with VISITS.time():
            try:
                profile = Profile.read(turn.body)
                if not profile.leaving:
                    await self._reconciler.visit(profile, turn.memory)
            except (ApiError, ValidationError) as error:
                VISIT_FAILURES.inc()
                logger.warning("%s/%s: the visit will be repeated: %s", namespace, name, error)
            except Exception:
                VISIT_FAILURES.inc()
                logger.exception("%s/%s: the visit failed and will be repeated", namespace, name)


def _key(body: Mapping[str, Any]) -> Key:
    return body["metadata"]["namespace"], body["metadata"]["name"]


def _identity(body: Mapping[str, Any]) -> str:
    return str(body["metadata"]["uid"])
