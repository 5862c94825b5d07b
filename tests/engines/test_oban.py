"""oban for Python: the lease is the heartbeat of the producer's row, and the instant of the claim fences each run."""

import pytest

from leasetop.model import Job, Reason, State
from leasetop.queue import Queue
from tests.engines.conftest import MakeEngine
from tests.engines.driver import Engine
from tests.engines.looking import counts, details_agree, only, only_one_of_many_is_done, requeue
from tests.engines.task import DECLINED, FAIL, HANG, LATE, SUCCEED
from tests.waiting import until

pytestmark = pytest.mark.engines

_ROWS = "SELECT * FROM oban_jobs ORDER BY id"
_ALL_BEAT = "SELECT bool_and(updated_at > timezone('UTC', now()) - interval '1 minute') FROM oban_producers"


@pytest.fixture
def engine(make_engine: MakeEngine) -> Engine:
    return make_engine("oban", "oban_app.py")


def claims_grow_old(engine: Engine) -> None:
    """As when every running job began an hour ago."""
    assert engine.change(
        "UPDATE oban_jobs SET attempted_at = attempted_at - interval '1 hour' WHERE state = 'executing'"
    )


def grow_old(engine: Engine) -> None:
    """As when every running job began, and every producer was last seen, an hour ago."""
    assert engine.change("UPDATE oban_producers SET updated_at = updated_at - interval '1 hour'")
    claims_grow_old(engine)


async def killed(engine: Engine, queue: Queue) -> Job:
    """The job of a worker that was killed an hour ago."""
    engine.call("enqueue", "1")
    with engine.worker(HANG) as worker:
        worker.wait("begun")
        worker.kill()
    grow_old(engine)
    return await only(queue, State.STUCK)


async def test_every_state_is_what_real_workers_made_it(engine: Engine, queue: Queue) -> None:
    assert queue.profile.id == "oban-py"
    engine.call("enqueue", "1")
    engine.work(SUCCEED)
    # The one has no attempt left, the other is to be retried in an hour.
    for attempts in ("1", "20"):
        engine.call("enqueue", "1", "0", attempts)
        engine.work(FAIL)
    assert engine.rows("SELECT state::text FROM oban_jobs ORDER BY id")[1:] == [("discarded",), ("retryable",)]
    engine.call("cancel", engine.call("enqueue", "1").split()[1])
    engine.call("enqueue", "2")
    engine.call("enqueue", "1", "3600")
    with engine.worker(HANG) as worker:
        worker.wait("begun")
        seen = {
            State.COMPLETED: 1,
            State.FAILED: 1,
            State.CANCELLED: 1,
            State.PENDING: 1,
            State.SCHEDULED: 2,
            State.PROCESSING: 1,
        }
        assert await counts(queue) == seen
        await details_agree(queue)
        running = await only(queue, State.PROCESSING)
        assert running.kind is not None and running.kind.endswith("Pay")
        assert [(running.owner,)] == engine.rows("SELECT node FROM oban_producers")
        assert running.is_live((await queue.snapshot()).now)
        worker.kill()
    grow_old(engine)
    del seen[State.PROCESSING]
    assert await counts(queue) == {**seen, State.STUCK: 1}


