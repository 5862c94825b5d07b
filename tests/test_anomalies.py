"""Rows that should not be there are found, and the line of each shows exactly them."""

from collections.abc import AsyncIterator

import psycopg
import pytest

from leasetop import statements
from leasetop.database import Database
from leasetop.filter import parse
from leasetop.model import View
from leasetop.queue import Queue
from tests import world
from tests.queues import open_queue


@pytest.fixture
def connection(dsn: str) -> psycopg.Connection:
    made = psycopg.connect(dsn, autocommit=True)
    made.execute("ALTER TABLE payment_jobs DROP CONSTRAINT payment_jobs_known_status")
    return made


@pytest.fixture
async def queue(dsn: str) -> AsyncIterator[Queue]:
    database = Database(dsn)
    yield await open_queue(database)
    await database.close()


async def test_a_healthy_queue_has_none(queue: Queue, connection: psycopg.Connection) -> None:
    world.put(connection)
    world.held(connection)
    world.held(connection, lease_s=-5)
    world.put(connection, "Failed", attempts=5)
    world.put(connection, "Completed", attempts=1)
    assert (await queue.anomalies()).total == 0


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("held by nobody", "status = 'Processing', lease_until = now() + interval '1 min'"),
        ("held without a lease", "status = 'Processing', lease_owner = 'w'"),
        ("waiting with an owner", "lease_owner = 'w'"),
        ("done with a live lease", "status = 'Completed', lease_until = now() + interval '1 min'"),
        ("unknown status", "status = 'frozen'"),
        ("attempts above the cap", "attempts = 9, max_attempts = 5"),
    ],
)
async def test_each_is_found_and_shown(queue: Queue, connection: psycopg.Connection, name: str, change: str) -> None:
    world.put(connection)
    odd = world.put(connection)
    connection.execute(f"UPDATE payment_jobs SET {change} WHERE id = {odd}".encode())
    found = await queue.anomalies()
    ((anomaly, number),) = found.counts.items()
    assert (anomaly.name, number) == (name, 1)
    shown = await queue.snapshot(View.ALL, chosen=parse(anomaly.line))
    assert [job.id for job in shown.jobs] == [str(odd)]


async def test_a_late_completion_is_one(queue: Queue, connection: psycopg.Connection) -> None:
    job = world.put(connection, "Completed", attempts=2)
    given = {"id": job, "attempt": 1, "owner": "pay/1/aa", "stage": None}
    connection.execute(statements.load("late"), given)
    (late,) = (await queue.anomalies()).late
    assert (late.job, late.attempt, late.owner) == (str(job), 1, "pay/1/aa")
