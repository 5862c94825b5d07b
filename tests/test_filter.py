"""The filter line: what it lets through, what it says of itself, and what it refuses."""

from collections.abc import AsyncIterator

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasetop.database import Database
from leasetop.filter import FilterError, exactly, parse
from leasetop.model import View
from leasetop.queue import Queue
from tests import world
from tests.queues import open_queue


@pytest.fixture
async def queue(dsn: str) -> AsyncIterator[Queue]:
    database = Database(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for number in range(1, 4):
            world.put(connection, key=f"order-{number}")
        world.held(connection, owner="pay-7/1/aa")
        world.held(connection, owner="pay-8/1/bb", lease_s=-60)
        world.put(connection, "Failed", attempts=5, key="50% off_%")
        connection.execute("UPDATE payment_jobs SET last_error = 'card declined' WHERE status = 'Failed'")
        connection.execute("UPDATE payment_jobs SET created_at = now() - interval '1 hour' WHERE id IN (1, 6)")
    yield await open_queue(database)
    await database.close()


@pytest.mark.parametrize(
    ("line", "ids"),
    [
        ("", "123456"),
        ("order-2", "2"),
        ("ORDER", "123"),
        ("-order", "456"),
        ("owner:pay", "45"),
        ("owner=pay-7/1/aa", "4"),
        ("owner!=pay-7/1/aa", "12356"),
        ("state:stuck", "5"),
        ("state:expired", "5"),
        ("state:parked", ""),
        ("-state:pending", "456"),
        ("-state:expired", "12346"),
        ("state:stuck -state:expired", ""),
        ("key=order-3", "3"),
        ("has:owner", "45"),
        ("no:owner -state:failed", "123"),
        ("-no:error", "6"),
        ("attempts=max", "6"),
        ("id=3x", ""),
        ("attempts>=5", "6"),
        ("attempts:1", "45"),
        ("age>30m", "16"),
        ("age>30m attempts<5", "1"),
        ("expired>10s", "5"),
        ("left<1h", "45"),
        ("key:%", "6"),
        ("50%", "6"),
        ('"card declined"', "6"),
        ("id=3", "3"),
        ("':x::y %s", "refused"),
        ("what:ever", ""),
        ("state:stuck order", ""),
    ],
)
async def test_it_lets_through_what_it_says(queue: Queue, line: str, ids: str) -> None:
    if ids == "refused":
        with pytest.raises(FilterError, match="quote"):
            parse(line)
        return
    snapshot = await queue.snapshot(View.ALL, chosen=parse(line))
    assert "".join(sorted(job.id for job in snapshot.jobs)) == ids
    # What is counted is the queue, not the filter.
    assert sum(tally.count for tally in snapshot.tallies.values()) == 6


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("state:asleep", "'asleep' is no state"),
        ("attempts>many", "no whole number"),
        ("age>soon", "no span"),
        ("age:10m", "is a span"),
        ("owner>3", "is a text"),
        ("has:money", "which field"),
        ("nothing>3", "'nothing' is no field"),
        ("age>99999999999999999999d", "no span"),
    ],
)
def test_what_it_cannot_understand_it_names(line: str, said: str) -> None:
    with pytest.raises(FilterError, match=said):
        parse(line)


def test_it_explains_itself() -> None:
    assert parse("state:stuck owner:pay-7 -kind=charge attempts>=3 age>10m").explained == (
        "stuck, owner contains 'pay-7', not: kind is 'charge', attempts at least 3, age more than 10m"
    )


@pytest.mark.parametrize(
    ("sort", "descending", "ids"),
    [("id", False, "123456"), ("id", True, "654321"), ("owner", False, "45"), ("try", True, "6"), ("age", True, "16")],
)
async def test_it_is_sorted_by_any_column_both_ways(queue: Queue, sort: str, descending: bool, ids: str) -> None:
    snapshot = await queue.snapshot(View.ALL, sort=sort, descending=descending)
    shown = "".join(job.id for job in snapshot.jobs)
    assert len(shown) == 6
    assert sorted(shown[: len(ids)]) == sorted(ids) if sort == "age" else shown.startswith(ids)


@given(st.text(max_size=40))
def test_no_line_crashes_it(line: str) -> None:
    try:
        made = parse(line)
    except FilterError:
        return
    assert all(":" not in condition.replace("::", "").replace(":f", "") for condition in made.conditions)


@given(st.text(min_size=1, max_size=20).filter(lambda name: name.strip()))
def test_an_owner_s_line_finds_that_owner(name: str) -> None:
    assert parse(exactly("owner", name)).values == {"f0": name}
