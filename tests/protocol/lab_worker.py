"""A worker of the crash lab, run as a process: `python -m tests.protocol.lab_worker DSN`.

Its work is one row in the table `effects`, written in one statement that states the lease token: the way in which work
whose effect lies in the same database is fenced. Before that it notes the call, as a provider outside would see it.
"""

import random
import sys
import threading
import time
from datetime import timedelta

import psycopg

from leasetop.worker import ClaimedJob, Settings, Worker

TTL = timedelta(seconds=1.2)

_CALL = b"INSERT INTO calls (job_id, owner, attempt) VALUES (%s, %s, %s)"
_EFFECT = b"""
    INSERT INTO effects (job_id, owner, attempt)
    SELECT id, lease_owner, attempts FROM payment_jobs
     WHERE id = %s AND status = 'Processing' AND lease_owner = %s AND attempts = %s
       FOR UPDATE
"""


def main(dsn: str) -> None:
    """Until SIGTERM."""
    lines = threading.local()

    def work(job: ClaimedJob) -> None:
        line: psycopg.Connection | None = getattr(lines, "line", None)
        if line is None or line.closed:
            line = lines.line = psycopg.connect(dsn, autocommit=True)
        token = [job.id, *job.token]
        job.reached("call")
        line.execute(_CALL, token)
        time.sleep(random.uniform(0.0, 0.05))
        if line.execute(_EFFECT, token).rowcount != 1:
            raise RuntimeError("the effect was refused: the lease had passed on")

    settings = Settings(
        name="lab",
        concurrency=3,
        batch=3,
        ttl=TTL,
        heartbeat=TTL / 5,
        backoff=timedelta(milliseconds=20),
        backoff_cap=timedelta(milliseconds=200),
        poll=timedelta(milliseconds=50),
        drain=timedelta(seconds=2),
    )
    worker = Worker(dsn, work, settings)
    worker.stop_on_signals()
    worker.run()


if __name__ == "__main__":
    main(sys.argv[1])