async def test_a_live_worker_keeps_its_job(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1")
    with engine.worker(HANG) as worker:
        worker.wait("begun")
        # However long it takes: the producer beats.
        claims_grow_old(engine)
        job, before = await only(queue, State.PROCESSING), engine.rows(_ROWS)
        assert not (await requeue(queue, job)).done
        assert engine.rows(_ROWS) == before


async def test_a_worker_that_comes_back_keeps_its_job(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1")
    with engine.worker(HANG) as worker:
        worker.wait("begun")
        worker.freeze()
        grow_old(engine)
        job, before = await only(queue, State.STUCK), engine.rows(_ROWS)
        worker.thaw()
        until(lambda: engine.rows(_ALL_BEAT) == [(True,)])
        assert not (await requeue(queue, job)).done
        assert engine.rows(_ROWS) == before
        assert await counts(queue) == {State.PROCESSING: 1}


async def test_a_live_producers_row_that_is_lost_comes_back(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1")
    with engine.worker(HANG) as worker:
        worker.wait("begun")
        worker.freeze()
        # The table of producers is not logged: a crash of the server empties it.
        engine.change("TRUNCATE oban_producers")
        job = await only(queue, State.PROCESSING)
        assert not (await requeue(queue, job)).done
        claims_grow_old(engine)
        assert (await only(queue, State.STUCK)).reason is Reason.GONE
        worker.thaw()
        until(lambda: engine.rows(_ALL_BEAT) == [(True,)])
        assert await counts(queue) == {State.PROCESSING: 1}


async def test_a_dead_workers_job_is_stuck_and_run_again_once(engine: Engine, queue: Queue) -> None:
    job = await killed(engine, queue)
    assert job.reason is Reason.EXPIRED
    assert job.owner is not None and job.lease_until is not None
    assert job.lease_until < (await queue.snapshot()).now
    # oban counts an attempt when it begins, and discards what waits with none left.
    assert (job.attempts, job.max_attempts) == (1, 1)
    assert (await requeue(queue, job)).done
    assert not (await requeue(queue, job)).done
    assert await counts(queue) == {State.PENDING: 1}
    assert (await only(queue, State.PENDING)).max_attempts == 2
    assert engine.rows("SELECT meta->>'rescued' FROM oban_jobs") == [("1",)]
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_job_stays_stuck_when_the_dead_producers_row_is_gone(engine: Engine, queue: Queue) -> None:
    before = await killed(engine, queue)
    # The dead worker may be the leader still, for half a minute.
    engine.change("DELETE FROM oban_leaders")
    with engine.worker(HANG):
        # The leader clears away what has not beaten for a minute, and makes nothing of its jobs.
        until(lambda: engine.rows(_ALL_BEAT) == [(True,)])
        job = await only(queue, State.STUCK)
        assert (job.reason, job.owner, job.lease_until) == (Reason.GONE, before.owner, None)
    assert (await requeue(queue, job)).done
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_failed_job_is_run_again(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1")
    engine.work(FAIL)
    job = await only(queue, State.FAILED)
    assert job.error == f"RuntimeError: {DECLINED}"
    (failure,) = (await queue.detail(job.key)).history or ()
    assert failure.attempt == 1
    # The history has the traceback whole.
    assert failure.error is not None and failure.error.startswith("Traceback") and DECLINED in failure.error
    assert (await requeue(queue, job)).done
    assert not (await requeue(queue, job)).done
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_late_finisher_cannot_end_a_requeued_job(engine: Engine, queue: Queue) -> None:
    assert queue.profile.completion_fenced
    engine.call("enqueue", "1")
    with engine.worker(LATE) as worker:
        worker.wait("begun")
        worker.freeze()
        claimed = engine.rows("SELECT attempted_at FROM oban_jobs")
        grow_old(engine)
        assert (await requeue(queue, await only(queue, State.STUCK))).done
        # The claim is again what the worker knows of it.
        assert engine.change("UPDATE oban_jobs SET attempted_at = attempted_at + interval '1 hour'")
        assert engine.rows("SELECT attempted_at FROM oban_jobs") == claimed
        worker.go_on()
        worker.thaw()
        worker.wait("ended")
        worker.end()
    assert await counts(queue) == {State.PENDING: 1}
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_late_finisher_cannot_end_anothers_run(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1")
    with engine.worker(LATE) as late:
        late.wait("begun")
        late.freeze()
        grow_old(engine)
        assert (await requeue(queue, await only(queue, State.STUCK))).done
        with engine.worker(HANG) as other:
            other.wait("begun")
            before = engine.rows(_ROWS)
            late.go_on()
            late.thaw()
            late.wait("ended")
            late.end()
            assert engine.rows(_ROWS) == before
            assert await counts(queue) == {State.PROCESSING: 1}


async def test_of_many_who_requeue_at_once_one_does(engine: Engine, queue: Queue, blank_dsn: str) -> None:
    await only_one_of_many_is_done(queue, blank_dsn, await killed(engine, queue))
