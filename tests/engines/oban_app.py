"""Drives oban: `install`, `enqueue N [DELAY_S [MAX_ATTEMPTS]]`, `cancel ID`, `work BEHAVIOUR` (one job).

Runs in oban's own Python.
"""

import asyncio
import os
import sys

from oban import Job, Oban, worker
from oban.schema import install
from psycopg_pool import AsyncConnectionPool
from task import HANG, act_async, say

url, command, *words = sys.argv[1:]
NODE = f"node-{os.getpid()}"

over = asyncio.Event()


@worker(queue="default")
class Pay:
    async def process(self, job: Job) -> None:
        if words[0] != HANG:
            # Takes no other job: the one that a late finisher has lost waits for any worker.
            await Oban.get_instance().pause_queue("default", node=NODE)
        try:
            await act_async(words[0], job.id)
        finally:
            over.set()

    def backoff(self, job: Job) -> int:
        return 3600


async def enqueue(oban: Oban, count: int, delay: int = 0, attempts: int = 1) -> None:
    for number in range(count):
        made = Pay.new({"number": number}, scheduled_in=delay or None, max_attempts=attempts)
        say("made", (await oban.enqueue(made)).id)


async def work(pool: AsyncConnectionPool) -> None:
    # Producers beat every 2 s, instead of every 15.
    async with Oban(pool=pool, node=NODE, queues={"default": 1}, refresher={"interval": 2}):
        await over.wait()


async def main() -> None:
    async with AsyncConnectionPool(url, min_size=1, max_size=4) as pool:
        if command == "install":
            await install(pool)
        elif command == "enqueue":
            await enqueue(Oban(pool=pool), *map(int, words))
        elif command == "cancel":
            await Oban(pool=pool).cancel_job(int(words[0]))
        elif command == "work":
            await work(pool)


asyncio.run(main())
