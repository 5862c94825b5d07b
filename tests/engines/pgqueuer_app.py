"""Drives pgqueuer: `install`, `enqueue N [DELAY_S]`, `work BEHAVIOUR`. Runs in pgqueuer's own Python."""

import asyncio
import sys
from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.types import QueueExecutionMode
from task import act_async, say

url, command, *words = sys.argv[1:]


async def enqueue(queries: Queries, count: int, delay: int) -> None:
    for number in range(count):
        made = await queries.enqueue("pay", str(number).encode(), execute_after=timedelta(seconds=delay))
        say("made", made[0])


async def work(connection: asyncpg.Connection, behaviour: str) -> None:
    engine = PgQueuer(AsyncpgDriver(connection))

    # `hold` keeps failed jobs in the table; the default deletes them.
    @engine.entrypoint("pay", concurrency_limit=1, on_failure="hold")
    async def pay(job: Job) -> None:
        await act_async(behaviour, job.id)

    # The command `pgq run` does the same, but does not start with the typer that it asks for.
    await engine.run(batch_size=1, mode=QueueExecutionMode.drain, dequeue_timeout=timedelta(seconds=1))


async def main() -> None:
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    if command == "install":
        await queries.install()
    elif command == "enqueue":
        await enqueue(queries, int(words[0]), int(words[1]) if len(words) > 1 else 0)
    elif command == "work":
        await work(connection, words[0])


asyncio.run(main())
