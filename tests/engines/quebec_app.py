"""Drives quebec, which works on Solid Queue's tables: `install`, `enqueue N [DELAY_S]`, `work BEHAVIOUR` (one job).

Runs in quebec's own Python.
"""

import sys

import quebec
from task import HANG, act, say

url, command, *words = sys.argv[1:]
# quebec wants a host there, and goes to the one of the query all the same.
engine = quebec.Quebec(url.replace("@/", "@localhost/"), worker_threads=1, quiet_then_exit=True)


@engine.register_job
class Pay(quebec.BaseClass):
    def perform(self, number: int) -> None:
        if words[0] != HANG:
            # Takes no other job, and ends the process after this one.
            engine.quiet()
        act(words[0], self.id)


def enqueue(count: int, delay: int) -> None:
    later = Pay.set(wait=delay) if delay else Pay
    for number in range(count):
        say("made", later.perform_later(number).id)


if command == "install":
    engine.create_tables()
elif command == "enqueue":
    enqueue(int(words[0]), int(words[1]) if len(words) > 1 else 0)
elif command == "work":
    engine.run(spawn=["worker"])
engine.close()
