"""Drives procrastinate: `install`, `enqueue N [DELAY_S]`, `work BEHAVIOUR`. Runs in procrastinate's own Python."""

import asyncio
import sys

import procrastinate
from task import act_async, say

url, command, *words = sys.argv[1:]
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))


@app.task(name="pay", pass_context=True)
async def pay(context: procrastinate.JobContext, number: int) -> None:
    await act_async(words[0], context.job.id)


async def enqueue(count: int, delay: int) -> None:
    when = {"seconds": delay} if delay else None
    for number in range(count):
        say("made", await pay.configure(schedule_in=when).defer_async(number=number))


async def work() -> None:
    await app.run_worker_async(concurrency=1, wait=False, install_signal_handlers=False)


async def main() -> None:
    async with app.open_async():
        if command == "install":
            await app.schema_manager.apply_schema_async()
        elif command == "enqueue":
            await enqueue(int(words[0]), int(words[1]) if len(words) > 1 else 0)
        elif command == "work":
            await work()


asyncio.run(main())
