"""What is kept: per profile what is remembered, and every decision with what it was taken on."""

from pathlib import Path

from leeway_core.decision import Decided, Decision
from leeway_core.snapshot import Snapshot
from optuna.storages import RDBStorage
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, Text, delete, func, insert, select, tuple_

from leeway_tuner.state import State

KEPT_DECISIONS = 1000
"""For each profile; of decisions to hold for the same reason in a row the last one is kept."""

_tables = MetaData()
_profiles = Table(
    "leeway_profiles",
    _tables,
    Column("uid", String(64), primary_key=True),
    Column("sequence", Integer, nullable=False),
    Column("state", Text, nullable=False),
)
_decisions = Table(
    "leeway_decisions",
    _tables,
    Column("uid", String(64), primary_key=True),
    Column("sequence", Integer, primary_key=True),
    Column("action", String(16), nullable=False),
    Column("reason", String(64), nullable=False),
    Column("decided", Text, nullable=False),
)


def open_storage(data_dir: Path) -> RDBStorage:
    """Open the database of the folder, which Optuna's studies share with all else that is kept."""
    return RDBStorage(f"sqlite:///{data_dir.absolute() / 'leeway.db'}")


class Store:
    """States and decisions; what belongs together is written in one transaction."""

    def __init__(self, engine: Engine) -> None:
        """Make the tables where they are not there yet."""
        self._engine = engine
        _tables.create_all(engine)

    def state(self, uid: str) -> tuple[State, int]:
        """Return what is remembered of a profile, and the sequence of the last Snapshot; 0 before the first."""
        with self._engine.connect() as connection:
            row = connection.execute(select(_profiles).where(_profiles.c.uid == uid)).one_or_none()
        return (State.model_validate_json(row.state), row.sequence) if row else (State(), 0)

    def decided(self, uid: str, sequence: int) -> Decided | None:
        """Return what was asked and answered, if it is kept."""
        found = select(_decisions.c.decided).where(_decisions.c.uid == uid, _decisions.c.sequence == sequence)
        with self._engine.connect() as connection:
            text = connection.execute(found).scalar_one_or_none()
        return Decided.model_validate_json(text) if text else None

    def decisions(self, uid: str, limit: int) -> list[Decided]:
        """Return the last decisions on a profile, newest first."""
        found = select(_decisions.c.decided).where(_decisions.c.uid == uid)
        with self._engine.connect() as connection:
            texts = connection.execute(found.order_by(_decisions.c.sequence.desc()).limit(limit)).scalars().all()
        return [Decided.model_validate_json(text) for text in texts]

    def unasked_since(self, then_s: float) -> list[str]:
        """Return the profiles, by uid, of which the newest Snapshot is older than that, in Unix time."""
        ours = _decisions.c
        newest = select(ours.uid, func.max(ours.sequence)).group_by(ours.uid)
        # Not parsed, so that one which is kept from an older version is no obstacle.
        asked_at_s = func.json_extract(ours.decided, "$.snapshot.nowS")
        found = select(ours.uid).where(tuple_(ours.uid, ours.sequence).in_(newest), asked_at_s < then_s)
        with self._engine.connect() as connection:
            return list(connection.execute(found).scalars())

    def forget(self, uid: str) -> None:
        """Keep nothing of a profile."""
        with self._engine.begin() as connection:
            connection.execute(delete(_profiles).where(_profiles.c.uid == uid))
            connection.execute(delete(_decisions).where(_decisions.c.uid == uid))

    def save(self, snapshot: Snapshot, decision: Decision, state: State) -> None:
        """Keep a decision and what is remembered from now on, both or neither."""
        uid, sequence = snapshot.uid, snapshot.sequence
        decided = Decided(snapshot=snapshot, decision=decision).model_dump_json(by_alias=True)
        mine = _decisions.c.uid == uid
        with self._engine.begin() as connection:
            newest = select(_decisions).where(mine).order_by(_decisions.c.sequence.desc()).limit(1)
            last = connection.execute(newest).one_or_none()
            if last and (last.action, last.reason, decision.action) == ("Hold", decision.reason, "Hold"):
                connection.execute(delete(_decisions).where(mine, _decisions.c.sequence == last.sequence))
            kept = select(_decisions.c.sequence).where(mine).order_by(_decisions.c.sequence.desc())
            oldest = connection.execute(kept.offset(KEPT_DECISIONS - 1).limit(1)).scalar_one_or_none()
            if oldest is not None:
                connection.execute(delete(_decisions).where(mine, _decisions.c.sequence <= oldest))
            connection.execute(delete(_profiles).where(_profiles.c.uid == uid))
            connection.execute(insert(_profiles).values(uid=uid, sequence=sequence, state=state.model_dump_json()))
            connection.execute(
                insert(_decisions).values(
                    uid=uid, sequence=sequence, action=decision.action, reason=decision.reason, decided=decided
                )
            )
