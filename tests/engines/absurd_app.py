"""Drives absurd: `install`, `enqueue N [MAX_ATTEMPTS]`, `work BEHAVIOUR` (one task). Runs in absurd's own Python."""

import sys

import psycopg
from absurd_sdk import Absurd, TaskContext
from absurdctl import BUNDLED_SCHEMA_SQL
from task import act, say

SLEEP = "sleep"
"""The task asks to be woken in an hour: absurd's only way to run something later."""

url, command, *words = sys.argv[1:]


def install() -> None:
    # What `absurdctl init` and `absurdctl create-queue` do, without the psql that they need.
    with psycopg.connect(url) as connection:
        connection.execute(BUNDLED_SCHEMA_SQL)
        connection.execute("SELECT absurd.create_queue('default')")


def enqueue(client: Absurd, count: int, attempts: int) -> None:
    for number in range(count):
        made = client.spawn("pay", {"number": number}, queue="default", max_attempts=attempts)
        say("made", made["task_id"])


def work(client: Absurd, behaviour: str) -> None:
    @client.register_task("pay")
    def pay(params: dict[str, int], context: TaskContext) -> None:
        if behaviour == SLEEP:
            context.sleep_for("an hour", 3600)
        act(behaviour, context.task_id)

    client.work_batch(worker_id=f"worker-{behaviour}", claim_timeout=600)


def main() -> None:
    if command == "install":
        return install()
    client = Absurd(url)
    if command == "enqueue":
        enqueue(client, int(words[0]), int(words[1]) if len(words) > 1 else 1)
    elif command == "work":
        work(client, words[0])
    client.close()


main()
