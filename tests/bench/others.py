"""What one refresh costs on the tables of procrastinate and pg-boss, with many finished rows and few live ones.

The tables are made by the libraries themselves (python -m tests.engines; LEASETOP_ENGINES), the rows by hand.
"""

import argparse
import asyncio
import statistics

import psycopg

from leasetop.database import Database
from leasetop.demo.postgres import EmbeddedPostgres
from leasetop.model import View
from tests.bench import table
from tests.engines import environment, node
from tests.engines.driver import Engine
from tests.queues import open_queue

_ROUNDS = 15
_BATCH = 1_000_000

_PROCRASTINATE = """
    INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, attempts)
    SELECT 'q' || n % 5, 'task' || n % 20, '{"a": 1}',
           CASE WHEN n % 500 = 0 THEN 'failed' ELSE 'succeeded' END::procrastinate_job_status, 1
      FROM generate_series(1, %(n)s) n
"""
_PROCRASTINATE_EVENTS = """
    INSERT INTO procrastinate_events (job_id, type, at)
    SELECT id, 'succeeded', now() - interval '1 ms' * (SELECT max(id) - j.id FROM procrastinate_jobs)
      FROM procrastinate_jobs j WHERE status = 'succeeded'
"""
_PROCRASTINATE_LIVE = """
    INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() + interval '1 day'), (now() - interval '1 hour');
    INSERT INTO procrastinate_jobs (queue_name, task_name, args, status)
    SELECT 'q1', 'task1', '{}', 'todo' FROM generate_series(1, 5000);
    INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, worker_id)
    SELECT 'q1', 'task1', '{}', 'doing', 1 + n % 2 FROM generate_series(1, 100) n
"""
_PGBOSS_QUEUES = """
    INSERT INTO pgboss.queue (name, policy, retry_limit, retry_delay, retry_backoff, expire_seconds, retention_seconds,
                              deletion_seconds, partition, table_name)
    SELECT 'q' || n, 'standard', 2, 0, false, 900, 1209600, 604800, false, 'job_common' FROM generate_series(0, 4) n
"""
_PGBOSS = """
    INSERT INTO pgboss.job_common (name, data, state, retry_limit, expire_seconds, start_after, created_on, started_on,
                                   completed_on, policy)
    SELECT 'q' || n % 5, '{"a": 1}', (CASE WHEN n % 500 = 0 THEN 'failed' ELSE 'completed' END)::pgboss.job_state,
           2, 900, at, at, at, at + interval '1 s', 'standard'
      FROM (SELECT n, now() - n * interval '50 ms' AS at FROM generate_series(1, %(n)s) n) AS made
"""
_PGBOSS_LIVE = """
    INSERT INTO pgboss.job_common (name, state, policy, retry_limit, expire_seconds, start_after, created_on)
    SELECT 'q' || n % 5, 'created', 'standard', 2, 900, now(), now() FROM generate_series(1, 5000) n;
    INSERT INTO pgboss.job_common (name, state, policy, retry_limit, expire_seconds, start_after, created_on,
                                   started_on)
    SELECT 'q' || n % 5, 'active', 'standard', 2, 900, now(), now(), now() - n * interval '20 s'
      FROM generate_series(1, 100) n
"""


def measure(server: EmbeddedPostgres, told: argparse.Namespace) -> None:
    """Milliseconds of the server for one refresh of the first tab, by its own clock."""
    table.row("a refresh, server's ms", "live rows only", f"{told.finished:,} done", "ratio")
    for name, missing in (("procrastinate", environment.missing("procrastinate")), ("pg-boss", node.missing())):
        if missing:
            print(f"{name}: not measured: {missing}")
            continue
        dsn = table.empty(server, "others")
        install = _install_procrastinate if name == "procrastinate" else _install_pgboss
        install(dsn)
        few, many = _filled(name, dsn, told.finished)
        table.row(name, few, many, many / few)


def _install_procrastinate(dsn: str) -> None:
    Engine("procrastinate", "procrastinate_app.py", dsn).call("install")


def _install_pgboss(dsn: str) -> None:
    node.run("pgboss", dsn, "install")


def _filled(name: str, dsn: str, finished: int) -> tuple[float, float]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        # Triggers of the libraries would only make the filling slower.
        connection.execute("SET session_replication_role = replica")
        procrastinate = name == "procrastinate"
        for statement in [_PROCRASTINATE_LIVE] if procrastinate else [_PGBOSS_QUEUES, _PGBOSS_LIVE]:
            connection.execute(statement.encode())
        connection.execute("VACUUM ANALYZE")
        few = asyncio.run(_cost(dsn))
        for start in range(0, finished, _BATCH):
            rows = (_PROCRASTINATE if procrastinate else _PGBOSS).replace("%", "%%").replace("%%(n)s", "%(n)s")
            connection.execute(rows.encode(), {"n": min(_BATCH, finished - start)})
        if procrastinate:
            connection.execute(_PROCRASTINATE_EVENTS.encode())
        connection.execute("VACUUM ANALYZE")
        return few, asyncio.run(_cost(dsn))


async def _cost(dsn: str) -> float:
    database = Database(dsn)
    queue = await open_queue(database)
    await queue.snapshot(View.ACTIVE)
    costs = [(await queue.snapshot(View.ACTIVE)).cost.total_seconds() * 1000 for _ in range(_ROUNDS)]
    await database.close()
    return statistics.median(costs)
