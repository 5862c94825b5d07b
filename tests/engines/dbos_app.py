"""Drives DBOS: `install`, `enqueue N [DELAY_S]`, `work BEHAVIOUR` (one workflow), `resume ID`.

Runs in DBOS's own Python.
"""

import sys
import threading

from dbos import DBOS, DBOSClient
from task import act, say

url, command, *words = sys.argv[1:]
QUEUE = "pay"
VERSION = "1"
over = threading.Event()


@DBOS.workflow(name="pay")
def pay(number: int) -> None:
    try:
        act(words[0], DBOS.workflow_id)
    finally:
        over.set()


def launch(executor: str) -> None:
    DBOS(
        config={
            "name": "pay",
            "system_database_url": url,
            "executor_id": executor,
            "application_version": VERSION,
            "log_level": "ERROR",
        }
    )
    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=1, polling_interval_sec=0.1)


def enqueue(client: DBOSClient, count: int, delay: int) -> None:
    for number in range(count):
        options = {"workflow_name": "pay", "queue_name": QUEUE, "app_version": VERSION}
        if delay:
            options["delay_seconds"] = delay
        say("made", client.enqueue(options, number).workflow_id)


def work(behaviour: str) -> None:
    launch(f"executor-{behaviour}")
    over.wait()
    # Waits until the end of the workflow is written; nothing else is begun.
    DBOS.destroy(workflow_completion_timeout_sec=10)


if command == "install":
    launch("installer")
    DBOS.destroy()
elif command == "enqueue":
    enqueue(DBOSClient(system_database_url=url), int(words[0]), int(words[1]) if len(words) > 1 else 0)
elif command == "resume":
    DBOSClient(system_database_url=url).resume_workflow(words[0])
elif command == "work":
    work(words[0])
