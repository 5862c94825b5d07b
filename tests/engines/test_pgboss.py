"""pg-boss itself: its own workers make the rows, one is killed, and another finishes what leasetop gave back."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest
import pytest_asyncio

from leasetop.database import Database
from leasetop.errors import Refused
from leasetop.model import State
from leasetop.queue import Queue
from tests.engines import node
from tests.engines.looking import act, counts, execute, only, requeue, rows
from tests.engines.node import Driver, driving
from tests.queues import open_queue

LACKS = node.missing()
pytestmark = [pytest.mark.engines, pytest.mark.skipif(LACKS is not None, reason=LACKS or "")]

# As if an hour had passed since the claim: the lease is of 15 minutes.
AGE = """
    UPDATE pgboss.job
       SET started_on = started_on - interval '1 hour', heartbeat_on = heartbeat_on - interval '1 hour'
     WHERE state = 'active'
"""
ONCE = '{"retryLimit": 0}'


def run(dsn: str, *arguments: str) -> list[str]:
    return node.run("pgboss", dsn, *arguments)


def working(dsn: str, how: str) -> AbstractContextManager[Driver]:
    return driving("pgboss", dsn, "work", how)


@pytest_asyncio.fixture
async def queue(database: Database, blank_dsn: str) -> AsyncIterator[Queue]:
    yield await installed(database, blank_dsn)


async def installed(database: Database, dsn: str, *policy: str) -> Queue:
    run(dsn, "install", *policy)
    found = await open_queue(database)
    assert found.profile.id == "pg-boss"
    return found


def killed(dsn: str) -> str:
    """A worker dies while it runs a job; the job's id."""
    with working(dsn, "wait") as worker:
        (job,) = worker.await_running()
        worker.kill()
    return job


async def test_every_state_is_counted_and_shown(queue: Queue, blank_dsn: str) -> None:
    run(blank_dsn, "enqueue", "1", ONCE)
    (failed,) = run(blank_dsn, "work", "fail")
    run(blank_dsn, "enqueue", "1")
    (completed,) = run(blank_dsn, "work", "finish")
    (cancelled,) = run(blank_dsn, "enqueue", "1")
    run(blank_dsn, "cancel", cancelled)
    run(blank_dsn, "enqueue", "1")
    with working(blank_dsn, "wait") as worker:
        (running,) = worker.await_running()
        (pending,) = run(blank_dsn, "enqueue", "1")
        (scheduled,) = run(blank_dsn, "enqueue", "1", '{"startAfter": 3600, "priority": 7}')
        ids = {
            State.FAILED: failed,
            State.COMPLETED: completed,
            State.CANCELLED: cancelled,
            State.PROCESSING: running,
            State.PENDING: pending,
            State.SCHEDULED: scheduled,
        }
        assert await counts(queue) == dict.fromkeys(ids, 1)
        jobs = {state: await only(queue, state) for state in ids}
    assert {state: job.key for state, job in jobs.items()} == {state: ("charges", id_) for state, id_ in ids.items()}
    assert {job.queue for job in jobs.values()} == {"charges"}
    assert {state: (job.attempts, job.max_attempts) for state, job in jobs.items()} == {
        State.FAILED: (1, 1),
        State.COMPLETED: (1, 3),
        State.CANCELLED: (0, 3),
        State.PROCESSING: (1, 3),
        State.PENDING: (0, 3),
        State.SCHEDULED: (0, 3),
    }
    assert jobs[State.FAILED].error == "the card was refused"
    assert jobs[State.SCHEDULED].priority == 7
    held = jobs[State.PROCESSING]
    assert held.claimed_at and held.lease_until == held.claimed_at + timedelta(minutes=15)
    assert held.owner is None  # pg-boss does not say who


async def test_a_live_worker_keeps_its_job(queue: Queue, blank_dsn: str) -> None:
    run(blank_dsn, "enqueue", "1")
    with working(blank_dsn, "wait") as worker:
        worker.await_running()
        before = rows(blank_dsn, "pgboss", "job")
        outcome = await requeue(queue, await only(queue, State.PROCESSING))
        assert not outcome.done and "live lease" in outcome.words
        assert rows(blank_dsn, "pgboss", "job") == before
        worker.go_on()
        worker.end()
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_dead_workers_job_is_stuck_and_goes_to_another(queue: Queue, blank_dsn: str) -> None:
    run(blank_dsn, "enqueue", "1")
    id_ = killed(blank_dsn)
    assert await counts(queue) == {State.PROCESSING: 1}  # nothing tells yet
    assert execute(blank_dsn, AGE) == 1
    assert await counts(queue) == {State.STUCK: 1}
    stuck = await only(queue, State.STUCK)
    assert (stuck.key, stuck.owner, stuck.attempts, stuck.max_attempts) == (("charges", id_), None, 1, 3)
    assert stuck.claimed_at and stuck.lease_until == stuck.claimed_at + timedelta(minutes=15)

    assert (await requeue(queue, stuck)).done
    assert await counts(queue) == {State.PENDING: 1}
    assert not (await requeue(queue, stuck)).done
    assert run(blank_dsn, "work", "finish") == [id_]
    done = await only(queue, State.COMPLETED)
    assert (done.attempts, done.max_attempts) == (2, 3)
    assert not (await requeue(queue, stuck)).done
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_missed_heartbeat_is_stuck_long_before_the_job_expires(queue: Queue, blank_dsn: str) -> None:
    run(blank_dsn, "enqueue", "1", '{"heartbeatSeconds": 10}')
    id_ = killed(blank_dsn)
    assert await counts(queue) == {State.PROCESSING: 1}
    execute(blank_dsn, "UPDATE pgboss.job SET heartbeat_on = heartbeat_on - interval '1 minute'")
    stuck = await only(queue, State.STUCK)
    assert stuck.claimed_at and stuck.lease_until
    assert stuck.lease_until == stuck.claimed_at - timedelta(seconds=50)
    assert (await requeue(queue, stuck)).done
    assert run(blank_dsn, "work", "finish") == [id_]


