"""The whole story on the real screen: spawn, kill, see it stuck, requeue, sweep, and see all paid exactly once."""

import asyncio
import contextlib
import os
import pty
import select
import sys
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from leasetop.database import Database
from leasetop.demo import shop
from leasetop.demo.fleet import Condition, Fleet, Pace
from leasetop.demo.psp import Provider
from leasetop.model import State
from leasetop.tui.app import LeasetopApp
from leasetop.tui.screens.jobs import JobsScreen
from leasetop.tui.screens.requeue import RequeueDialog
from leasetop.tui.screens.spawn import SpawnDialog
from leasetop.tui.screens.sweep import SweepDialog
from leasetop.tui.screens.workers import WorkersScreen
from leasetop.tui.widgets.jobs import Jobs
from leasetop.tui.widgets.rows import Rows
from tests.demo.chances import set_chances
from tests.queues import open_queue
from tests.waiting import until

# No watcher: in this story the operator sweeps.
PACE = Pace(ttl=timedelta(seconds=2), heartbeat=timedelta(seconds=0.5), backoff=timedelta(seconds=0.1), concurrency=3)
_PATIENCE_S = 60.0


@pytest.fixture
async def fleet(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    """Workers whose provider always answers: who needed a second attempt was killed."""
    set_chances(tmp_path, monkeypatch)
    made = Fleet(dsn, pace=PACE)
    yield made
    await made.close()


@pytest.fixture
async def app(dsn: str, fleet: Fleet) -> AsyncIterator[LeasetopApp]:
    Provider(dsn).prepare()
    database = Database(dsn)
    yield LeasetopApp(
        await open_queue(database),
        actor="ops@box",
        interval=timedelta(seconds=0.1),
        fleet=fleet,
        demo_database=database,
    )
    await database.close()


class Operator:
    """Presses keys, and looks at the screen until it is as expected."""

    def __init__(self, app: LeasetopApp, pilot: Pilot[None]) -> None:
        self._app, self._pilot = app, pilot

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def sees(self, what: str, is_so: Callable[[], object]) -> None:
        """The screen, the fleet and the database live on meanwhile."""
        deadline = time.monotonic() + _PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, f"never seen: {what}"
            await asyncio.sleep(0.02)
            await self._pilot.pause()

    async def sees_screen(self, kind: type) -> None:
        await self.sees(kind.__name__, lambda: isinstance(self._app.screen, kind))

    async def counts(self, state: State, number: int) -> None:
        await self.sees(f"{number} {state}", lambda: self._count(state) == number)

    def _count(self, state: State) -> int | None:
        return None if self._app.snapshot is None else self._app.snapshot.tallies[state].count

    async def spawns(self, number: int) -> None:
        """From the workers screen."""
        await self.press("n")
        await self.sees_screen(SpawnDialog)
        await self.press("backspace", *str(number))
        assert self._app.screen.query_one("#number", Input).value == str(number)
        await self.press("enter")
        await self.sees_screen(WorkersScreen)


async def test_a_crash_is_seen_requeued_swept_and_paid_once(dsn: str, app: LeasetopApp, fleet: Fleet) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        async with app.run_test(size=(140, 40)) as pilot:
            operator = Operator(app, pilot)

            # Spawn one worker, and slow it down: it must not be done before it is killed. It takes three jobs.
            await operator.press("w")
            await operator.sees_screen(WorkersScreen)
            await operator.spawns(1)
            table = app.screen.query_one(Rows)
            await operator.sees("its process", lambda: table.selected is not None and table.selected.member is not None)
            await operator.sees("it running", lambda: fleet.members[0].state is Condition.RUNNING)
            await operator.press("s")
            await operator.sees("it slow", lambda: fleet.members[0].slow > 1)
            shop.enqueue(connection, 6)
            await operator.counts(State.PROCESSING, 3)
            await operator.counts(State.PENDING, 3)

            # Kill it: its leases run out, and the screen says that its jobs are stuck.
            await operator.press("c")
            await operator.sees("the crash", lambda: fleet.members[0].state is Condition.CRASHED)
            left = connection.execute("SELECT id::text FROM payment_jobs WHERE status = 'Processing' ORDER BY id")
            killed = [job for (job,) in left]
            assert len(killed) == 3
            await operator.press("escape")
            await operator.sees_screen(JobsScreen)
            await operator.counts(State.STUCK, 3)
            await operator.press("4")
            jobs = app.screen.query_one(Jobs)
            await operator.sees("the stuck jobs", lambda: sorted(one.id for one in jobs.values) == killed)
            assert all(one.state is State.STUCK for one in jobs.values)

            # Requeue one by hand, with a reason.
            assert jobs.selected is not None
            by_hand = jobs.selected.id
            await operator.press("r")
            await operator.sees_screen(RequeueDialog)
            await operator.press(*"pod died", "enter")
            await operator.sees_screen(JobsScreen)
            await operator.counts(State.STUCK, 2)

            # Sweep the others.
            await operator.press("S")
            await operator.sees_screen(SweepDialog)
            await operator.press("y")
            await operator.sees_screen(JobsScreen)
            await operator.counts(State.STUCK, 0)

            # Two other workers pay them all.
            await operator.press("w")
            await operator.sees_screen(WorkersScreen)
            await operator.spawns(2)
            await operator.sees("two more", lambda: len(fleet.members) == 3)
            for member in fleet.members[1:]:
                await fleet.slow(member, 0.5)
            await operator.press("escape")
            await operator.sees_screen(JobsScreen)
            await operator.counts(State.COMPLETED, 6)
            await operator.press("6")
            await operator.sees("them completed", lambda: {one.state for one in jobs.values} == {State.COMPLETED})

        attempts = dict(connection.execute("SELECT id::text, attempts FROM payment_jobs").fetchall())
        assert attempts == {job: 2 if job in killed else 1 for job in attempts}
        charged = """SELECT count(*), count(DISTINCT c.idempotency_key)
                       FROM demo_psp_charges c JOIN payment_jobs j USING (idempotency_key)"""
        assert connection.execute(charged).fetchone() == (6, 6)
        told = connection.execute(
            """SELECT job_id::text, event, attempt, actor, reason FROM payment_job_history
                WHERE event <> 'completed' ORDER BY job_id, id"""
        ).fetchall()
        assert told == [
            fact
            for job in killed
            for fact in (
                [
                    (job, "expired", 1, "ops@box", "requeued by an operator"),
                    (job, "requeued", 1, "ops@box", "pod died"),
                ]
                if job == by_hand
                else [(job, "expired", 1, "ops@box", "swept: will be tried again")]
            )
        ]
        ends = """SELECT count(*) FROM payment_jobs j WHERE j.attempts <> (
                    SELECT count(*) FROM payment_job_history h WHERE h.job_id = j.id
                       AND h.event IN ('completed', 'failed', 'released', 'expired', 'revoked'))"""
        assert connection.execute(ends).fetchone() == (0,)


def on_a_terminal(dsn: str) -> tuple[int, int, bytes]:
    """The real program on a terminal of its own, once it shows jobs: its pid, the terminal, what it has shown."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-m", "leasetop", "--dsn", dsn])
    shown = b""
    while b"Processing" not in shown:
        shown += os.read(terminal, 65536)
    return pid, terminal, shown


def test_bytes_that_are_no_utf8_are_passed_over(dsn: str) -> None:
    """Line noise, or a terminal of another charset: the keys after it count."""
    pid, terminal, shown = on_a_terminal(dsn)
    os.write(terminal, b"\xff\xe4")

    def ended() -> bool:
        nonlocal shown
        with contextlib.suppress(OSError):
            os.write(terminal, b"q")
            if select.select([terminal], [], [], 0)[0]:
                shown += os.read(terminal, 65536)
        return os.waitpid(pid, os.WNOHANG)[0] == pid

    until(ended, _PATIENCE_S)
    os.close(terminal)
    assert b"Traceback" not in shown and b"UnicodeDecodeError" not in shown


@pytest.mark.parametrize("keys", [b"", b":", b"l"])
def test_a_terminal_that_vanishes_ends_the_screen(dsn: str, keys: bytes) -> None:
    """A closed window, a lost ssh: no signal need come, and nothing can be written any more."""
    pid, terminal, _ = on_a_terminal(dsn)
    if keys:
        os.write(terminal, keys)
        os.read(terminal, 65536)
    os.close(terminal)
    until(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid, _PATIENCE_S)
