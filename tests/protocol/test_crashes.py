"""Worker processes that are killed, frozen and stopped: what becomes of their leases."""

import signal
from datetime import timedelta

import psycopg
import pytest

from leasetop import watcher
from leasetop.model import Policy
from leasetop.worker import Worker
from tests import world
from tests.protocol.statement import claim, complete, expire, sweep
from tests.waiting import until
from tests.workers import Events, process, running

OWN_DATABASE = True

# Inline, in threads, as tasks: the handler that waits for the test, and the settings that choose the runner.
RUNNERS = {
    "inline": ("wait", "concurrency=1"),
    "threads": ("wait", "concurrency=2"),
    "tasks": ("await_", "concurrency=2"),
}
FOREVER = {
    "inline": ("forever", "concurrency=1"),
    "threads": ("forever", "concurrency=2"),
    "tasks": ("aforever", "concurrency=2"),
}


def test_a_killed_worker_s_job_expires_is_swept_and_done_by_another(dsn: str, connection: psycopg.Connection) -> None:
    job = world.put(connection)
    with process(dsn, "wait") as victim:
        victim.events.wait("begun", job)
        victim.signal(signal.SIGKILL)
        assert victim.end() == -signal.SIGKILL
    assert world.row(connection, job) == ("Processing", victim.owner, 1)
    expire(connection, job)
    (swept,) = watcher.sweep(connection, Policy.REQUEUE, "ops")
    assert (swept.key, swept.status, swept.owner) == ((str(job),), "Pending", victim.owner)
    connection.execute("UPDATE payment_jobs SET run_after = now() WHERE id = %s", [job])
    events = Events()
    with running(Worker(dsn, lambda job: None, observer=events)):
        events.wait("completed", job)
    assert world.row(connection, job, "status, attempts") == ("Completed", 2)
    assert world.events(connection, job) == ["expired", "completed"]


def test_a_killed_worker_s_job_is_taken_over_without_any_watcher(dsn: str, connection: psycopg.Connection) -> None:
    job = world.put(connection)
    with process(dsn, "wait") as victim:
        victim.events.wait("begun", job)
        victim.signal(signal.SIGKILL)
        victim.end()
    expire(connection, job)
    events = Events()
    with running(Worker(dsn, lambda job: None, observer=events)):
        events.wait("completed", job)
    assert world.events(connection, job) == ["expired", "completed"]


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_worker_frozen_past_its_lease_does_nothing_more_to_the_row(
    dsn: str, connection: psycopg.Connection, runner: str
) -> None:
    job = world.put(connection)
    handler, concurrency = RUNNERS[runner]
    with process(dsn, handler, f"Settings({concurrency}, ttl=timedelta(seconds=1))") as frozen:
        frozen.events.wait("begun", job)
        frozen.signal(signal.SIGSTOP)
        # Real time: the frozen process is to find out by its own clock.
        until(lambda: sweep(connection, backoff_s=0.000001))
        assert claim(connection, "w/2/b") == [(job, 2)]
        before = world.row(connection, job, "payment_jobs::text")
        frozen.signal(signal.SIGCONT)
        frozen.events.wait("lost", job)
        frozen.go_on()
        if runner != "tasks":  # a task is cancelled: it does not end, so there is nothing to refuse
            frozen.events.wait("late", job)
        frozen.signal(signal.SIGTERM)
        assert frozen.end() == 0
    assert world.row(connection, job, "payment_jobs::text") == before
    late = [] if runner == "tasks" else ["late completion refused"]
    assert world.events(connection, job) == ["expired", *late]
    assert complete(connection, [(job, 2)], "w/2/b") == [(job, 2, "completed")]
    assert not any("Traceback" in line for line in frozen.log)


def test_a_worker_whose_job_was_taken_over_hears_it_from_its_heartbeat(
    dsn: str, connection: psycopg.Connection
) -> None:
    job = world.put(connection)
    with process(dsn, "aforever", "Settings(ttl=timedelta(seconds=30), heartbeat=timedelta(seconds=0.1))") as worker:
        worker.events.wait("begun", job)
        expire(connection, job)
        taken = claim(connection, "w/2/b")
        # Either it had revived its lease in between, which is its right, or it has lost it now.
        if taken:
            worker.events.wait("lost", job)
    assert world.row(connection, job, "lease_owner") == (("w/2/b",) if taken else (worker.owner,))


