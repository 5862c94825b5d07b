"""absurd: a lease in the row, renewed by the task; each attempt is a run of its own, which fences the one before."""

import pytest

from leasetop.model import Job, Reason, State
from leasetop.queue import Queue
from tests.engines.conftest import MakeEngine
from tests.engines.driver import Engine
from tests.engines.looking import counts, details_agree, only, only_one_of_many_is_done, requeue
from tests.engines.task import DECLINED, FAIL, HANG, LATE, SUCCEED

pytestmark = pytest.mark.engines

# The task of absurd_app.py that asks to be woken in an hour: absurd's only way to run something later.
_SLEEP = "sleep"
_ROWS = "SELECT * FROM absurd.r_default ORDER BY run_id"


@pytest.fixture
def engine(make_engine: MakeEngine) -> Engine:
    return make_engine("absurd", "absurd_app.py")


def grow_old(engine: Engine) -> None:
    """As when the lease of every run was over since an hour."""
    assert engine.change(
        "UPDATE absurd.r_default SET claim_expires_at = now() - interval '1 hour' WHERE state = 'running'"
    )


async def killed(engine: Engine, queue: Queue, attempts: int = 2) -> Job:
    """The job of a worker that was killed more than an hour ago."""
    engine.call("enqueue", "1", str(attempts))
    with engine.worker(HANG) as worker:
        worker.wait("begun")
        worker.kill()
    grow_old(engine)
    return await only(queue, State.STUCK)


async def test_every_state_is_what_real_workers_made_it(engine: Engine, queue: Queue) -> None:
    assert queue.profile.id == "absurd"
    for behaviour in (SUCCEED, FAIL, _SLEEP):
        engine.call("enqueue", "1")
        engine.work(behaviour)
    engine.call("enqueue", "2")
    with engine.worker(HANG) as worker:
        worker.wait("begun")
        seen = {State.COMPLETED: 1, State.FAILED: 1, State.PENDING: 1, State.SCHEDULED: 1, State.PROCESSING: 1}
        assert await counts(queue) == seen
        await details_agree(queue)
        running = await only(queue, State.PROCESSING)
        assert (running.kind, running.owner) == ("pay", "worker-hang")
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
    assert (job.reason, job.owner) == (Reason.EXPIRED, "worker-hang")
    assert job.lease_until is not None and job.lease_until < (await queue.snapshot()).now
    assert (job.attempts, job.max_attempts) == (1, 2)
    assert (await requeue(queue, job)).done
    assert not (await requeue(queue, job)).done
    assert await counts(queue) == {State.PENDING: 1}
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_stuck_job_without_an_attempt_left_gets_one_more(engine: Engine, queue: Queue) -> None:
    # fail_run alone would fail the task for good.
    job = await killed(engine, queue, attempts=1)
    assert (await requeue(queue, job)).done
    assert await counts(queue) == {State.PENDING: 1}
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_failed_job_is_run_again(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1")
    engine.work(FAIL)
    job = await only(queue, State.FAILED)
    assert job.error == DECLINED
    assert (await requeue(queue, job)).done
    assert not (await requeue(queue, job)).done
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_late_finisher_cannot_end_a_requeued_job(engine: Engine, queue: Queue) -> None:
    assert queue.profile.completion_fenced
    engine.call("enqueue", "1", "2")
    with engine.worker(LATE) as worker:
        worker.wait("begun")
        grow_old(engine)
        assert (await requeue(queue, await only(queue, State.STUCK))).done
        worker.go_on()
        worker.wait("ended")
        worker.end()
    assert await counts(queue) == {State.PENDING: 1}
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_of_many_who_requeue_at_once_one_does(engine: Engine, queue: Queue, blank_dsn: str) -> None:
    await only_one_of_many_is_done(queue, blank_dsn, await killed(engine, queue))
