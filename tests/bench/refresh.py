"""What one refresh of the screen costs the database, with and without a million finished rows."""

import argparse
import asyncio
import statistics
import time

import psycopg

from leasetop.database import Database
from leasetop.demo.postgres import EmbeddedPostgres
from leasetop.model import View
from tests.bench import table
from tests.queues import open_queue

_FINISHED = 1_000_000
_ROUNDS = 40
_FINISH = """
    INSERT INTO payment_jobs (idempotency_key, amount, currency, status, attempts, finished_at)
    SELECT 'f' || n, 1, 'EUR', 'Completed', 1, now() - n * interval '1 s' FROM generate_series(1, %s) n
"""
_PAST = """
    INSERT INTO payment_job_history (job_id, event, attempt, owner, started_at, ended_at)
    SELECT n, 'completed', 1, 'w/1/a', now() - (%(n)s - n) * interval '1 s', now() - (%(n)s - n) * interval '1 s'
      FROM generate_series(1, %(n)s) n
"""


def measure(server: EmbeddedPostgres, told: argparse.Namespace) -> None:
    """Milliseconds from asking to the last answer, and blocks touched, with 1 000 active jobs."""
    dsn = table.fresh(server, "bench")
    table.enqueue(dsn, 1_000)
    table.row("a refresh", "median ms", "blocks")
    few = asyncio.run(_cost(dsn))
    table.row("no finished rows", *few)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_FINISH, [_FINISHED])
        connection.execute(_PAST, {"n": _FINISHED})
        connection.execute("VACUUM ANALYZE")
    many = asyncio.run(_cost(dsn))
    table.row(f"{_FINISHED:,} finished rows", *many)
    table.row("ratio", many[0] / few[0], many[1] / few[1])


async def _cost(dsn: str) -> tuple[float, float]:
    database = Database(dsn)
    queue = await open_queue(database)
    await queue.snapshot(View.ACTIVE)
    with psycopg.connect(dsn, autocommit=True) as connection:
        before, took = _blocks(connection), []
        for _ in range(_ROUNDS):
            asked = time.perf_counter()
            await queue.snapshot(View.ACTIVE)
            took.append(time.perf_counter() - asked)
        blocks = (_blocks(connection) - before) / _ROUNDS
    await database.close()
    return statistics.median(took) * 1000, blocks


def _blocks(connection: psycopg.Connection) -> int:
    time.sleep(1.5)  # each backend reports its figures at most once a second
    connection.execute("SELECT pg_stat_clear_snapshot()")
    found = connection.execute(
        "SELECT sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read) FROM pg_statio_user_tables"
    ).fetchone()
    assert found is not None
    return int(found[0] or 0)
