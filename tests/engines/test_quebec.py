"""Solid Queue's tables, worked on by quebec: a lease is the heartbeat of the process that has claimed the job."""

import pytest

from leasetop.errors import Refused
from leasetop.model import Job, Reason, State
from leasetop.queue import Queue
from tests.engines.conftest import MakeEngine
from tests.engines.driver import Engine
from tests.engines.looking import beats_count, counts, details_agree, only, only_one_of_many_is_done, requeue
from tests.engines.task import DECLINED, FAIL, HANG, LATE, SUCCEED
from tests.waiting import until

pytestmark = pytest.mark.engines

_ROWS = "SELECT * FROM solid_queue_claimed_executions ORDER BY id"


@pytest.fixture
def engine(make_engine: MakeEngine) -> Engine:
    return make_engine("quebec", "quebec_app.py")


def grow_old(engine: Engine) -> None:
    """As when the last heartbeat of every process was an hour ago."""
    assert engine.change("UPDATE solid_queue_processes SET last_heartbeat_at = last_heartbeat_at - interval '1 hour'")


async def killed(engine: Engine, queue: Queue) -> Job:
    """The job of a worker that was killed an hour ago."""
    engine.call("enqueue", "1")
    with engine.worker(HANG) as worker:
        worker.wait("begun")
        worker.kill()
    grow_old(engine)
    return await only(queue, State.STUCK)


async def test_every_state_is_what_real_workers_made_it(engine: Engine, queue: Queue) -> None:
    assert queue.profile.id == "solid-queue"
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
        assert running.kind == "Pay"
        pid = engine.rows("SELECT pid FROM solid_queue_processes")[0][0]
        assert running.owner is not None and str(pid) in running.owner
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
    assert (await requeue(queue, job)).done
    assert not (await requeue(queue, job)).done
    assert await counts(queue) == {State.PENDING: 1}
    assert await counts(queue) == {State.PENDING: 1}
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_job_stays_stuck_when_the_dead_process_row_is_gone(engine: Engine, queue: Queue) -> None:
    await killed(engine, queue)
    engine.change("DELETE FROM solid_queue_processes")
    job = await only(queue, State.STUCK)
    assert job.owner is not None and job.lease_until is None
    assert (await requeue(queue, job)).done
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_worker_that_starts_fails_the_jobs_of_the_dead(engine: Engine, queue: Queue) -> None:
    seen = await killed(engine, queue)
    engine.call("enqueue", "1")
    with engine.worker(HANG) as worker:
        worker.wait("begun")
        until(lambda: engine.rows("SELECT FROM solid_queue_failed_executions"))
        assert await counts(queue) == {State.FAILED: 1, State.PROCESSING: 1}
        # Who saw it stuck comes too late.
        outcome = await requeue(queue, seen)
        assert not outcome.done
    job = await only(queue, State.FAILED)
    assert job.key == seen.key
    assert job.error is not None and "ProcessPrunedError" in job.error


async def test_a_failed_job_is_left_to_the_engines_own_tool(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1")
    engine.work(FAIL)
    job = await only(queue, State.FAILED)
    assert job.error == f"RuntimeError: {DECLINED}"
    # Its counters of executions are inside the arguments, which only the application's framework may write.
    with pytest.raises(Refused, match=f"Job.find\\({job.id}\\).retry"):
        await requeue(queue, job)
    assert await counts(queue) == {State.FAILED: 1}


async def test_a_late_finisher_cannot_end_a_requeued_job(engine: Engine, queue: Queue) -> None:
    assert queue.profile.completion_fenced
    engine.call("enqueue", "1")
    with engine.worker(LATE) as worker:
        worker.wait("begun")
        worker.freeze()
        grow_old(engine)
        assert (await requeue(queue, await only(queue, State.STUCK))).done
        worker.go_on()
        worker.thaw()
        worker.wait("ended")
        worker.end()
    assert await counts(queue) == {State.PENDING: 1}
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_heartbeat_made_meanwhile_counts(engine: Engine, queue: Queue, blank_dsn: str) -> None:
    job = await killed(engine, queue)
    beat = """UPDATE solid_queue_processes SET last_heartbeat_at = timezone('UTC', now())
               WHERE id = (SELECT process_id FROM solid_queue_claimed_executions)"""
    await beats_count(queue, blank_dsn, job, "SELECT FROM solid_queue_claimed_executions FOR UPDATE", beat)


async def test_of_many_who_requeue_at_once_one_does(engine: Engine, queue: Queue, blank_dsn: str) -> None:
    await only_one_of_many_is_done(queue, blank_dsn, await killed(engine, queue))
