"""The tuner: the pure decision between its memory and its studies."""

import logging
import threading
import time
from collections.abc import Callable
from math import inf
from pathlib import Path

from leeway_core.decision import Decided, Decision
from leeway_core.snapshot import Snapshot
from optuna.storages import BaseStorage

from leeway_tuner.binding import binding
from leeway_tuner.decide import decide
from leeway_tuner.space import Space
from leeway_tuner.state import State
from leeway_tuner.store import Store, open_storage
from leeway_tuner.study import Search, forget

logger = logging.getLogger(__name__)

KEPT_S = 30 * 86400.0
"""How long a profile is remembered after it was last asked about: nobody tells when one is deleted."""
FORGETTING_PERIOD_S = 86400.0


class SequenceBehindError(Exception):
    """A Snapshot came after a later one had been answered."""

    def __init__(self, last_sequence: int) -> None:
        """Name the sequence that was answered last."""
        super().__init__(f"sequence {last_sequence} has been answered already: ask with a higher one")
        self.last_sequence = last_sequence


def deliberate(storage: BaseStorage, snapshot: Snapshot, state: State, now_s: float) -> tuple[Decision, State]:
    """Decide, with the study asked for a candidate where one is wanted, and told how the last one fared."""
    decision, following = decide(snapshot, state, now_s)
    if following.outcome is None and following.wanted_boldness is None:
        return decision, following
    space = Space.of(snapshot.ranges)
    search = Search(storage, snapshot.uid, following.key, space, snapshot.starting)
    search.settle(following)
    if following.wanted_boldness is None:
        return decision, following
    held_back_by = binding(snapshot.telemetry)
    proposal = search.ask(
        snapshot.record.incumbent, following.wanted_boldness, following.tried, held_back_by, following.radius
    )
    return decide(snapshot, state, now_s, proposal, exhausted=proposal is None)


class Tuner:
    """Decides for all profiles, one at a time. Killed at any point, it goes on from its last answer."""

    def __init__(self, data_dir: Path, clock: Callable[[], float] = time.time) -> None:
        """Open what is kept in the folder."""
        self._storage = open_storage(data_dir)
        self._store = Store(self._storage.engine)
        self._clock = clock
        self._lock = threading.Lock()
        self._forgot_at_s = -inf

    def decide(self, snapshot: Snapshot) -> Decision:
        """Answer a Snapshot; the same one gets the same answer again.

        Another one under a sequence that was answered is of an operator that has restarted: it must ask with a higher.
        """
        with self._lock:
            self._forget_the_gone()
            known = self._store.decided(snapshot.uid, snapshot.sequence)
            if known is not None and known.snapshot == snapshot:
                return known.decision
            state, last_sequence = self._store.state(snapshot.uid)
            if snapshot.sequence <= last_sequence:
                raise SequenceBehindError(last_sequence)
            decision, following = deliberate(self._storage, snapshot, state, self._clock())
            self._store.save(snapshot, decision, following)
            return decision

    def _forget_the_gone(self) -> None:
        """Once a day, make room in the database of what is kept of profiles that nobody asks about any more."""
        now_s = self._clock()
        if now_s - self._forgot_at_s < FORGETTING_PERIOD_S:
            return
        self._forgot_at_s = now_s
        for uid in self._store.unasked_since(now_s - KEPT_S):
            forget(self._storage, uid)
            self._store.forget(uid)
            logger.info("nobody has asked about profile %s for %d days: it is forgotten", uid, KEPT_S // 86400)

    def decisions(self, uid: str, limit: int) -> list[Decided]:
        """Return the last decisions on a profile, newest first."""
        return self._store.decisions(uid, limit)

    def close(self) -> None:
        """Let go of the database."""
        self._storage.engine.dispose()
