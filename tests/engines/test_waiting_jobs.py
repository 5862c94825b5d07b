"""Acts on jobs that wait, for engines whose library has them: a real worker shows what has come of them."""

import pytest

from leasetop.model import State
from leasetop.queue import Queue
from tests.engines.conftest import MakeEngine
from tests.engines.driver import Engine
from tests.engines.looking import act, counts, only
from tests.engines.task import HANG, SUCCEED

pytestmark = pytest.mark.engines


@pytest.fixture(params=["procrastinate", "pgqueuer", "oban"])
def engine(request: pytest.FixtureRequest, make_engine: MakeEngine) -> Engine:
    return make_engine(request.param, f"{request.param}_app.py")


async def test_a_job_that_waits_for_its_time_is_run_now(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1", "3600")
    job = await only(queue, State.SCHEDULED)
    assert (await act(queue, "run_now", job)).done
    assert not (await act(queue, "run_now", job)).done
    engine.work(SUCCEED)
    assert await counts(queue) == {State.COMPLETED: 1}


async def test_a_discarded_job_is_never_run(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1")
    assert (await act(queue, "discard", await only(queue, State.PENDING))).done
    # Some workers wait for something to do.
    engine.call("enqueue", "1")
    engine.work(SUCCEED)
    assert await counts(queue) == {State.CANCELLED: 1, State.COMPLETED: 1}


async def test_a_job_at_work_is_not_discarded(engine: Engine, queue: Queue) -> None:
    engine.call("enqueue", "1")
    with engine.worker(HANG) as worker:
        worker.wait("begun")
        assert not (await act(queue, "discard", await only(queue, State.PROCESSING))).done
        assert await counts(queue) == {State.PROCESSING: 1}
