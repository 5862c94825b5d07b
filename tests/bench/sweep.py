"""A sweep of 100 000 expired leases, and what it does to claims that go on meanwhile."""

import argparse
import threading
import time

import psycopg

from leasetop import statements
from leasetop.demo.postgres import EmbeddedPostgres
from leasetop.model import Backoff, Policy
from leasetop.watcher import sweep
from tests.bench import table

_EXPIRED = 100_000
_CLAIM = {"owner": "bench/1/a", "batch": 1, "takeover": False, "ttl": "60 s"}


def measure(server: EmbeddedPostgres, told: argparse.Namespace) -> None:
    """Claims a second and the longest single claim, before the sweep and while it runs."""
    dsn = table.fresh(server, "bench")
    table.enqueue(dsn, 60_000)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            """INSERT INTO payment_jobs (idempotency_key, amount, currency, status, lease_owner, lease_until, attempts)
               SELECT gen_random_uuid()::text, 1, 'EUR', 'Processing', 'gone/1/a', now() - interval '1 min', 1
                 FROM generate_series(1, %s)""",
            [_EXPIRED],
        )
        connection.execute("VACUUM ANALYZE payment_jobs")
        before = _claims(dsn, threading.Event(), 4.0)
        over, found = threading.Event(), []
        claimer = threading.Thread(target=lambda: found.append(_claims(dsn, over, 300.0)))
        claimer.start()
        began = time.perf_counter()
        # Swept jobs wait for an hour: the claims go to others.
        swept = len(sweep(connection, Policy.REQUEUE, "bench", batch=500, backoff=Backoff()))
        took = time.perf_counter() - began
        over.set()
        claimer.join()
    table.row("", "claims/s", "longest ms")
    table.row("before", f"{before[0]:,.0f}", before[1] * 1000)
    table.row("during the sweep", f"{found[0][0]:,.0f}", found[0][1] * 1000)
    table.row("ratio", found[0][0] / before[0])
    print(f"{swept:,} leases swept in {took:.1f} s, {-(-swept // 500)} transactions")


def _claims(dsn: str, over: threading.Event, most_s: float) -> tuple[float, float]:
    """Claims a second, and the longest of them in seconds."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        began, longest, number = time.perf_counter(), 0.0, 0
        while not over.is_set() and time.perf_counter() - began < most_s:
            asked = time.perf_counter()
            if not connection.execute(statements.load("claim"), _CLAIM).fetchall():
                break
            longest = max(longest, time.perf_counter() - asked)
            number += 1
        return number / (time.perf_counter() - began), longest
