"""pgqueuer: each job has its heartbeat; finished jobs leave the table for a log, and nothing fences a late finisher."""

import pytest

from leasetop.model import Job, Reason, State
from leasetop.queue import Queue
from tests.engines.conftest import MakeEngine
from tests.engines.driver import Engine
from tests.engines.looking import counts, details_agree, only, only_one_of_many_is_done, requeue
from tests.engines.task import DECLINED, FAIL, HANG, LATE, SUCCEED

pytestmark = pytest.mark.engines

# Without heartbeat and updated, which a live worker renews.
_ROWS = "SELECT id, status, queue_manager_id, attempts, execute_after FROM pgqueuer ORDER BY id"
_LOG = "SELECT status::text FROM pgqueuer_log ORDER BY id"


@pytest.fixture
def engine(make_engine: MakeEngine) -> Engine:
    return make_engine("pgqueuer", "pgqueuer_app.py")


def grow_old(engine: Engine) -> None:
    """As when the last heartbeat of every running job was an hour ago."""
    assert engine.change("UPDATE pgqueuer SET heartbeat = heartbeat - interval '1 hour' WHERE status = 'picked'")


async def killed(engine: Engine, queue: Queue) -> Job:
    """The job of a worker that was killed an hour ago."""
    engine.call("enqueue", "1")
    with engine.worker(HANG) as worker:
        worker.wait("begun")
        worker.kill()
    grow_old(engine)
    return await only(queue, State.STUCK)


async def test_every_state_is_what_real_workers_made_it(engine: Engine, queue: Queue) -> None:
    assert queue.profile.id == "pgqueuer"
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
        assert [(running.owner,)] == engine.rows("SELECT queue_manager_id::text FROM pgqueuer WHERE status = 'picked'")
        assert running.is_live((await queue.snapshot()).now)
        worker.kill()
    grow_old(engine)
    del seen[State.PROCESSING]
    assert await counts(queue) == {**seen, State.STUCK: 1}


async def test_a_live_worker_keeps_its_job(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1")
    with engine.worker(HANG) as worker:
        worker.wait("begun")
        job, before = await only(queue, State.PROCESSING), engine.rows(_ROWS)
        assert not (await requeue(queue, job)).done
        assert engine.rows(_ROWS) == before


async def test_a_dead_workers_job_is_stuck_and_run_again_once(engine: Engine, queue: Queue) -> None:
    job = await killed(engine, queue)
    assert job.reason is Reason.EXPIRED
    assert job.owner is not None and job.lease_until is not None
    assert job.lease_until < (await queue.snapshot()).now
    # pgqueuer counts retries, and keeps no limit in the database.
    assert (job.attempts, job.max_attempts) == (0, None)
    assert (await requeue(queue, job)).done
    assert not (await requeue(queue, job)).done
    assert await counts(queue) == {State.PENDING: 1}
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_failed_job_is_run_again(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1")
    engine.work(FAIL)
    job = await only(queue, State.FAILED)
    assert job.error == DECLINED
    assert (await requeue(queue, job)).done
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
    assert engine.rows("SELECT FROM pgqueuer") == []
    assert await counts(queue) == {State.COMPLETED: 1}
    assert [row[0] for row in engine.rows(_LOG)].count("picked") == 1


async def test_of_many_who_requeue_at_once_one_does(engine: Engine, queue: Queue, blank_dsn: str) -> None:
    await only_one_of_many_is_done(queue, blank_dsn, await killed(engine, queue))
