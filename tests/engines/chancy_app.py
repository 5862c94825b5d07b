"""Drives chancy: `install`, `enqueue N [DELAY_S]`, `work BEHAVIOUR`. Runs in chancy's own Python."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta

from chancy import Chancy, Queue, Worker, job
from task import LATE, act_async, say

url, command, *words = sys.argv[1:]
QUEUE = Queue("default", concurrency=1, executor="chancy.executors.asyncex.AsyncExecutor", polling_interval=2)


over = asyncio.Event()


@job(queue="default")
async def pay(*, number: int) -> None:
    await act_async(words[0], number)
    if words[0] == LATE:
        over.set()


async def enqueue(chancy: Chancy, count: int, delay: int) -> None:
    when = datetime.now(UTC) + timedelta(seconds=delay)
    for number in range(count):
        made = await chancy.push(pay.job.with_kwargs(number=number).with_scheduled_at(when))
        say("made", made.identifier)


async def work(chancy: Chancy) -> None:
    async with Worker(chancy, register_signal_handlers=False) as worker:
        # A late finisher ends at once: it would take its own job again, as any worker might.
        while not over.is_set() and await due(chancy):
            await asyncio.sleep(0.02)
        await worker.stop(timeout=5)


async def due(chancy: Chancy) -> bool:
    """Whether there is a job that runs or could."""
    query = (
        "SELECT FROM chancy_jobs WHERE state = 'running' "
        "OR state IN ('pending', 'retrying') AND scheduled_at <= now() AND attempts < max_attempts"
    )
    async with chancy.pool.connection() as connection:
        cursor = await connection.execute(query)
        return bool(await cursor.fetchall())


async def main() -> None:
    async with Chancy(url) as chancy:
        if command == "install":
            await chancy.migrate()
            await chancy.declare(QUEUE)
        elif command == "enqueue":
            await enqueue(chancy, int(words[0]), int(words[1]) if len(words) > 1 else 0)
        elif command == "work":
            await work(chancy)


asyncio.run(main())