@pytest.mark.parametrize("runner", RUNNERS)
def test_sigterm_lets_a_running_job_finish(dsn: str, connection: psycopg.Connection, runner: str) -> None:
    job = world.put(connection)
    handler, concurrency = RUNNERS[runner]
    with process(dsn, handler, f"Settings({concurrency})") as worker:
        worker.events.wait("begun", job)
        next_job = world.put(connection)
        worker.signal(signal.SIGTERM)
        worker.go_on()
        assert worker.end() == 0
    assert world.row(connection, job, "status, attempts") == ("Completed", 1)
    assert world.row(connection, next_job, "status, attempts") in (("Pending", 0), ("Completed", 1))
    assert worker.events.seen[-1] == ("bye", None)


@pytest.mark.parametrize("runner", FOREVER)
def test_sigterm_releases_what_does_not_finish_in_time(dsn: str, connection: psycopg.Connection, runner: str) -> None:
    job = world.put(connection)
    handler, concurrency = FOREVER[runner]
    with process(dsn, handler, f"Settings({concurrency}, drain=timedelta(seconds=0.2))") as worker:
        worker.events.wait("begun", job)
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0
    assert world.row(connection, job) == ("Pending", None, 1)
    assert world.events(connection, job) == ["released"]
    assert worker.log == []


@pytest.mark.parametrize("runner", FOREVER)
def test_a_second_signal_releases_at_once(dsn: str, connection: psycopg.Connection, runner: str) -> None:
    job = world.put(connection)
    handler, concurrency = FOREVER[runner]
    with process(dsn, handler, f"Settings({concurrency}, drain=timedelta(hours=1))") as worker:
        worker.events.wait("begun", job)
        worker.signal(signal.SIGTERM)
        worker.signal(signal.SIGINT)
        assert worker.end() == 0
    assert world.events(connection, job) == ["released"]


def test_jobs_that_were_claimed_but_not_begun_are_released_too(dsn: str, connection: psycopg.Connection) -> None:
    jobs = [world.put(connection) for _ in range(5)]
    with process(dsn, "wait", "Settings(batch=5)") as worker:
        worker.events.wait("begun", jobs[0])
        worker.signal(signal.SIGTERM)
        worker.go_on()
        assert worker.end() == 0
    assert [world.events(connection, job) for job in jobs] == [["completed"], *[["released"]] * 4]


def test_under_park_a_job_that_was_begun_is_not_released_for_another_run(
    dsn: str, connection: psycopg.Connection
) -> None:
    jobs = [world.put(connection) for _ in range(2)]
    settings = "Settings(batch=2, policy=Policy.PARK, drain=timedelta(0))"
    with process(dsn, "forever", settings) as worker:
        worker.events.wait("begun", jobs[0])
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0
    assert world.row(connection, jobs[0]) == ("Processing", worker.owner, 1)
    assert world.events(connection, jobs[1]) == ["released"]
    expire(connection, jobs[0])
    (swept,) = watcher.sweep(connection, Policy.PARK, "ops")
    assert swept.status == "Stuck"


def test_a_worker_that_crashes_on_the_same_job_again_and_again_stops_at_max_attempts(
    dsn: str, connection: psycopg.Connection
) -> None:
    job = world.put(connection, max_attempts=2)
    for _ in range(2):
        with process(dsn, "wait") as victim:
            victim.events.wait("begun", job)
            victim.signal(signal.SIGKILL)
            victim.end()
        expire(connection, job)
    (swept,) = watcher.sweep(connection, Policy.REQUEUE, "ops")
    assert (swept.status, swept.attempts) == ("Failed", 2)
    assert world.events(connection, job) == ["expired", "expired"]


def test_a_handler_that_blocks_past_its_ttl_keeps_its_lease(dsn: str, connection: psycopg.Connection) -> None:
    """`wait` blocks the main thread of a worker whose lease lasts a second; it is renewed all the same."""
    job = world.put(connection)
    with process(dsn, "wait", "Settings(ttl=timedelta(seconds=1), heartbeat=timedelta(seconds=0.2))") as worker:
        worker.events.wait("begun", job)
        worker.events.wait("heartbeat", times=7)
        assert sweep(connection) == []
        (age,) = world.row(connection, job, "clock_timestamp() - claimed_at")
        assert isinstance(age, timedelta) and age > timedelta(seconds=1)
        worker.go_on()
        worker.events.wait("completed", job)
    assert world.events(connection, job) == ["completed"]
