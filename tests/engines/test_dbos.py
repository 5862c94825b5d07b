"""DBOS: no lease and no heartbeat; only its own tool resumes a workflow, and a transaction id fences each execution."""

import pytest

from leasetop.errors import Refused
from leasetop.model import Evidence, Job, Reason, State
from leasetop.queue import Queue
from tests.engines.conftest import MakeEngine
from tests.engines.driver import Engine
from tests.engines.looking import counts, details_agree, only, requeue
from tests.engines.task import FAIL, HANG, LATE, SUCCEED

pytestmark = pytest.mark.engines

_ROWS = "SELECT * FROM dbos.workflow_status ORDER BY workflow_uuid"


@pytest.fixture
def engine(make_engine: MakeEngine) -> Engine:
    return make_engine("dbos", "dbos_app.py")


def grow_old(engine: Engine) -> None:
    """As when every workflow that runs began a day ago."""
    assert engine.change(
        "UPDATE dbos.workflow_status SET started_at_epoch_ms = started_at_epoch_ms - 86400000 WHERE status = 'PENDING'"
    )


async def killed(engine: Engine, queue: Queue) -> Job:
    """The workflow of an executor that was killed a day ago."""
    engine.call("enqueue", "1")
    with engine.worker(HANG) as worker:
        worker.wait("begun")
        worker.kill()
    grow_old(engine)
    return await only(queue, State.STUCK)


async def test_every_state_is_what_real_workers_made_it(engine: Engine, queue: Queue) -> None:
    assert queue.profile.id == "dbos"
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
        assert (running.kind, running.owner, running.lease_until) == ("pay", "executor-hang", None)
        worker.kill()
    grow_old(engine)
    del seen[State.PROCESSING]
    assert await counts(queue) == {**seen, State.STUCK: 1}


@pytest.mark.parametrize("old", [False, True])
async def test_leasetop_only_gives_the_command_of_dbos(engine: Engine, queue: Queue, old: bool) -> None:
    engine.call("enqueue", "1")
    with engine.worker(HANG) as worker:
        worker.wait("begun")
        if old:
            grow_old(engine)
        job, before = await only(queue, State.STUCK if old else State.PROCESSING), engine.rows(_ROWS)
        with pytest.raises(Refused, match=f"dbos workflow resume {job.id}"):
            await requeue(queue, job)
        assert engine.rows(_ROWS) == before


async def test_a_dead_executors_workflow_is_stuck_by_age_until_it_is_resumed(engine: Engine, queue: Queue) -> None:
    job = await killed(engine, queue)
    assert (job.reason, job.owner, job.lease_until) == (Reason.AGE, "executor-hang", None)
    assert queue.profile.evidence is Evidence.AGE
    engine.call("resume", job.id)
    assert await counts(queue) == {State.PENDING: 1}
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_failed_workflow_is_left_to_dbos(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1")
    engine.work(FAIL)
    job = await only(queue, State.FAILED)
    with pytest.raises(Refused, match=f"dbos workflow fork {job.id}"):
        await requeue(queue, job)
    assert await counts(queue) == {State.FAILED: 1}


async def test_a_late_finisher_cannot_end_a_resumed_workflow(engine: Engine, queue: Queue) -> None:
    assert queue.profile.completion_fenced
    engine.call("enqueue", "1")
    with engine.worker(LATE) as worker:
        worker.wait("begun")
        # Frozen, it cannot take its own workflow again.
        worker.freeze()
        grow_old(engine)
        job = await only(queue, State.STUCK)
        engine.call("resume", job.id)
        engine.work(SUCCEED)
        before = engine.rows(_ROWS)
        worker.go_on()
        worker.thaw()
        worker.wait("ended")
        worker.end()
    assert engine.rows(_ROWS) == before
