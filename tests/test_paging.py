"""Keyset paging: each window begins where the one before ended, whatever is NULL, alike, or comes meanwhile."""

import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import psycopg
import pytest

from leasetop import paging, profile, reading
from leasetop.database import Database
from leasetop.filter import parse
from leasetop.model import Job, State, View
from leasetop.paging import Term
from leasetop.queue import Queue
from tests import world
from tests.queues import open_queue


@pytest.fixture
async def queue(dsn: str) -> AsyncIterator[Queue]:
    database = Database(dsn)
    yield await open_queue(database)
    await database.close()


@pytest.fixture
def hand(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


async def walked(queue: Queue, size: int, **look: object) -> list[Job]:
    """The whole list, window by window."""
    found: list[Job] = []
    after = None
    while True:
        jobs = (await queue.snapshot(View.ALL, limit=size, after=after, **look)).jobs  # type: ignore[arg-type]
        found += jobs
        if len(jobs) < size:
            return found
        after = jobs[-1].place
        assert after is not None


@pytest.fixture
def many(hand: psycopg.Connection) -> None:
    dice = random.Random(7)
    for _ in range(40):
        delay = dice.choice([0.0, 0.0, 100.0, 3600.0])
        world.put(hand, dice.choice(["Pending", "Failed", "Completed", "Stuck"]), delay_s=delay, age_s=60)
        world.held(hand, dice.choice(["a/1/x", "b/1/x"]), lease_s=dice.choice([-5, 20]), stage=dice.choice([None, "x"]))
    # Many alike, and some without.
    hand.execute(b"UPDATE payment_jobs SET created_at = now() - interval '1 min', amount = 7 WHERE id % 3 = 0")
    hand.execute(b"UPDATE payment_jobs SET run_after = date_trunc('hour', run_after) WHERE id % 2 = 0")
    hand.execute(b"UPDATE payment_jobs SET finished_at = date_trunc('hour', finished_at) WHERE id % 4 = 0")


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("sort", [None, *reading.SORTS])
@pytest.mark.parametrize("line", ["", "-owner:b/1", "state:pending age>1s"])
@pytest.mark.usefixtures("many")
async def test_windows_join_to_the_whole_list(queue: Queue, sort: str | None, down: bool, line: str) -> None:
    look = {"chosen": parse(line), "sort": sort, "descending": down}
    whole = (await queue.snapshot(View.ALL, limit=1000, **look)).jobs  # type: ignore[arg-type]
    assert len(whole) > 2
    for size in (1, 7):
        assert [job.id for job in await walked(queue, size, **look)] == [job.id for job in whole]


@pytest.mark.usefixtures("many")
async def test_rows_that_come_before_a_window_do_not_move_it(queue: Queue, hand: psycopg.Connection) -> None:
    first = (await queue.snapshot(View.PENDING, limit=5)).jobs
    rest = (await queue.snapshot(View.PENDING, limit=1000, after=first[-1].place)).jobs
    hand.execute(b"UPDATE payment_jobs SET status = 'Cancelled', finished_at = now() WHERE id = %s", [first[-1].id])
    hand.execute(
        b"""INSERT INTO payment_jobs (idempotency_key, amount, currency, run_after)
            SELECT 'early' || n, 1, 'EUR', '2020-01-01' FROM generate_series(1, 9) n"""
    )
    again = (await queue.snapshot(View.PENDING, limit=1000, after=first[-1].place)).jobs
    assert [job.id for job in again] == [job.id for job in rest]


async def test_a_window_is_found_by_the_index_of_its_order(hand: psycopg.Connection) -> None:
    hand.execute(
        b"""INSERT INTO payment_jobs (idempotency_key, amount, currency, run_after)
            SELECT n::text, 1, 'EUR', now() - n * interval '1 s' FROM generate_series(1, 20000) n"""
    )
    hand.execute(b"ANALYZE payment_jobs")
    (home,) = [one for one in profile.shipped() if one.is_home]
    (arm,) = [one for one in reading.arms(home, View.PENDING.states) if one.state is State.PENDING]
    row = hand.execute(b"SELECT run_after::text, id::text FROM payment_jobs ORDER BY run_after OFFSET 15000 LIMIT 1")
    values = row.fetchone()
    assert values is not None
    (only, _) = paging.after(arm.terms, values)
    text = f"EXPLAIN (ANALYZE, BUFFERS OFF) SELECT j.id {arm.rows} AND ({only}) {arm.order} LIMIT 100"
    for n, value in enumerate(values):
        text = text.replace(f":at{n}", f"'{value}'")
    plan = "\n".join(line for (line,) in hand.execute(text.encode()).fetchall())
    assert "payment_jobs_ready" in plan
    assert "run_after >= '" in plan.split("Index Cond:")[1].split("\n")[0]


@pytest.mark.parametrize(
    ("order", "read"),
    [
        ("j.id", [Term("j.id")]),
        ("j.a DESC, j.id", [Term("j.a", True, True), Term("j.id")]),
        ("coalesce(j.a, 'x, y'), j.b asc NULLS FIRST", [Term("coalesce(j.a, 'x, y')"), Term("j.b", False, True)]),
        ('j."odd, DESC" DESC NULLS LAST', [Term('j."odd, DESC"', True, False)]),
        ("j.a -- by age\n, j.b", [Term("j.a"), Term("j.b")]),
        ("ARRAY[j.a, j.b]", [Term("ARRAY[j.a, j.b]")]),
    ],
)
def test_an_order_is_read_as_it_is_written(order: str, read: list[Term]) -> None:
    known = paging.terms(order, [])
    assert list(known) == read
    assert paging.terms(", ".join(term.written for term in known), []) == known
    assert paging.terms(order, ["j.key"])[-1] == Term("j.key")


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("nulls_first", [False, True])
def test_what_comes_after_a_row_is_what_comes_after_it(hand: psycopg.Connection, down: bool, nulls_first: bool) -> None:
    """All orders of two columns with NULLs, against the server's own sorting."""
    rows = [(a, b) for a in (None, 1, 2) for b in (None, 1, 2)]
    hand.execute(b"CREATE TEMP TABLE t (a int, b int)")
    for one in rows:
        hand.execute(b"INSERT INTO t VALUES (%s, %s)", one)
    for other in (False, True):
        order = (Term("t.a", down, nulls_first), Term("t.b", other, not nulls_first))
        written = ", ".join(term.written for term in order)
        whole = hand.execute(f"SELECT a, b FROM t ORDER BY {written}".encode()).fetchall()
        for n, row in enumerate(whole):
            values = [None if value is None else str(value) for value in row]
            found = []
            for only in paging.after(order, values):
                for at, value in enumerate(values):
                    only = only.replace(f":at{at}", f"{value}")
                found += hand.execute(f"SELECT a, b FROM t WHERE {only} ORDER BY {written}".encode()).fetchall()
            assert found == whole[n + 1 :], (written, row)


async def test_amounts_are_sorted_as_numbers(queue: Queue, hand: psycopg.Connection) -> None:
    for amount in ("255.01", "9", "1000", "127.50"):
        job = world.put(hand)
        hand.execute("UPDATE payment_jobs SET amount = %s WHERE id = %s", [amount, job])
    for down, wanted in ((False, [9, 127.5, 255.01, 1000]), (True, [1000, 255.01, 127.5, 9])):
        jobs = (await queue.snapshot(sort="amount", descending=down)).jobs
        assert [float((job.amount or "").split()[0]) for job in jobs] == wanted


async def test_a_list_without_an_order_has_no_places(queue: Queue, hand: psycopg.Connection) -> None:
    world.put(hand)
    document = {**queue.profile.document, "order": {}}
    unordered = Queue(queue.database, replace(profile.read(document, "x"), title="x"))
    (job,) = (await unordered.snapshot()).jobs
    assert job.place is None
