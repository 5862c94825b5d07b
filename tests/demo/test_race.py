"""The race: reading and then writing does jobs twice; one conditional UPDATE does not."""

import threading

import psycopg

from leasetop import statements
from leasetop.database import Database
from leasetop.demo import race
from leasetop.demo.race import Lane, Racer


def test_two_who_read_before_they_write_take_the_same_job(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as one, psycopg.connect(dsn, autocommit=True) as other:
        one.execute(statements.text("race").encode())
        first, second = one.execute(race._READ).fetchone(), other.execute(race._READ).fetchone()
        assert first == second == (1,)
        for connection in (one, other):
            assert connection.execute(race._THEN_WRITE, {"owner": "w", "id": 1}).rowcount == 1


async def test_a_conditional_lane_does_every_job_exactly_once(dsn: str) -> None:
    database = Database(dsn)
    await race.begin(database)
    with psycopg.connect(dsn) as connection:
        connection.execute("DELETE FROM demo_race_jobs WHERE id > 60")
    racers = [threading.Thread(target=Racer(dsn, Lane.CONDITIONAL).run) for _ in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    standing = {one.lane: one for one in await race.standings(database)}[Lane.CONDITIONAL]
    assert (standing.done, standing.executions, standing.doubled) == (60, 60, 0)
    await database.close()
