"""procrastinate: the lease is the heartbeat of the worker's row; nobody rescues, and nothing fences a late finisher."""

import pytest

from leasetop.model import Job, Reason, State
from leasetop.queue import Queue
from tests.engines.conftest import MakeEngine
from tests.engines.driver import Engine
from tests.engines.looking import beats_count, counts, details_agree, only, only_one_of_many_is_done, requeue
from tests.engines.task import FAIL, HANG, LATE, SUCCEED

pytestmark = pytest.mark.engines

_ROWS = "SELECT * FROM procrastinate_jobs ORDER BY id"
_STARTS = "SELECT count(*) FROM procrastinate_events WHERE type = 'started'"


@pytest.fixture
def engine(make_engine: MakeEngine) -> Engine:
    return make_engine("procrastinate", "procrastinate_app.py")


def grow_old(engine: Engine) -> None:
    """As when the last heartbeat of every worker was an hour ago."""
    assert engine.change("UPDATE procrastinate_workers SET last_heartbeat = last_heartbeat - interval '1 hour'")


async def killed(engine: Engine, queue: Queue) -> Job:
    """The job of a worker that was killed an hour ago."""
    engine.call("enqueue", "1")
    with engine.worker(HANG) as worker:
        worker.wait("begun")
        worker.kill()
    grow_old(engine)
    return await only(queue, State.STUCK)


async def test_every_state_is_what_real_workers_made_it(engine: Engine, queue: Queue) -> None:
    assert queue.profile.id == "procrastinate"
    for behaviour in (SUCCEED, FAIL):
        engine.call("enqueue", "1")
        engine.work(behaviour)
    engine.call("enqueue", "2")
    engine.call("enqueue", "1", "3600")
    with engine.worker(HANG) as worker:
        worker.wait("begun")
        seen = {State.COMPLETED: 1, State.FAILED: 1, State.PENDING: 1, State.SCHEDULED: 1, State.PROCESSING: 1}
        assert await counts(queue) == seen
        await details_agree(queue)
        running = await only(queue, State.PROCESSING)
        assert running.kind == "pay"
        assert running.owner == str(engine.rows("SELECT max(id) FROM procrastinate_workers")[0][0])
        snapshot = await queue.snapshot()
        assert running.is_live(snapshot.now)
        worker.kill()
    grow_old(engine)
    del seen[State.PROCESSING]
    assert await counts(queue) == {**seen, State.STUCK: 1}


async def test_a_live_worker_keeps_its_job(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1")
    with engine.worker(HANG) as worker:
        worker.wait("begun")
        job, before = await only(queue, State.PROCESSING), engine.rows(_ROWS)
        outcome = await requeue(queue, job)
        assert not outcome.done
        assert engine.rows(_ROWS) == before


async def test_a_dead_workers_job_is_stuck_and_run_again_once(engine: Engine, queue: Queue) -> None:
    job = await killed(engine, queue)
    assert job.reason is Reason.EXPIRED
    assert job.owner is not None and job.lease_until is not None
    assert job.lease_until < (await queue.snapshot()).now
    # procrastinate counts an attempt when it ends, and keeps no limit in the database.
    assert (job.attempts, job.max_attempts) == (0, None)
    assert (await requeue(queue, job)).done
    assert not (await requeue(queue, job)).done
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}
    assert (await only(queue, State.COMPLETED)).attempts == 2


async def test_a_job_stays_stuck_when_the_dead_workers_row_is_pruned(engine: Engine, queue: Queue) -> None:
    await killed(engine, queue)
    # A worker that starts deletes the rows of dead ones: nobody owns the job then, and nothing says until when.
    engine.work(SUCCEED)
    job = await only(queue, State.STUCK)
    assert (job.owner, job.lease_until) == (None, None)
    assert (await requeue(queue, job)).done
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_failed_job_is_run_again(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1")
    engine.work(FAIL)
    assert (await requeue(queue, await only(queue, State.FAILED))).done
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_late_finisher_ends_a_requeued_job_that_nobody_ran_again(engine: Engine, queue: Queue) -> None:
    assert not queue.profile.completion_fenced
    engine.call("enqueue", "1")
    with engine.worker(LATE) as worker:
        worker.wait("begun")
        worker.freeze()
        grow_old(engine)
        assert (await requeue(queue, await only(queue, State.STUCK))).done
        assert await counts(queue) == {State.PENDING: 1}
        worker.go_on()
        worker.thaw()
        worker.end()
    assert await counts(queue) == {State.COMPLETED: 1}
    assert engine.rows(_STARTS) == [(1,)]


async def test_a_late_finisher_ends_the_job_while_another_runs_it(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1")
    with engine.worker(LATE) as late:
        late.wait("begun")
        late.freeze()
        grow_old(engine)
        assert (await requeue(queue, await only(queue, State.STUCK))).done
        with engine.worker(HANG) as other:
            other.wait("begun")
            late.go_on()
            late.thaw()
            late.end()
            assert await counts(queue) == {State.COMPLETED: 1}
    assert engine.rows(_STARTS) == [(2,)]


async def test_a_heartbeat_made_meanwhile_counts(engine: Engine, queue: Queue, blank_dsn: str) -> None:
    job = await killed(engine, queue)
    beat = "UPDATE procrastinate_workers SET last_heartbeat = now()"
    await beats_count(queue, blank_dsn, job, "SELECT FROM procrastinate_jobs FOR UPDATE", beat)


async def test_of_many_who_requeue_at_once_one_does(engine: Engine, queue: Queue, blank_dsn: str) -> None:
    await only_one_of_many_is_done(queue, blank_dsn, await killed(engine, queue))
