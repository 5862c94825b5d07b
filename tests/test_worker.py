"""The worker as a library: what a handler gets, and what becomes of a job however its handler ends."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import psycopg
import pytest

from leasetop.leases import ClaimedJob, LeaseLost
from leasetop.model import Policy
from leasetop.session import SettingsError
from leasetop.worker import PermanentFailure, Settings, Worker
from tests import world
from tests.waiting import until
from tests.workers import Events, running

QUICK = {"poll": timedelta(milliseconds=20), "backoff": timedelta(milliseconds=10), "drain": timedelta(seconds=5)}


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as made:
        yield made


def worker(dsn: str, handler: Callable[[ClaimedJob], object], events: Events, **settings: object) -> Worker:
    return Worker(dsn, handler, Settings(**(QUICK | settings)), observer=events)  # type: ignore[arg-type]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_plain_handler_gets_the_job_with_its_token(
    dsn: str, connection: psycopg.Connection, concurrency: int
) -> None:
    job, events, got = world.put(connection, key="k1", stage="authorize"), Events(), []
    with running(made := worker(dsn, got.append, events, concurrency=concurrency)):
        events.wait("completed", job)
    (claimed,) = got
    assert (claimed.id, claimed.attempt, claimed.idempotency_key, claimed.stage) == (job, 1, "k1", "authorize")
    assert claimed.token == (made.owner, 1)
    assert str(claimed.amount) == "12.30"
    assert claimed.payload == {}


def test_an_async_handler_completes_many_at_once(dsn: str, connection: psycopg.Connection) -> None:
    jobs, events, together = [world.put(connection) for _ in range(4)], Events(), threading.Barrier(4, timeout=10)

    async def handler(job: ClaimedJob) -> None:
        await job.areached("met")
        await asyncio.to_thread(together.wait)

    with running(worker(dsn, handler, events, concurrency=4, batch=4)):
        for job in jobs:
            events.wait("completed", job)
    assert world.row(connection, jobs[0], "stage") == ("met",)


def test_an_exception_is_tried_again_and_its_words_are_kept(dsn: str, connection: psycopg.Connection) -> None:
    job, events = world.put(connection), Events()

    def handler(claimed: ClaimedJob) -> None:
        if claimed.attempt == 1:
            raise ValueError("bank said\x00no\udc80")

    with running(worker(dsn, handler, events)):
        events.wait("completed", job)
    error = connection.execute("SELECT error FROM payment_job_history WHERE event = 'failed'").fetchone()
    assert error == ("ValueError: bank said␀no\\udc80",)
    assert world.events(connection, job) == ["failed", "completed"]


def test_a_permanent_failure_is_not_tried_again(dsn: str, connection: psycopg.Connection) -> None:
    job, events = world.put(connection), Events()

    def handler(claimed: ClaimedJob) -> None:
        raise PermanentFailure("card declined")

    with running(worker(dsn, handler, events)):
        events.wait("failed", job)
    assert world.row(connection, job, "status, attempts, last_error") == (
        "Failed",
        1,
        "PermanentFailure: card declined",
    )


def test_a_stage_is_recorded_before_the_work_goes_on(dsn: str, connection: psycopg.Connection) -> None:
    job, events, seen = world.put(connection), Events(), []

    def handler(claimed: ClaimedJob) -> None:
        claimed.reached("capture")
        seen.append(world.row(connection, job, "stage, status"))

    with running(worker(dsn, handler, events)):
        events.wait("completed", job)
    assert seen == [("capture", "Processing")]


def test_an_async_handler_is_cancelled_when_its_lease_is_lost(dsn: str, connection: psycopg.Connection) -> None:
    job, events, ends = world.put(connection), Events(), []

    async def handler(claimed: ClaimedJob) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ends.append(claimed.held())
            raise

    with running(worker(dsn, handler, events, ttl=timedelta(seconds=2), heartbeat=timedelta(seconds=0.1))):
        events.wait("claimed", job)
        connection.execute("UPDATE payment_jobs SET lease_owner = 'thief', attempts = 2")
        events.wait("lost", job)
        until(lambda: ends)
    assert ends == [False]
    assert world.row(connection, job) == ("Processing", "thief", 2)


def test_a_plain_handler_hears_at_its_next_stage_that_its_lease_is_lost(
    dsn: str, connection: psycopg.Connection
) -> None:
    job, events, heard = world.put(connection), Events(), []

    def handler(claimed: ClaimedJob) -> None:
        connection.execute("UPDATE payment_jobs SET lease_owner = 'thief', attempts = 2")
        try:
            claimed.reached("capture")
        except LeaseLost:
            heard.append(claimed.held())
            raise

    with running(worker(dsn, handler, events)):
        events.wait("lost", job)
    assert heard == [False]
    assert world.row(connection, job, "lease_owner, stage") == ("thief", None)


def test_a_late_completion_is_refused_and_the_history_says_so(dsn: str, connection: psycopg.Connection) -> None:
    job, events = world.put(connection), Events()

    def handler(claimed: ClaimedJob) -> None:
        connection.execute("UPDATE payment_jobs SET lease_owner = 'thief', attempts = 2")

    with running(worker(dsn, handler, events)):
        until(lambda: world.events(connection, job) == ["late completion refused"])
    assert world.row(connection, job) == ("Processing", "thief", 2)


def test_one_failed_heartbeat_is_not_a_lost_lease(dsn: str, connection: psycopg.Connection) -> None:
    job, events, go_on = world.put(connection), Events(), threading.Event()

    def handler(claimed: ClaimedJob) -> None:
        go_on.wait(20)

    settings = {"ttl": timedelta(seconds=4), "heartbeat": timedelta(seconds=0.2)}
    with running(worker(dsn, handler, events, **settings)):
        events.wait("heartbeat", times=2)
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'leasetop%'"
        )
        events.wait("heartbeat", times=events.count("heartbeat") + 2)
        go_on.set()
        events.wait("completed", job)
    assert world.events(connection, job) == ["completed"]


def test_without_heartbeats_a_lease_runs_out_and_the_job_is_aborted(dsn: str, connection: psycopg.Connection) -> None:
    job, events, go_on = world.put(connection), Events(), threading.Event()
    made = worker(
        dsn,
        lambda claimed: go_on.wait(20),
        events,
        ttl=timedelta(seconds=0.6),
        heartbeat=timedelta(seconds=0.2),
        policy=Policy.PARK,
    )
    made.heartbeats_on = False
    with running(made):
        events.wait("lost", job)
        go_on.set()
        until(lambda: world.events(connection, job) == ["late completion refused"])
    assert world.row(connection, job)[0] == "Processing"


def test_a_completion_waits_for_a_locked_row_as_long_as_the_lease_lives(
    dsn: str, connection: psycopg.Connection
) -> None:
    job, events = world.put(connection), Events()
    with (
        psycopg.connect(dsn) as other,
        running(worker(dsn, lambda claimed: lock(other, claimed), events, ttl=timedelta(seconds=5))),
    ):
        events.wait("claimed", job)
        locked = "SELECT FROM payment_jobs WHERE id = %s FOR UPDATE SKIP LOCKED"
        until(lambda: not connection.execute(locked, [job]).fetchall())
        time.sleep(0.2)  # the completion is refused as busy meanwhile; no event says so
        assert world.row(connection, job)[0] == "Processing"
        other.commit()
        events.wait("completed", job)
    assert world.events(connection, job) == ["completed"]


def lock(connection: psycopg.Connection, job: ClaimedJob) -> None:
    connection.execute("SELECT FROM payment_jobs WHERE id = %s FOR UPDATE", [job.id])


def test_under_park_nothing_is_taken_over(dsn: str, connection: psycopg.Connection) -> None:
    job, other, events = world.held(connection, lease_s=-5), world.put(connection), Events()
    with running(worker(dsn, lambda claimed: None, events, policy=Policy.PARK)):
        events.wait("completed", other)
        events.wait("idle")
    assert world.row(connection, job)[1] == "w/1/a"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ttl": timedelta(seconds=10), "heartbeat": timedelta(seconds=6)}, "heartbeat"),
        ({"ttl": timedelta(0)}, "ttl"),
        ({"concurrency": 0}, "concurrency"),
        ({"batch": 1001}, "batch"),
        ({"name": "a/b"}, "name"),
        ({"name": "\x1b[2J"}, "name"),
        ({"drain": timedelta(seconds=-1)}, "drain"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(settings: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Settings(**settings)  # type: ignore[arg-type]
