"""chancy: the lease is the heartbeat of the worker's row, and a claim of its own fences each run."""

import pytest

from leasetop.model import Job, Reason, State
from leasetop.queue import Queue
from tests.engines.conftest import MakeEngine
from tests.engines.driver import Engine, Worker
from tests.engines.looking import beats_count, counts, details_agree, only, only_one_of_many_is_done, requeue
from tests.engines.task import DECLINED, FAIL, HANG, LATE, SUCCEED
from tests.waiting import until

pytestmark = pytest.mark.engines

_ROWS = "SELECT * FROM chancy_jobs ORDER BY id"


@pytest.fixture
def engine(make_engine: MakeEngine) -> Engine:
    return make_engine("chancy", "chancy_app.py")


def grow_old(engine: Engine) -> None:
    """As when every running job began, and every worker was last seen, an hour ago."""
    assert engine.change("UPDATE chancy_workers SET last_seen = last_seen - interval '1 hour'")
    assert engine.change("UPDATE chancy_jobs SET started_at = started_at - interval '1 hour' WHERE state = 'running'")


def at_work(engine: Engine, worker: Worker) -> None:
    """Until the worker runs a job and has its own row, which may come after that."""
    worker.wait("begun")
    until(lambda: engine.rows("SELECT FROM chancy_workers"))


async def killed(engine: Engine, queue: Queue) -> Job:
    """The job of a worker that was killed an hour ago."""
    engine.call("enqueue", "1")
    with engine.worker(HANG) as worker:
        at_work(engine, worker)
        worker.kill()
    grow_old(engine)
    return await only(queue, State.STUCK)


async def test_every_state_is_what_real_workers_made_it(engine: Engine, queue: Queue) -> None:
    assert queue.profile.id == "chancy"
    for behaviour in (SUCCEED, FAIL):
        engine.call("enqueue", "1")
        engine.work(behaviour)
    engine.call("enqueue", "2")
    engine.call("enqueue", "1", "3600")
    with engine.worker(HANG) as worker:
        at_work(engine, worker)
        seen = {State.COMPLETED: 1, State.FAILED: 1, State.PENDING: 1, State.SCHEDULED: 1, State.PROCESSING: 1}
        assert await counts(queue) == seen
        await details_agree(queue)
        running = await only(queue, State.PROCESSING)
        assert running.kind is not None and running.kind.endswith("pay")
        assert [(running.owner,)] == engine.rows("SELECT taken_by FROM chancy_jobs WHERE state = 'running'")
        assert running.is_live((await queue.snapshot()).now)
        worker.kill()
    grow_old(engine)
    del seen[State.PROCESSING]
    assert await counts(queue) == {**seen, State.STUCK: 1}


async def test_a_live_worker_keeps_its_job(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1")
    with engine.worker(HANG) as worker:
        at_work(engine, worker)
        job, before = await only(queue, State.PROCESSING), engine.rows(_ROWS)
        assert not (await requeue(queue, job)).done
        assert engine.rows(_ROWS) == before


async def test_a_new_workers_first_job_is_not_stuck_before_its_first_heartbeat(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1")
    with engine.worker(HANG) as worker:
        at_work(engine, worker)
        # chancy starts to fetch jobs and to write heartbeats side by side: the job may come first.
        assert engine.change("DELETE FROM chancy_workers")
        job = await only(queue, State.PROCESSING)
        assert not (await requeue(queue, job)).done


async def test_a_dead_workers_job_is_stuck_and_run_again_once(engine: Engine, queue: Queue) -> None:
    job = await killed(engine, queue)
    assert job.reason is Reason.EXPIRED
    assert job.owner is not None and job.lease_until is not None
    assert job.lease_until < (await queue.snapshot()).now
    # chancy counts an attempt when it ends: the lost one is not counted, but paid for with another.
    assert (job.attempts, job.max_attempts) == (0, 1)
    assert (await requeue(queue, job)).done
    assert not (await requeue(queue, job)).done
    assert await counts(queue) == {State.PENDING: 1}
    assert (await only(queue, State.PENDING)).max_attempts == 2
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_job_stays_stuck_when_the_dead_workers_row_is_gone(engine: Engine, queue: Queue) -> None:
    before = await killed(engine, queue)
    # The table of workers is not logged: a crash of the server empties it.
    engine.change("TRUNCATE chancy_workers")
    job = await only(queue, State.STUCK)
    assert (job.owner, job.lease_until) == (before.owner, None)
    assert (await requeue(queue, job)).done
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_failed_job_is_run_again(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1")
    engine.work(FAIL)
    job = await only(queue, State.FAILED)
    assert job.error == f"RuntimeError: {DECLINED}"
    assert (await requeue(queue, job)).done
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_late_finisher_cannot_end_a_requeued_job(engine: Engine, queue: Queue) -> None:
    assert queue.profile.completion_fenced
    engine.call("enqueue", "1")
    with engine.worker(LATE) as worker:
        at_work(engine, worker)
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
    beat = "UPDATE chancy_workers SET last_seen = now()"
    await beats_count(queue, blank_dsn, job, "SELECT FROM chancy_jobs FOR UPDATE", beat)


async def test_of_many_who_requeue_at_once_one_does(engine: Engine, queue: Queue, blank_dsn: str) -> None:
    await only_one_of_many_is_done(queue, blank_dsn, await killed(engine, queue))