async def test_a_job_killed_in_its_last_attempt_gets_another(queue: Queue, blank_dsn: str) -> None:
    run(blank_dsn, "enqueue", "1", ONCE)
    id_ = killed(blank_dsn)
    execute(blank_dsn, AGE)
    stuck = await only(queue, State.STUCK)
    assert (stuck.attempts, stuck.max_attempts) == (1, 1)
    assert (await requeue(queue, stuck)).done
    assert run(blank_dsn, "work", "finish") == [id_]
    done = await only(queue, State.COMPLETED)
    assert (done.attempts, done.max_attempts) == (2, 2)


async def test_a_failed_job_is_retried(queue: Queue, blank_dsn: str) -> None:
    run(blank_dsn, "enqueue", "1", ONCE)
    (id_,) = run(blank_dsn, "work", "fail")
    failed = await only(queue, State.FAILED)
    assert (await requeue(queue, failed)).done
    assert not (await requeue(queue, failed)).done
    assert await counts(queue) == {State.PENDING: 1}
    assert run(blank_dsn, "work", "finish") == [id_]
    assert await counts(queue) == {State.COMPLETED: 1}


@pytest.mark.parametrize("how", ["wait", "waitfail"])
async def test_a_late_worker_changes_nothing_once_its_job_waits_again(queue: Queue, blank_dsn: str, how: str) -> None:
    run(blank_dsn, "enqueue", "1")
    with working(blank_dsn, how) as late:
        await taken_from(late, queue, blank_dsn)
        before = rows(blank_dsn, "pgboss", "job")
        late.go_on()
        late.end()
    assert rows(blank_dsn, "pgboss", "job") == before


@pytest.mark.parametrize("how", ["wait", "waitfail"])
async def test_a_late_worker_changes_nothing_of_the_next_attempt(queue: Queue, blank_dsn: str, how: str) -> None:
    run(blank_dsn, "enqueue", "1")
    with working(blank_dsn, how) as late:
        await taken_from(late, queue, blank_dsn)
        with working(blank_dsn, "wait") as second:
            second.await_running()
            before = rows(blank_dsn, "pgboss", "job")
            late.go_on()
            late.end()
            assert rows(blank_dsn, "pgboss", "job") == before
            second.go_on()
            second.end()
    assert await counts(queue) == {State.COMPLETED: 1}


async def taken_from(late: Driver, queue: Queue, dsn: str) -> None:
    """Its job is given back while it still works."""
    late.await_running()
    execute(dsn, AGE)
    assert (await requeue(queue, await only(queue, State.STUCK))).done


async def test_completing_by_attempt_is_fenced_and_by_id_is_not(queue: Queue, blank_dsn: str) -> None:
    """The library's own workers name the attempt; an application that calls complete() may leave it out."""
    run(blank_dsn, "enqueue", "1")
    id_ = killed(blank_dsn)
    execute(blank_dsn, AGE)
    assert (await requeue(queue, await only(queue, State.STUCK))).done
    assert run(blank_dsn, "complete", id_, "0") == ["0"]  # it waits: nobody's
    assert killed(blank_dsn) == id_
    assert run(blank_dsn, "complete", id_, "0") == ["0"]  # it is the second attempt's
    assert await counts(queue) == {State.PROCESSING: 1}
    assert run(blank_dsn, "complete", id_) == ["1"]
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_queue_with_one_place_for_each_state_may_refuse(database: Database, blank_dsn: str) -> None:
    """Its policy is a unique index: where one job waits for its retry already, no second one can."""
    queue = await installed(database, blank_dsn, "stately")
    run(blank_dsn, "enqueue", "1", '{"retryDelay": 3600}')
    (waits,) = run(blank_dsn, "work", "fail")
    run(blank_dsn, "enqueue", "1")
    assert killed(blank_dsn) != waits
    execute(blank_dsn, AGE)
    before = rows(blank_dsn, "pgboss", "job")
    assert await counts(queue) == {State.SCHEDULED: 1, State.STUCK: 1}
    with pytest.raises(Refused, match="23505"):
        await requeue(queue, await only(queue, State.STUCK))
    assert rows(blank_dsn, "pgboss", "job") == before


async def test_a_job_that_waits_for_its_time_is_run_now(queue: Queue, blank_dsn: str) -> None:
    run(blank_dsn, "enqueue", "1", '{"startAfter": 3600}')
    job = await only(queue, State.SCHEDULED)
    assert (await act(queue, "run_now", job)).done
    assert not (await act(queue, "run_now", job)).done
    run(blank_dsn, "work", "finish")
    assert State.SCHEDULED not in await counts(queue)
    assert State.PENDING not in await counts(queue)


async def test_a_discarded_job_is_never_run(queue: Queue, blank_dsn: str) -> None:
    (discarded,) = run(blank_dsn, "enqueue", "1")
    assert (await act(queue, "discard", await only(queue, State.PENDING))).done
    (other,) = run(blank_dsn, "enqueue", "1")
    assert run(blank_dsn, "work", "finish") == [other]
    assert (await only(queue, State.CANCELLED)).key[-1] == discarded


async def test_a_job_at_work_is_not_discarded(queue: Queue, blank_dsn: str) -> None:
    run(blank_dsn, "enqueue", "1")
    with working(blank_dsn, "wait") as worker:
        worker.await_running()
        assert not (await act(queue, "discard", await only(queue, State.PROCESSING))).done
        assert await counts(queue) == {State.PROCESSING: 1}
