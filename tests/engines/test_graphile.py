"""graphile-worker itself: its own workers make the rows, one is killed, and another finishes what was given back."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta

import pytest
import pytest_asyncio
from psycopg.conninfo import make_conninfo

from leasetop.database import Database
from leasetop.model import State
from leasetop.queue import Queue
from tests.engines import node
from tests.engines.looking import act, counts, execute, only, requeue, rows
from tests.engines.node import Driver, driving
from tests.queues import open_queue

LACKS = node.missing()
pytestmark = [pytest.mark.engines, pytest.mark.skipif(LACKS is not None, reason=LACKS or "")]

# As if five hours had passed since the claim: a lock is of four.
AGE = "UPDATE graphile_worker._private_jobs SET locked_at = locked_at - interval '5 hours'"
AGE_QUEUES = "UPDATE graphile_worker._private_job_queues SET locked_at = locked_at - interval '5 hours'"
ONCE = '{"maxAttempts": 1}'


def run(dsn: str, *arguments: str) -> list[str]:
    return node.run("graphile", dsn, *arguments)


def working(dsn: str, how: str) -> AbstractContextManager[Driver]:
    return driving("graphile", dsn, "work", how)


def jobs(dsn: str) -> list[str]:
    return rows(dsn, "graphile_worker", "_private_jobs")


@pytest_asyncio.fixture
async def queue(database: Database, blank_dsn: str) -> AsyncIterator[Queue]:
    run(blank_dsn, "install")
    found = await open_queue(database)
    assert found.profile.id == "graphile-worker"
    yield found


def killed(dsn: str) -> tuple[str, str]:
    """A worker dies while it runs a job; the job's id, and the worker's own name for itself."""
    with working(dsn, "wait") as worker:
        job, owner = worker.await_running()
        worker.kill()
    return job, owner


async def taken_from(late: Driver, queue: Queue, dsn: str) -> None:
    """Its job is given back while it still works."""
    late.await_running()
    execute(dsn, AGE)
    assert (await requeue(queue, await only(queue, State.STUCK))).done


async def test_every_state_is_counted_and_shown(queue: Queue, blank_dsn: str) -> None:
    (failed,) = run(blank_dsn, "enqueue", "1", ONCE)
    run(blank_dsn, "work", "fail")
    (running,) = run(blank_dsn, "enqueue", "1")
    with working(blank_dsn, "wait") as worker:
        _, owner = worker.await_running()
        (pending,) = run(blank_dsn, "enqueue", "1", '{"jobKey": "order 7"}')
        (scheduled,) = run(blank_dsn, "enqueue", "1", '{"runAt": "2100-01-01T00:00:00Z", "priority": 7}')
        ids = {State.FAILED: failed, State.PROCESSING: running, State.PENDING: pending, State.SCHEDULED: scheduled}
        assert await counts(queue) == dict.fromkeys(ids, 1)
        seen = {state: await only(queue, state) for state in ids}
    assert {state: job.key for state, job in seen.items()} == {state: (id_,) for state, id_ in ids.items()}
    assert {job.kind for job in seen.values()} == {"charge"}
    assert {state: (job.attempts, job.max_attempts) for state, job in seen.items()} == {
        State.FAILED: (1, 1),
        State.PROCESSING: (1, 25),
        State.PENDING: (0, 25),
        State.SCHEDULED: (0, 25),
    }
    assert seen[State.FAILED].error and "the card was refused" in seen[State.FAILED].error
    assert seen[State.SCHEDULED].priority == 7
    assert seen[State.PENDING].idempotency_key == "order 7"
    held = seen[State.PROCESSING]
    assert held.owner == owner
    assert held.claimed_at and held.lease_until == held.claimed_at + timedelta(hours=4)


async def test_a_failed_attempt_waits_for_the_next(queue: Queue, blank_dsn: str) -> None:
    """Not dead yet: the library puts it off by its back-off."""
    run(blank_dsn, "enqueue", "1")
    run(blank_dsn, "work", "fail")
    assert await counts(queue) == {State.SCHEDULED: 1}


async def test_what_is_completed_is_not_kept(queue: Queue, blank_dsn: str) -> None:
    run(blank_dsn, "enqueue", "1")
    run(blank_dsn, "work", "finish")
    assert await counts(queue) == {}
    assert not queue.profile.keeps(State.COMPLETED)


async def test_a_live_worker_keeps_its_job(queue: Queue, blank_dsn: str) -> None:
    run(blank_dsn, "enqueue", "1")
    with working(blank_dsn, "wait") as worker:
        _, owner = worker.await_running()
        before = jobs(blank_dsn)
        outcome = await requeue(queue, await only(queue, State.PROCESSING))
        assert not outcome.done and owner in outcome.words
        assert jobs(blank_dsn) == before
        worker.go_on()
        worker.end()
    assert jobs(blank_dsn) == []


async def test_a_dead_workers_job_is_stuck_and_goes_to_another(queue: Queue, blank_dsn: str) -> None:
    run(blank_dsn, "enqueue", "1")
    id_, owner = killed(blank_dsn)
    assert await counts(queue) == {State.PROCESSING: 1}  # nothing tells yet
    assert execute(blank_dsn, AGE) == 1
    assert await counts(queue) == {State.STUCK: 1}
    stuck = await only(queue, State.STUCK)
    assert (stuck.key, stuck.owner, stuck.attempts, stuck.max_attempts) == ((id_,), owner, 1, 25)
    assert stuck.claimed_at and stuck.lease_until == stuck.claimed_at + timedelta(hours=4)

    assert (await requeue(queue, stuck)).done
    waiting = await only(queue, State.PENDING)
    assert (waiting.owner, waiting.attempts, waiting.max_attempts) == (None, 1, 25)
    assert not (await requeue(queue, stuck)).done
    with working(blank_dsn, "finish") as second:
        assert second.await_running()[0] == id_
        second.end()
    assert jobs(blank_dsn) == []
    gone = await requeue(queue, stuck)
    assert not gone.done and "it is gone" in gone.words


async def test_a_job_killed_in_its_last_attempt_gets_another(queue: Queue, blank_dsn: str) -> None:
    """Unlocked alone it would have no attempt left, and no worker would ever take it."""
    run(blank_dsn, "enqueue", "1", ONCE)
    killed(blank_dsn)
    execute(blank_dsn, AGE)
    stuck = await only(queue, State.STUCK)
    assert (stuck.attempts, stuck.max_attempts) == (1, 1)
    assert (await requeue(queue, stuck)).done
    waiting = await only(queue, State.PENDING)
    assert (waiting.attempts, waiting.max_attempts) == (1, 2)
    assert len(run(blank_dsn, "work", "finish")) == 1
    assert jobs(blank_dsn) == []


async def test_the_lock_of_a_named_queue_goes_with_the_job(queue: Queue, blank_dsn: str) -> None:
    """Else the next job of that queue would wait for a dead worker."""
    run(blank_dsn, "enqueue", "2", '{"queueName": "cards"}')
    id_, owner = killed(blank_dsn)
    execute(blank_dsn, AGE)
    execute(blank_dsn, AGE_QUEUES)
    assert run(blank_dsn, "work", "finish") == []
    stuck = await only(queue, State.STUCK)
    assert (stuck.key, stuck.owner, stuck.queue) == ((id_,), owner, "cards")
    assert await counts(queue) == {State.STUCK: 1, State.PENDING: 1}
    assert (await requeue(queue, stuck)).done
    assert len(run(blank_dsn, "work", "finish")) == 2
    assert jobs(blank_dsn) == []


async def test_a_failed_job_is_retried(queue: Queue, blank_dsn: str) -> None:
    (id_,) = run(blank_dsn, "enqueue", "1", ONCE)
    run(blank_dsn, "work", "fail")
    failed = await only(queue, State.FAILED)
    assert failed.key == (id_,)
    assert (await requeue(queue, failed)).done
    assert not (await requeue(queue, failed)).done
    waiting = await only(queue, State.PENDING)
    assert (waiting.attempts, waiting.max_attempts) == (0, 1)
    assert len(run(blank_dsn, "work", "finish")) == 1
    assert jobs(blank_dsn) == []


async def test_a_late_worker_completes_a_job_that_waits_again(queue: Queue, blank_dsn: str) -> None:
    """The library deletes by id alone: nobody runs it a second time, and leasetop says that nothing prevents that."""
    assert not queue.profile.completion_fenced
    run(blank_dsn, "enqueue", "1")
    with working(blank_dsn, "wait") as late:
        await taken_from(late, queue, blank_dsn)
        assert await counts(queue) == {State.PENDING: 1}
        late.go_on()
        late.end()
    assert jobs(blank_dsn) == []


async def test_a_late_worker_completes_the_next_attempt_too(queue: Queue, blank_dsn: str) -> None:
    """The job runs twice; the row goes with whoever is first, and the other does not notice."""
    run(blank_dsn, "enqueue", "1")
    with working(blank_dsn, "wait") as late:
        await taken_from(late, queue, blank_dsn)
        with working(blank_dsn, "wait") as second:
            second.await_running()
            late.go_on()
            late.end()
            assert jobs(blank_dsn) == []
            second.go_on()
            second.end()


async def test_a_late_worker_cannot_fail_the_next_attempt(queue: Queue, blank_dsn: str) -> None:
    """Failing, unlike completing, compares locked_by."""
    run(blank_dsn, "enqueue", "1")
    with working(blank_dsn, "waitfail") as late:
        await taken_from(late, queue, blank_dsn)
        with working(blank_dsn, "wait") as second:
            _, owner = second.await_running()
            before = jobs(blank_dsn)
            late.go_on()
            late.end()
            assert jobs(blank_dsn) == before
            assert (await only(queue, State.PROCESSING)).owner == owner
            second.go_on()
            second.end()
    assert jobs(blank_dsn) == []


async def test_a_user_who_is_not_the_owner_sees_all_and_changes_nothing(queue: Queue, blank_dsn: str) -> None:
    """Row security without a policy: the tables show a granted role nothing, the view all, and neither an error."""
    run(blank_dsn, "enqueue", "1")
    killed(blank_dsn)
    execute(blank_dsn, AGE)
    before = jobs(blank_dsn)
    with granted_role(blank_dsn) as dsn:
        assert jobs(dsn) == []
        theirs = Database(dsn)
        try:
            guest = await open_queue(theirs)
            assert await counts(guest) == {State.STUCK: 1}
            outcome = await requeue(guest, await only(guest, State.STUCK))
        finally:
            await theirs.close()
    assert not outcome.done
    assert jobs(blank_dsn) == before


@contextmanager
def granted_role(dsn: str) -> Iterator[str]:
    """A role with every privilege on the tables, who does not own them; the DSN of its connections."""
    execute(
        dsn,
        """CREATE ROLE graphile_guest LOGIN;
           GRANT USAGE ON SCHEMA graphile_worker TO graphile_guest;
           GRANT ALL ON ALL TABLES IN SCHEMA graphile_worker TO graphile_guest""",
    )
    try:
        yield make_conninfo(dsn, user="graphile_guest")
    finally:
        execute(dsn, "DROP OWNED BY graphile_guest; DROP ROLE graphile_guest")


async def test_a_job_that_waits_for_its_time_is_run_now(queue: Queue, blank_dsn: str) -> None:
    run(blank_dsn, "enqueue", "1", '{"runAt": "2100-01-01T00:00:00Z"}')
    job = await only(queue, State.SCHEDULED)
    assert (await act(queue, "run_now", job)).done
    assert not (await act(queue, "run_now", job)).done
    run(blank_dsn, "work", "finish")
    assert State.SCHEDULED not in await counts(queue)
    assert State.PENDING not in await counts(queue)


async def test_a_discarded_job_is_never_run(queue: Queue, blank_dsn: str) -> None:
    (discarded,) = run(blank_dsn, "enqueue", "1")
    assert (await act(queue, "discard", await only(queue, State.PENDING))).done
    run(blank_dsn, "enqueue", "1")
    run(blank_dsn, "work", "finish")
    assert await counts(queue) == {State.FAILED: 1}
    assert (await only(queue, State.FAILED)).id == discarded


async def test_a_job_at_work_is_not_discarded(queue: Queue, blank_dsn: str) -> None:
    run(blank_dsn, "enqueue", "1")
    with working(blank_dsn, "wait") as worker:
        worker.await_running()
        assert not (await act(queue, "discard", await only(queue, State.PROCESSING))).done
        assert await counts(queue) == {State.PROCESSING: 1}
