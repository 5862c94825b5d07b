"""The one task of every engine's workers; what it does is chosen when the worker starts. Standard library only.

It runs inside the engine's process, and tells the test what happens by lines on standard output: an event, and
whatever the engine calls this job.
"""

import asyncio
import sys
import time

SUCCEED = "succeed"
FAIL = "fail"
HANG = "hang"
LATE = "late"
"""Ends when the test says so, by a line on standard input."""

DECLINED = "the card was declined"


def say(event: str, job: object = "") -> None:
    """Tells the test, on a line of its own: an engine may be in the middle of a line of its log."""
    sys.stdout.write(f"\n{event} {job}\n")
    sys.stdout.flush()


def act(behaviour: str, job: object = "") -> None:
    """One run of the task."""
    say("begun", job)
    if behaviour == FAIL:
        raise RuntimeError(DECLINED)
    if behaviour == HANG:
        time.sleep(3600)
    if behaviour == LATE:
        sys.stdin.readline()
    say("ended", job)


async def act_async(behaviour: str, job: object = "") -> None:
    """One run of the task, for engines whose heartbeats come from the same event loop."""
    say("begun", job)
    if behaviour == FAIL:
        raise RuntimeError(DECLINED)
    if behaviour == HANG:
        await asyncio.sleep(3600)
    if behaviour == LATE:
        await asyncio.to_thread(sys.stdin.readline)
    say("ended", job)
