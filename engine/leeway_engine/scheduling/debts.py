"""What tenants are owed, for so few of them that each can have a series of its own."""

from collections.abc import Mapping

OTHERS = "others"
"""Stands for all tenants that have no name of their own here."""

_MOST_TENANTS = 32
_LONGEST_NAME = 64
_PERIOD_S = 1.0
_KEPT_S = 600.0


class Debts:
    """Readings of tenants' debts under few names, as clients choose tenants and may make up any number of them.

    Who comes first gets a name of its own and keeps it for ten minutes after it was last seen to wait, so no more than
    32 names are made up in ten minutes. All other tenants count together, with the largest of their debts.
    """

    def __init__(self) -> None:
        """Know no tenant."""
        self._seen_s: dict[str, float] = {}
        self._read_s: float | None = None

    def due(self, now_s: float) -> bool:
        """Whether the last reading is so old that another one is worth its time, which grows with the tenants."""
        return self._read_s is None or now_s - self._read_s >= _PERIOD_S

    def read(self, debts: Mapping[str, float], now_s: float) -> dict[str, float]:
        """Return the debts of the tenants that wait, in weighted tokens, by their names here."""
        self._read_s = now_s
        self._forget(now_s)
        named: dict[str, float] = {}
        for tenant, debt in debts.items():
            name = self._name(tenant, now_s)
            named[name] = max(debt, named.get(name, 0.0))
        return named

    def _name(self, tenant: str, now_s: float) -> str:
        known = tenant in self._seen_s or len(self._seen_s) < _MOST_TENANTS
        if not known or tenant == OTHERS or len(tenant) > _LONGEST_NAME:
            return OTHERS
        self._seen_s[tenant] = now_s
        return tenant

    def _forget(self, now_s: float) -> None:
        for tenant, seen_s in list(self._seen_s.items()):
            if now_s - seen_s >= _KEPT_S:
                del self._seen_s[tenant]
