"""What an engine without requests still holds, though it should hold nothing."""

from leeway_engine.engine import Engine


def leaks(engine: Engine) -> int:
    """Blocks of device and host, promises, holders of prefixes, rows and generations that nobody gave back."""
    scheduler, rows = engine._scheduler, engine._rows
    pool, host = scheduler.pool, scheduler.kv.host
    blocks = pool.total - pool.free + host.total - host.free
    references = sum(pool._holders) + sum(host._holders) + abs(len(pool._published) - pool.cached)
    bookings = abs(scheduler.kv.promised) + abs(scheduler.waiting_tokens) + abs(scheduler._expected_tokens)
    accounts = sum(abs(a.queued) + abs(a.running) + abs(a.waiting_tokens) for a in scheduler.tenants.accounts.values())
    kept = len(engine._generations) + len(rows._row) + len(rows.logit_bias)
    kept += scheduler.ceilings.running_sequences - len(rows._unused)
    return blocks + references + bookings + accounts + kept
