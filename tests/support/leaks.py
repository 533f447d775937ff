"""What is still held where there are no requests any more, though it should be nothing."""

from leeway_engine.engine import Engine
from leeway_engine.scheduling.scheduler import Scheduler


def scheduler_leaks(scheduler: Scheduler) -> int:
    """Blocks of device and host, holders of prefixes, promises and bookings that nobody took back."""
    pool, host = scheduler.pool, scheduler.kv.host
    blocks = pool.total - pool.free + host.total - host.free
    references = sum(pool._holders) + sum(host._holders) + abs(len(pool._published) - pool.cached)
    bookings = abs(scheduler.kv.promised) + abs(scheduler.waiting_tokens)
    accounts = sum(abs(a.queued) + abs(a.running) + abs(a.waiting_tokens) for a in scheduler.tenants.accounts.values())
    return blocks + references + bookings + accounts


def leaks(engine: Engine) -> int:
    """The same of an engine, with its rows and generations."""
    scheduler, rows = engine._scheduler, engine._rows
    kept = len(engine._generations) + len(rows._row)
    kept += scheduler.ceilings.running_sequences - len(rows._unused)
    return scheduler_leaks(scheduler) + kept
