"""The operators' trace: in the transaction of the act where there is a table for it, else in a file of their own."""

import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import psycopg
import pytest

from leasetop import journal, statements
from leasetop.database import Database
from leasetop.errors import Refused
from leasetop.model import Job, Policy, Snapshot, State, View
from leasetop.queue import Queue
from leasetop.tui.poller import Poller
from tests import world
from tests.queues import open_queue
from tests.screens import still

_TABLE = """
CREATE TABLE payment_jobs (id bigint PRIMARY KEY, status text, lease_owner text, lease_until timestamptz, attempts int);
INSERT INTO payment_jobs SELECT n, 'Processing', 'w' || n, now() - interval '1 hour', 1 FROM generate_series(1, 3) n
"""


@pytest.fixture
def connection(blank_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(blank_dsn, autocommit=True) as made:
        made.execute(_TABLE.encode())
        yield made


@pytest.fixture
async def plain(blank_dsn: str, connection: psycopg.Connection) -> AsyncIterator[Queue]:
    database = Database(blank_dsn)
    yield await open_queue(database)
    await database.close()


async def job(queue: Queue, number: int) -> Job:
    found = (await queue.find_jobs([str(number)]))[str(number)]
    assert found is not None
    return found


def lines() -> list[dict[str, object]]:
    return [json.loads(line) for line in journal.file().read_text().splitlines()] if journal.file().exists() else []


async def test_the_details_name_the_journal_that_acts_go_to(plain: Queue, connection: psycopg.Connection) -> None:
    assert not (await plain.detail(("1",))).journaled
    connection.execute(statements.text("journal").encode())
    assert (await plain.detail(("1",))).journaled


async def test_with_a_table_the_act_and_its_trace_are_one(plain: Queue, connection: psycopg.Connection) -> None:
    connection.execute(statements.text("journal").encode())
    assert (await plain.requeue(await job(plain, 1), "ops@box", "pod died")).done
    row = connection.execute(
        "SELECT actor, queue, act, job, reason, seen->>'owner', done FROM leasetop_journal"
    ).fetchone()
    assert row == ("ops@box", "payment_jobs", "requeue", ["1"], "pod died", "w1", True)
    assert lines() == []
    connection.execute("ALTER TABLE leasetop_journal ADD CHECK (actor <> 'eve')")
    with pytest.raises(Refused, match="check"):
        await plain.requeue(await job(plain, 2), "eve", "x")
    assert (await job(plain, 2)).state is State.STUCK


async def test_where_the_table_may_not_be_written_the_file_is(
    plain: Queue, connection: psycopg.Connection, blank_dsn: str
) -> None:
    connection.execute(statements.text("journal").encode())
    role = f"clerk_{id(plain)}"
    connection.execute(f"CREATE ROLE {role}".encode())
    connection.execute(f"GRANT SELECT, UPDATE ON payment_jobs TO {role}".encode())
    database = Database(f"{blank_dsn} options='-c role={role}'")
    try:
        clerk = Queue(database, plain.profile)
        assert (await clerk.requeue(await job(clerk, 1), "ops@box", "pod died")).done
        (line,) = lines()
        assert (line["act"], line["job"], line["done"]) == ("requeue", ["1"], True)
    finally:
        await database.close()
        connection.execute(f"DROP OWNED BY {role}".encode())
        connection.execute(f"DROP ROLE {role}".encode())


async def test_a_sweep_leaves_a_line_for_each_job(plain: Queue) -> None:
    swept = await plain.sweep(Policy.REQUEUE, "ops@box")
    assert len(swept) == 3
    assert [(line["act"], line["seen"]) for line in lines()] == [
        ("sweep", {"owner": f"w{n}", "attempts": 1}) for n in (1, 2, 3)
    ]


async def test_a_sweep_that_would_leave_no_trace_is_not_made(plain: Queue) -> None:
    journal.file().parent.parent.mkdir(parents=True, exist_ok=True)
    journal.file().parent.write_text("in the way")
    with pytest.raises(Refused, match="would leave no trace"):
        await plain.sweep(Policy.REQUEUE, "ops@box")
    assert (await job(plain, 1)).state is State.STUCK


async def test_what_was_done_is_read_newest_first_and_refusals_with_it(
    plain: Queue, connection: psycopg.Connection
) -> None:
    seen = await job(plain, 1)
    await plain.requeue(seen, "a@box", "in the file")
    connection.execute(statements.text("journal").encode())
    await plain.requeue(seen, "b@box", "twice")
    read = await plain.read_journal()
    assert [(entry.actor, entry.done) for entry in read] == [("b@box", False), ("a@box", True)]
    assert (await plain.read_journal(limit=1))[0].actor == "b@box"


async def test_lines_that_are_none_and_other_databases_are_left_out(plain: Queue) -> None:
    await plain.requeue(await job(plain, 1), "a@box", "x")
    (line,) = lines()
    with journal.file().open("a") as file:
        file.write("no json\n{}\n" + json.dumps(line | {"database": "elsewhere"}) + "\n")
    assert len(await plain.read_journal()) == 1


async def test_the_file_tells_databases_of_one_name_apart_by_their_servers(plain: Queue) -> None:
    await plain.requeue(await job(plain, 1), "a@box", "x")
    (line,) = lines()
    assert line["cluster"] and line["server"]
    elsewhere = [
        {"actor": "another cluster", "cluster": "7"},
        {"actor": "this one by another name", "server": "alias:5432"},
        {"actor": "another server", "cluster": None, "server": "other:5432"},
        {"actor": "written before servers were", "cluster": None, "server": None},
    ]
    with journal.file().open("a") as file:
        file.writelines(json.dumps(line | one) + "\n" for one in elsewhere)
    read = {entry.actor for entry in await plain.read_journal()}
    assert read == {"a@box", "this one by another name", "written before servers were"}


async def test_without_the_systems_identifier_a_server_is_known_by_its_address(
    blank_dsn: str, connection: psycopg.Connection
) -> None:
    role = f"clerk_{blank_dsn.rpartition('dbname=')[2].split()[0]}"
    connection.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    connection.execute(f"CREATE ROLE {role}".encode())
    connection.execute(f"GRANT SELECT, UPDATE ON payment_jobs TO {role}".encode())
    database = Database(f"{blank_dsn} options='-c role={role}'")
    try:
        queue = await open_queue(database)
        assert (await queue.requeue(await job(queue, 1), "a@box", "x")).done
        (line,) = lines()
        assert line["cluster"] is None and line["server"]
        assert len(await queue.read_journal()) == 1
    finally:
        await database.close()
        connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


async def test_a_refused_act_on_the_home_table_is_journaled_as_well(dsn: str) -> None:
    database = Database(dsn)
    queue = await open_queue(database)
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            seen = await job(queue, world.held(connection, lease_s=60))
        assert not (await queue.requeue(seen, "eve@box", "too early")).done
        (entry,) = await queue.read_journal()
        assert (entry.act, entry.actor, entry.done, entry.reason) == ("requeue", "eve@box", False, "too early")
        assert "holds its lease" in entry.result
    finally:
        await database.close()


async def test_on_the_home_table_the_history_is_the_journal(dsn: str) -> None:
    database = Database(dsn)
    queue = await open_queue(database)
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            number = world.held(connection, lease_s=-5)
            await queue.act("park", await job(queue, number), "ops@box", "wait for the bank")
            await queue.act("discard", await job(queue, number), "ops@box", "a duplicate")
            connection.execute(statements.load("sweep"), _sweep())
        read = await queue.read_journal()
        assert [(entry.act, entry.actor, entry.reason) for entry in read] == [
            ("discard", "ops@box", "a duplicate"),
            ("park", "ops@box", "wait for the bank"),
        ]
        assert lines() == []
    finally:
        await database.close()


def _sweep() -> dict[str, object]:
    base = timedelta(seconds=1)
    return {
        **{"ids": None, "attempts": None, "batch": 10, "policy": "requeue", "actor": "watcher/1/a"},
        **{"backoff": base, "backoff_cap": base},
    }


async def test_an_act_that_is_refused_says_what_is_different(dsn: str) -> None:
    database = Database(dsn)
    queue = await open_queue(database)
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            number = world.held(connection)
            live = await job(queue, number)
            refused = await queue.act("discard", live, "ops@box", "x")
            assert not refused.done
            assert "holds its lease for another" in refused.words and "not discarded" in refused.words
            connection.execute("UPDATE payment_jobs SET status = 'Failed', lease_owner = NULL WHERE id = %s", [number])
            refused = await queue.act("discard", live, "ops@box", "x")
            assert "status was Processing, is Failed" in refused.words
    finally:
        await database.close()


def test_a_costly_screen_asks_less_often() -> None:
    poller = Poller(None, timedelta(seconds=1), print, print)  # type: ignore[arg-type]
    assert poller.pace == timedelta(seconds=1)
    for cost in (400, 60, 50):
        poller._costs.append(timedelta(milliseconds=cost))
    # The cheapest of the last three: 50 ms of work every 2.5 s is a fiftieth of a core.
    assert poller.pace == timedelta(seconds=2.5)
    poller._costs.extend([timedelta(seconds=30)] * 3)
    assert poller.pace == timedelta(seconds=60)


async def test_what_a_refresh_cost_is_by_the_server_s_clock(dsn: str) -> None:
    database = Database(dsn)
    try:
        snapshot: Snapshot = await (await open_queue(database)).snapshot(View.ACTIVE)
        assert timedelta() < snapshot.cost <= snapshot.took
        assert snapshot.now > still.NOW
    finally:
        await database.close()
