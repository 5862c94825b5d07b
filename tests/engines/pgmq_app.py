"""Drives pgmq: `install`, `enqueue N [DELAY_S]`, `work BEHAVIOUR` (one message). Runs in pgmq's own Python.

pgmq has queues and no workers; the one here is what its documentation shows: read, do, archive.
"""

import sys

from pgmq import PGMQueue
from pgmq.install import install_pgmq_from_sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from task import act, say

url, command, *words = sys.argv[1:]
# pgmq takes a URL for its host alone; the other form of libpq it passes on as it is.
where = make_conninfo("", **conninfo_to_dict(url))
QUEUE = "pay"
VISIBLE_AFTER_S = 600


def enqueue(client: PGMQueue, count: int, delay: int) -> None:
    for number in range(count):
        say("made", client.send(QUEUE, {"number": number}, delay=delay))


def work(client: PGMQueue, behaviour: str) -> None:
    message = client.read(QUEUE, vt=VISIBLE_AFTER_S)
    if message is not None:
        act(behaviour, message.msg_id)
        say("archived", client.archive(QUEUE, message.msg_id))


def main() -> None:
    if command == "install":
        install_pgmq_from_sql(dsn=where)
    client = PGMQueue(conn_string=where, init_extension=False, pool_size=1)
    if command == "install":
        client.create_queue(QUEUE)
    elif command == "enqueue":
        enqueue(client, int(words[0]), int(words[1]) if len(words) > 1 else 0)
    elif command == "work":
        work(client, words[0])
    client.close()


main()
