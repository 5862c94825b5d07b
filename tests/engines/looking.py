"""What an operator sees of a queue, in the few words that the tests need."""

import asyncio

import psycopg
import pytest
from psycopg import sql

from leasetop.database import Database
from leasetop.errors import Refused
from leasetop.model import Job, Outcome, State, View
from leasetop.queue import Queue
from tests.waiting import until


async def counts(queue: Queue) -> dict[State, int]:
    """How many jobs are in each state that has any."""
    snapshot = await queue.snapshot(View.ALL)
    return {state: tally.count for state, tally in snapshot.tallies.items() if tally.count}


async def only(queue: Queue, state: State) -> Job:
    """The one job in that state."""
    snapshot = await queue.snapshot(View.ALL)
    (job,) = [job for job in snapshot.jobs if job.state is state]
    return job


async def requeue(queue: Queue, job: Job) -> Outcome:
    """The operator's act."""
    return await queue.requeue(job, actor="ops", reason="worker is gone")


def execute(dsn: str, statement: str) -> int:
    """Changes rows behind everybody's back; how many it met."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(statement.encode()).rowcount


def rows(dsn: str, *table: str) -> list[str]:
    """All rows of a table, whole, to see whether anything changed."""
    query = sql.SQL("SELECT t::text FROM {} t ORDER BY 1").format(sql.Identifier(*table))
    with psycopg.connect(dsn) as connection:
        return [row[0] for row in connection.execute(query)]


async def details_agree(queue: Queue) -> None:
    """Each job, asked for by its key, is what the list shows, with its history where there is one."""
    for job in (await queue.snapshot(View.ALL)).jobs:
        detail = await queue.detail(job.key)
        assert detail.job is not None
        assert (detail.job.key, detail.job.state, detail.job.owner) == (job.key, job.state, job.owner)
        assert (detail.history is None) == (queue.profile.history is None)


async def beats_count(queue: Queue, dsn: str, job: Job, held: str, beat: str) -> None:
    """A heartbeat that is made while the act waits for the job's row counts; one that is under way is not overtaken.

    `held` locks the job's row and changes nothing; `beat` is the heartbeat.
    """
    with psycopg.connect(dsn) as worker:
        worker.execute(beat.encode())
        with pytest.raises(Refused, match="55P03"):
            await requeue(queue, job)
        worker.rollback()
        worker.execute(held.encode())
        act = asyncio.create_task(requeue(queue, job))
        with psycopg.connect(dsn, autocommit=True) as other:
            waiting = "SELECT FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
            await asyncio.to_thread(until, lambda: other.execute(waiting, [worker.info.backend_pid]).fetchall())
            assert other.execute(beat.encode()).rowcount == 1
        worker.rollback()
        outcome = await act
    assert not outcome.done, outcome.words
    assert "a live lease is not requeued" in outcome.words


async def only_one_of_many_is_done(queue: Queue, dsn: str, job: Job) -> None:
    """Ten operators who saw the same requeue it at the same time."""
    databases = [Database(dsn) for _ in range(10)]
    try:
        acts = (requeue(Queue(database, queue.profile), job) for database in databases)
        outcomes = await asyncio.gather(*acts, return_exceptions=True)
    finally:
        for database in databases:
            await database.close()
    # Who meets the lock of another's act may be told to look again.
    assert all(isinstance(outcome, Outcome | Refused) for outcome in outcomes), outcomes
    assert [isinstance(outcome, Outcome) and outcome.done for outcome in outcomes].count(True) == 1


async def act(queue: Queue, name: str, job: Job) -> Outcome:
    """Another act of the operator's."""
    return await queue.act(name, job, "ops", "asked for")


async def acts_only_on_what_waits(queue: Queue, name: str, waits: frozenset[State], becomes: State) -> None:
    """An act on each job there is: those that wait become what they should, and no other row is touched."""
    before = {job.id: job for job in (await queue.snapshot(View.ALL)).jobs}
    assert {job.state for job in before.values()} > waits, "the world has others, too"
    for id_, job in before.items():
        outcome = await act(queue, name, job)
        assert outcome.done == (job.state in waits), outcome.words
        (now,) = [one for one in (await queue.snapshot(View.ALL)).jobs if one.id == id_]
        assert now.state is (becomes if outcome.done else job.state)
        if outcome.done:
            assert not (await act(queue, name, job)).done
        else:
            assert now == job
