"""Roles and databases whose default is REPEATABLE READ or SERIALIZABLE: races, but no errors for anybody to read."""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

from leasetop import watcher
from leasetop.model import Backoff, Policy
from leasetop.watcher import Watcher
from leasetop.worker import ClaimedJob, Settings, Worker
from tests import world
from tests.protocol.conftest import Connect
from tests.protocol.statement import claim
from tests.waiting import until
from tests.workers import running

OWN_DATABASE = True
LEVELS = ["repeatable read", "serializable"]


@pytest.fixture(params=LEVELS)
def strict(request: pytest.FixtureRequest, connection: psycopg.Connection) -> Iterator[None]:
    """The database's default isolation level, for every connection made from now on."""
    name = connection.info.dbname
    connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{request.param}'".encode())
    yield


def use_the_default(worker: Worker) -> None:
    """Takes the worker's own setting away, so that it meets what it normally rules out."""
    for session in (worker._session, worker._keeper._session):
        del session._settings["default_transaction_isolation"]


def flaky(job: ClaimedJob) -> None:
    job.reached("authorize")
    if job.id % 5 == 0 and job.attempt == 1:
        raise ValueError("the first time never works")


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("mode", ["session", "pooled", "default"])
def test_workers_and_watchers_finish_all_jobs_without_an_error(
    dsn: str, connection: psycopg.Connection, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    jobs = [world.put(connection) for _ in range(60)]
    expired = [world.held(connection, "w/9/z", lease_s=-5) for _ in range(20)]
    settings = Settings(
        batch=3,
        concurrency=3,
        ttl=timedelta(seconds=5),
        heartbeat=timedelta(seconds=0.05),
        backoff=timedelta(microseconds=1),
        poll=timedelta(seconds=0.01),
        pooled=mode == "pooled",
    )
    workers = [Worker(dsn, flaky, settings) for _ in range(4)]
    if mode == "default":
        for worker in workers:
            use_the_default(worker)
    at_once = Backoff(timedelta(microseconds=1))
    sweeping = Watcher(dsn, interval=timedelta(seconds=0.01), backoff=at_once, pooled=mode == "pooled")
    unfinished = "SELECT count(*) FROM payment_jobs WHERE status <> 'Completed'"
    with caplog.at_level(logging.INFO), running(*workers, sweeping):
        until(lambda: connection.execute(unfinished).fetchone() == (0,), timeout=30)
    assert len(jobs + expired) == 80
    unexpected = [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]
    assert unexpected == []
    assert {getattr(record, "event", None) for record in caplog.records} <= {"started", "stopped", "failed", "swept"}
    wrong = connection.execute(
        "SELECT j.id FROM payment_jobs j JOIN payment_job_history h ON h.job_id = j.id "
        "GROUP BY j.id HAVING count(*) <> j.attempts"
    ).fetchall()
    assert wrong == []


@pytest.mark.usefixtures("strict")
def test_a_sweep_that_lost_a_race_is_run_again(connection: psycopg.Connection, connect: Connect) -> None:
    """The transaction of another is open while the sweep begins; under these levels that is error 40001."""
    jobs = [world.held(connection, "w/9/z", lease_s=-5) for _ in range(50)]
    rivals = [connect() for _ in range(4)]

    def sweep_all(rival: psycopg.Connection) -> int:
        return sum(len(watcher.sweep(rival, Policy.REQUEUE, "ops", batch=5)) for _ in range(4))

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(sweep_all, rivals)) == len(jobs)


@pytest.mark.usefixtures("strict")
def test_a_claim_that_meets_a_committed_change_is_a_lost_race_not_two_winners(
    connection: psycopg.Connection, connect: Connect
) -> None:
    job = world.put(connection)
    late = connect()
    with pytest.raises(psycopg.errors.SerializationFailure), late.transaction():
        late.execute("SELECT count(*) FROM payment_jobs")
        assert claim(connection) == [(job, 1)]
        claim(late, "w/2/b")
    assert world.row(connection, job) == ("Processing", "w/1/a", 1)
