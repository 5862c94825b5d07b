"""The trends: figures of the last hour, from a bounded look at the history."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from leasetop import profile, statements
from leasetop.database import Database
from leasetop.errors import Refused
from leasetop.model import Policy
from leasetop.profile import ProfileError
from leasetop.queue import Queue
from tests import world
from tests.queues import open_queue


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as made:
        yield made


@pytest.fixture
async def queue(dsn: str) -> AsyncIterator[Queue]:
    database = Database(dsn)
    yield await open_queue(database)
    await database.close()


def ended(
    connection: psycopg.Connection,
    event: str,
    ago_s: float = 5,
    *,
    job: int = 1,
    owner: str | None = "w/1/a",
    attempt: int = 1,
    times: int = 1,
) -> None:
    """Rows of the history, as if they had been written then; ids grow in the order of the calls."""
    connection.execute(
        """INSERT INTO payment_job_history (job_id, event, attempt, owner, ended_at)
           SELECT %s, %s, %s, %s, clock_timestamp() - %s::interval FROM generate_series(1, %s)""",
        [job, event, attempt, owner, timedelta(seconds=ago_s), times],
    )


async def test_an_empty_history_has_sixty_quiet_minutes(queue: Queue) -> None:
    found = await queue.trends()
    assert len(found.minutes) == 60
    assert {(one.completed, one.failed, one.expired) for one in found.minutes} == {(0, 0, 0)}
    assert found.known_since is None
    assert found.poison == found.noisy == ()


async def test_ends_are_counted_in_their_minute(queue: Queue, connection: psycopg.Connection) -> None:
    ended(connection, "completed", 3700, times=3)
    ended(connection, "completed", 3590, times=4)
    ended(connection, "failed", 90, times=2)
    ended(connection, "expired", 65)
    ended(connection, "completed", 30, times=5)
    ended(connection, "released", 20)
    ended(connection, "late completion refused", 20)
    ended(connection, "completed", -5)
    found = await queue.trends()
    figures = [(one.completed, one.failed, one.expired) for one in found.minutes]
    assert figures[0] == (4, 0, 0)
    assert figures[-2] == (0, 2, 1)
    # What is a moment ahead of the transaction's own time happened now.
    assert figures[-1] == (6, 0, 0)
    assert sum(map(sum, figures)) == 13
    assert timedelta(seconds=59) < found.clock.at - found.minutes[-1].at < timedelta(seconds=61)
    assert {after.at - before.at for before, after in zip(found.minutes, found.minutes[1:], strict=False)} == {
        timedelta(minutes=1)
    }


async def test_the_real_ends_of_attempts_are_in_the_figures(queue: Queue, connection: psycopg.Connection) -> None:
    for _ in range(3):
        world.held(connection, owner="w/1/a", lease_s=-5)
    await queue.sweep(Policy.REQUEUE, "ops@box")
    done = world.held(connection, owner="w/2/b")
    connection.execute(
        statements.load("complete"), {"ids": [done], "attempts": [1], "stages": [None], "owner": "w/2/b"}
    )
    found = await queue.trends()
    assert (found.minutes[-1].completed, found.minutes[-1].expired) == (1, 3)
    assert [(one.owner, one.expired, one.failed, one.completed) for one in found.noisy] == [("w/1/a", 3, 0, 0)]


async def test_a_look_that_ends_before_the_hour_says_since_when_it_knows(
    queue: Queue, connection: psycopg.Connection
) -> None:
    for minutes in range(59, 0, -1):
        ended(connection, "completed", minutes * 60 - 30, times=20)
    found = await queue.trends(look=200)
    assert found.known_since is not None
    assert timedelta(minutes=9) < found.clock.at - found.known_since < timedelta(minutes=11)
    assert all(one.at >= found.known_since for one in found.minutes)
    assert {one.completed for one in found.minutes} == {20}
    assert 8 <= len(found.minutes) <= 10


async def test_a_look_shorter_than_a_minute_shows_what_it_has(queue: Queue, connection: psycopg.Connection) -> None:
    ended(connection, "completed", 10, times=1000)
    found = await queue.trends(look=200)
    assert [one.completed for one in found.minutes] == [200]
    assert found.known_since is not None


async def test_what_is_older_than_the_hour_does_not_end_the_look(queue: Queue, connection: psycopg.Connection) -> None:
    ended(connection, "completed", 7200, times=1000)
    ended(connection, "completed", 1800, times=150)
    found = await queue.trends(look=200)
    assert found.known_since is None
    assert sum(one.completed for one in found.minutes) == 150


async def test_gaps_in_the_ids_hide_nothing(queue: Queue, connection: psycopg.Connection) -> None:
    ended(connection, "completed", 1800, times=30)
    connection.execute("SELECT setval(pg_get_serial_sequence('payment_job_history', 'id'), 500)")
    ended(connection, "failed", 600, times=30)
    found = await queue.trends(look=2000)
    assert sum(one.completed for one in found.minutes) == 30
    assert sum(one.failed for one in found.minutes) == 30


async def test_poison_is_a_job_whose_latest_attempts_all_expired(queue: Queue, connection: psycopg.Connection) -> None:
    for attempt in range(1, 4):
        ended(connection, "expired", 900 - 60 * attempt, job=7, owner=f"w/{attempt}/a", attempt=attempt)
    ended(connection, "requeued", 600, job=7, owner=None, attempt=3)
    ended(connection, "late completion refused", 500, job=7, attempt=3)
    # Once only; healed; failed in between; long ago.
    ended(connection, "expired", 300, job=8)
    ended(connection, "expired", 300, job=9, times=2)
    ended(connection, "completed", 200, job=9, attempt=3)
    ended(connection, "expired", 300, job=10)
    ended(connection, "failed", 250, job=10, attempt=2)
    ended(connection, "expired", 200, job=10, attempt=3)
    found = await queue.trends()
    assert [(one.id, one.attempts, one.owner) for one in found.poison] == [("7", 3, "w/3/a")]
    assert timedelta(seconds=835) < found.clock.at - found.poison[0].since < timedelta(seconds=845)


async def test_an_attempt_lost_before_the_hour_counts_for_a_job_lost_in_it(
    queue: Queue, connection: psycopg.Connection
) -> None:
    ended(connection, "expired", 9000, job=7, times=2)
    ended(connection, "expired", 9000, job=8, times=2)
    ended(connection, "expired", 60, job=7, attempt=3)
    found = await queue.trends()
    assert [(one.id, one.attempts) for one in found.poison] == [("7", 3)]


async def test_the_worst_twenty_are_told(queue: Queue, connection: psycopg.Connection) -> None:
    for job in range(1, 41):
        ended(connection, "expired", 100, job=job, owner=f"w/{job}/a", times=2 + (job > 30))
    found = await queue.trends()
    assert len(found.poison) == len(found.noisy) == 20
    assert {one.id for one in found.poison if one.attempts == 3} == {str(job) for job in range(31, 41)}
    assert [one.expired for one in found.noisy] == [3] * 10 + [2] * 10


async def test_noisy_owners_are_those_that_lose_or_fail(queue: Queue, connection: psycopg.Connection) -> None:
    ended(connection, "expired", 4000, owner="old/1/a", times=50)
    ended(connection, "completed", owner="calm/1/a", times=50)
    ended(connection, "expired", owner=None, times=50)
    ended(connection, "failed", owner="a/1/a", times=2)
    ended(connection, "completed", owner="a/1/a", times=9)
    ended(connection, "expired", owner="b/1/a", times=3)
    ended(connection, "failed", owner="x" * 300)
    found = await queue.trends()
    assert [(one.owner, one.expired, one.failed, one.completed) for one in found.noisy] == [
        ("b/1/a", 3, 0, 0),
        ("a/1/a", 0, 2, 9),
        ("x" * 200, 0, 1, 0),
    ]


async def test_the_look_reads_no_more_than_it_was_told(queue: Queue, connection: psycopg.Connection) -> None:
    connection.execute(
        """INSERT INTO payment_job_history (job_id, event, attempt, owner, ended_at)
           SELECT n, 'completed', 1, 'w', now() - (100000 - n) * interval '30 milliseconds'
             FROM generate_series(1, 100000) AS n"""
    )
    connection.execute("ANALYZE payment_job_history")
    given = {"window": timedelta(hours=1), "look": 5000, "limit": 20, "first": "95000"}
    for name in ("trends", "noisy", "poison"):
        row = connection.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + statements.load(name), given).fetchone()
        assert row is not None
        scans = list(_scans(row[0][0]["Plan"]))
        assert scans
        for scan in scans:
            assert scan["Node Type"] in ("Index Scan", "Index Only Scan"), (name, scan)
            assert scan["Actual Rows"] * scan["Actual Loops"] <= 5001, (name, scan)
    assert len((await queue.trends(look=5000)).minutes) == 2


def _scans(plan: dict[str, object]) -> Iterator[dict[str, object]]:
    if plan.get("Relation Name") == "payment_job_history" and plan["Actual Loops"]:
        yield plan
    for part in plan.get("Plans", []):  # type: ignore[attr-defined]
        yield from _scans(part)


async def test_a_queue_without_history_refuses(queue: Queue) -> None:
    bare = Queue(queue.database, replace(queue.profile, trends=None))
    with pytest.raises(Refused, match="keeps no history"):
        await bare.trends()


async def test_a_profile_may_write_its_trends_out_and_leave_the_tables_away(
    queue: Queue, connection: psycopg.Connection
) -> None:
    ended(connection, "completed", times=2)
    document = {
        **queue.profile.document,
        "trends": {
            "sql": """SELECT now() - interval '1 minute' AS at, count(*) AS completed, 0 AS failed, 0 AS expired,
                             NULL AS first, NULL::timestamptz AS known_since FROM payment_job_history"""
        },
    }
    own = profile.read(document, "own.toml")
    found = await Queue(queue.database, own).trends()
    assert [one.completed for one in found.minutes] == [2]
    assert found.poison == found.noisy == ()


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ({}, r"trends\.sql is missing"),
        ({"statement": "trends", "nosiy": {"statement": "noisy"}}, r"trends\.nosiy is not known"),
        ({"statement": "trends", "noisy": {}}, r"trends\.noisy\.sql is missing"),
    ],
)
def test_a_wrong_section_is_named(section: dict[str, object], complaint: str) -> None:
    document = {**profile.shipped()[0].document, "trends": section}
    with pytest.raises(ProfileError, match=complaint):
        profile.read(document, "own.toml")
