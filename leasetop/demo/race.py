"""The race, shown: two workers that read and then write, against two that claim by one conditional UPDATE.

Both lanes have the same jobs. A naive worker asks for the first Pending job, and then takes it: between the two
statements another worker may have asked, too, and the job is done twice. A conditional worker takes what is still
Pending in one statement; who comes second changes zero rows and goes on. All of them are real processes.
"""

import logging
import os
import threading
import time
from dataclasses import dataclass
from enum import StrEnum

import psycopg
from psycopg.rows import dict_row

from leasetop import statements
from leasetop.database import Database, connect, in_words

LOG = logging.getLogger("leasetop.demo.race")

# What a payment takes here; the gap between reading and writing is as long as the network and the code make it.
_WORK_S = 0.004

_READ = b"SELECT id FROM demo_race_jobs WHERE lane = 'naive' AND status = 'Pending' ORDER BY id LIMIT 1"
_THEN_WRITE = b"UPDATE demo_race_jobs SET status = 'Processing', owner = %(owner)s WHERE lane = 'naive' AND id = %(id)s"
_CLAIM = b"""
    WITH candidate AS MATERIALIZED (
        SELECT id FROM demo_race_jobs WHERE lane = 'conditional' AND status = 'Pending'
         ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
    UPDATE demo_race_jobs j SET status = 'Processing', owner = %(owner)s
      FROM candidate c WHERE j.lane = 'conditional' AND j.id = c.id AND j.status = 'Pending'
    RETURNING j.id
"""
_DONE = b"""
    UPDATE demo_race_jobs SET status = 'Completed', executions = executions + 1, owners = owners || %(owner)s::text
     WHERE lane = %(lane)s AND id = %(id)s
"""


class Lane(StrEnum):
    """How a job is taken."""

    NAIVE = "naive"
    CONDITIONAL = "conditional"


@dataclass(frozen=True, slots=True)
class Standing:
    """One lane, now."""

    lane: Lane
    jobs: int
    done: int
    executions: int
    doubled: int
    latest: tuple[str, ...]
    """The latest jobs that were done more than once, with who did them."""


async def begin(database: Database) -> None:
    """Puts the same jobs into both lanes; whatever was there goes. Raises Unreachable or Refused."""
    async with database.acting() as connection:
        await connection.execute(statements.text("race").encode())


async def standings(database: Database) -> tuple[Standing, ...]:
    """Both lanes. Raises Unreachable or Refused."""
    async with database.reading() as connection, connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statements.load("race_tally"))
        rows = {row["lane"]: row for row in await cursor.fetchall()}
    return tuple(
        Standing(lane, row["jobs"], row["done"], row["executions"], row["doubled"], tuple(row["latest"] or ()))
        for lane in Lane
        if (row := rows.get(lane)) is not None
    )


class Racer:
    """One worker of one lane, until there is nothing left to do."""

    def __init__(self, dsn: str, lane: Lane) -> None:
        self.name = f"{lane}/{os.getpid()}"
        self._dsn, self._lane = dsn, lane
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Ends `run` after the job that it is at."""
        self._stopped.set()

    def run(self) -> None:
        """Until stopped, or until its lane is empty. Raises LeasetopError."""
        done = 0
        try:
            with connect(self._dsn, "leasetop race") as connection:
                while not self._stopped.is_set() and (job := self._take(connection)) is not None:
                    time.sleep(_WORK_S)
                    connection.execute(_DONE, {"lane": self._lane, "id": job, "owner": self.name})
                    done += 1
        except psycopg.Error as error:
            raise in_words(error) from error
        LOG.info("%s did %d payments", self.name, done, extra={"event": "raced"})

    def _take(self, connection: psycopg.Connection) -> int | None:
        me = {"owner": self.name}
        if self._lane is Lane.CONDITIONAL:
            row = connection.execute(_CLAIM, me).fetchone()
            return None if row is None else int(row[0])
        row = connection.execute(_READ).fetchone()
        if row is None:
            return None
        # The gap: whoever reads now is told that the same job is free.
        connection.execute(_THEN_WRITE, me | {"id": row[0]})
        return int(row[0])
