"""The whole story on the real screen: spawn, kill, see it stuck, sweep, requeue, and see all paid exactly once."""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta

import psycopg
from textual.pilot import Pilot
from textual.widgets import Input

from leasetop import queue as queues
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

# No watcher: in this story the operator sweeps.
PACE = Pace(ttl=timedelta(seconds=2), heartbeat=timedelta(seconds=0.4), backoff=timedelta(seconds=0.1), concurrency=2)


async def until(pilot: Pilot[None], is_so: Callable[[], object], seconds: float = 30.0) -> None:
    """The screen, the fleet and the database live on meanwhile."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it never came about"
        await asyncio.sleep(0.02)
        await pilot.pause()


async def test_a_crash_is_seen_swept_requeued_and_paid_once(dsn: str) -> None:
    Provider(dsn).prepare()
    database, fleet = Database(dsn), Fleet(dsn, pace=PACE)
    app = LeasetopApp(
        await queues.find(database),
        actor="ops@box",
        interval=timedelta(seconds=0.1),
        fleet=fleet,
        demo_database=database,
    )
    with psycopg.connect(dsn, autocommit=True) as connection:
        shop.enqueue(connection, 6)
        async with app.run_test(size=(140, 40)) as pilot:

            def count(state: State) -> int:
                return app.snapshot.tallies[state].count if app.snapshot else 0

            # Spawn one worker; it takes two jobs.
            await until(pilot, lambda: count(State.PENDING) == 6)
            await pilot.press("w")
            await until(pilot, lambda: isinstance(app.screen, WorkersScreen))
            await pilot.press("n")
            await until(pilot, lambda: isinstance(app.screen, SpawnDialog))
            app.screen.query_one("#number", Input).value = "1"
            await pilot.press("enter")
            await until(pilot, lambda: count(State.PROCESSING) == 2)

            # Kill it: its leases run out, and the screen says that its jobs are stuck.
            table = app.screen.query_one(Rows)
            await until(pilot, lambda: table.selected is not None and table.selected.member is not None)
            await pilot.press("c")
            await until(pilot, lambda: fleet.members[0].state is Condition.CRASHED)
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(app.screen, JobsScreen))
            await until(pilot, lambda: count(State.STUCK) >= 1)
            await pilot.press("4")
            jobs = app.screen.query_one(Jobs)
            await until(pilot, lambda: jobs.selected is not None and jobs.selected.state is State.STUCK)

            # Requeue one by hand, with a reason.
            requeued = jobs.selected
            assert requeued is not None
            await pilot.press("r")
            await until(pilot, lambda: isinstance(app.screen, RequeueDialog))
            app.screen.query_one("#reason", Input).value = "its worker was killed"
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(app.screen, JobsScreen))
            reasons = (
                "SELECT reason FROM payment_job_history WHERE event = 'requeued' AND job_id = %s AND actor = 'ops@box'"
            )
            await until(
                pilot, lambda: connection.execute(reasons, [requeued.id]).fetchall() == [("its worker was killed",)]
            )

            # Sweep what is left.
            left = "SELECT count(*) FROM payment_jobs WHERE status = 'Processing'"
            expired = f"{left} AND lease_until < clock_timestamp()"
            await until(pilot, lambda: connection.execute(expired).fetchone() == connection.execute(left).fetchone())
            if connection.execute(left).fetchone() != (0,):
                await until(pilot, lambda: count(State.STUCK) >= 1)
                await pilot.press("S")
                await until(pilot, lambda: isinstance(app.screen, SweepDialog))
                await pilot.press("y")
                await until(pilot, lambda: isinstance(app.screen, JobsScreen))
            await until(pilot, lambda: connection.execute(left).fetchone() == (0,))

            # Another worker does them all.
            await fleet.spawn(1)
            finished = "SELECT count(*) FROM payment_jobs WHERE status IN ('Completed', 'Failed')"
            await until(pilot, lambda: connection.execute(finished).fetchone() == (6,), seconds=60)
            await until(pilot, lambda: count(State.COMPLETED) + count(State.FAILED) == 6)
        await fleet.close()
        await database.close()

        attempts = connection.execute("SELECT attempts FROM payment_jobs WHERE id = %s", [requeued.id]).fetchone()
        assert attempts is not None
        assert attempts[0] >= 2
        twice = "SELECT count(*) - count(DISTINCT idempotency_key) FROM demo_psp_charges"
        assert connection.execute(twice).fetchone() == (0,)
        ends = """SELECT count(*) FROM payment_jobs j WHERE j.attempts <> (
                    SELECT count(*) FROM payment_job_history h WHERE h.job_id = j.id
                       AND h.event IN ('completed', 'failed', 'released', 'expired', 'revoked'))"""
        assert connection.execute(ends).fetchone() == (0,)
