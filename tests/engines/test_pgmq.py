"""pgmq: a lease is the time when a message is visible again; then anybody takes it, and nobody has to rescue it."""

import pytest

from leasetop.errors import Refused
from leasetop.model import State
from leasetop.queue import Queue
from tests.engines.conftest import MakeEngine
from tests.engines.driver import Engine
from tests.engines.looking import counts, details_agree, only, requeue
from tests.engines.task import HANG, LATE, SUCCEED

pytestmark = pytest.mark.engines

_ROWS = "SELECT * FROM pgmq.q_pay ORDER BY msg_id"


@pytest.fixture
def engine(make_engine: MakeEngine) -> Engine:
    return make_engine("pgmq", "pgmq_app.py")


def grow_old(engine: Engine) -> None:
    """As when every message that somebody has read should have been done an hour ago."""
    assert engine.change("UPDATE pgmq.q_pay SET vt = now() - interval '1 hour' WHERE read_ct > 0")


async def test_every_state_is_what_a_real_client_made_it(engine: Engine, queue: Queue) -> None:
    assert queue.profile.id == "pgmq"
    engine.call("enqueue", "1")
    engine.work(SUCCEED)
    engine.call("enqueue", "2")
    engine.call("enqueue", "1", "3600")
    with engine.worker(HANG) as worker:
        number = worker.wait("begun")
        # pgmq has no state for failed jobs: there is no such count, not even a zero.
        snapshot = await queue.snapshot()
        assert not {State.FAILED, State.STUCK, State.CANCELLED} & snapshot.tallies.keys()
        assert await counts(queue) == {
            State.COMPLETED: 1,
            State.PENDING: 1,
            State.SCHEDULED: 1,
            State.PROCESSING: 1,
        }
        await details_agree(queue)
        running = await only(queue, State.PROCESSING)
        assert running.key[-1] == number
        # Who read it is recorded nowhere.
        assert (running.owner, running.attempts, running.max_attempts) == (None, 1, None)
        assert running.is_live(snapshot.now)


async def test_a_live_lease_is_refused(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1")
    with engine.worker(HANG) as worker:
        worker.wait("begun")
        job, before = await only(queue, State.PROCESSING), engine.rows(_ROWS)
        with pytest.raises(Refused):
            await requeue(queue, job)
        assert engine.rows(_ROWS) == before


async def test_a_dead_clients_message_is_pending_by_itself(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1")
    with engine.worker(HANG) as worker:
        worker.wait("begun")
        worker.kill()
    grow_old(engine)
    job = await only(queue, State.PENDING)
    assert (job.lease_until, job.attempts) == (None, 1)
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}
    assert (await only(queue, State.COMPLETED)).attempts == 2


async def test_a_late_finisher_archives_the_message_of_another(engine: Engine, queue: Queue) -> None:
    assert not queue.profile.completion_fenced
    engine.call("enqueue", "1")
    with engine.worker(LATE) as late:
        late.wait("begun")
        grow_old(engine)
        with engine.worker(HANG) as other:
            other.wait("begun")
            assert (await only(queue, State.PROCESSING)).attempts == 2
            late.go_on()
            assert late.wait("archived") == "True"
            late.end()
            assert await counts(queue) == {State.COMPLETED: 1}
