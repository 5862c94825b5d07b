"""How many heartbeats are HOT: updates that touch no index."""

import argparse
import threading
from datetime import timedelta

import psycopg

from leasetop.demo.postgres import EmbeddedPostgres
from leasetop.worker import ClaimedJob, Settings, Worker
from tests.bench import table

_HELD = 100
_S = 6.0
_COUNTS = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'payment_jobs'"


def measure(server: EmbeddedPostgres, told: argparse.Namespace) -> None:
    """A worker holds 100 jobs, with a heartbeat five times a second."""
    dsn = table.fresh(server, "bench")
    table.enqueue(dsn, _HELD)
    over, held = threading.Event(), threading.Barrier(_HELD + 1)

    def handler(job: ClaimedJob) -> None:
        held.wait()
        over.wait()

    settings = Settings(
        concurrency=_HELD, batch=_HELD, ttl=timedelta(seconds=5), heartbeat=timedelta(seconds=0.2), drain=timedelta(0)
    )
    worker = Worker(dsn, handler, settings)
    thread = threading.Thread(target=worker.run)
    thread.start()
    held.wait()
    with psycopg.connect(dsn, autocommit=True) as connection:
        before = _counts(connection)
        over.wait(_S)
        after = _counts(connection)
    over.set()
    worker.stop()
    thread.join()
    updates, hot = (new - old for new, old in zip(after, before, strict=True))
    table.row("heartbeats", "HOT", "share")
    table.row(f"{updates:,}", f"{hot:,}", f"{hot / max(1, updates):.1%}")


def _counts(connection: psycopg.Connection) -> tuple[int, int]:
    # Each backend reports its figures at most once a second.
    threading.Event().wait(1.5)
    connection.execute("SELECT pg_stat_clear_snapshot()")
    found = connection.execute(_COUNTS).fetchone()
    assert found is not None
    return found[0], found[1]
