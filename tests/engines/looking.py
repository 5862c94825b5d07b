"""What an operator sees of a queue, in the few words that the tests need."""

import psycopg
from psycopg import sql

from leasetop.model import Job, Outcome, State, View
from leasetop.queue import Queue


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
