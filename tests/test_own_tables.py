"""Tables of people's own that invite a wrong guess, or a wrong act: each has ended a live lease, or might have."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from textual.widgets import Static

from leasetop import guess, profile
from leasetop.cli import main
from leasetop.database import Database
from leasetop.errors import NoQueue, Refused
from leasetop.model import Job, Policy, Reason, State, View, parsed, written
from leasetop.naming import MappingError
from leasetop.queue import Queue
from leasetop.tui.app import LeasetopApp
from leasetop.tui.screens.requeue import RequeueDialog
from tests.queues import open_queue
from tests.waiting import until

JOBS = "id int PRIMARY KEY, status text DEFAULT 'pending', owner text, lease_until timestamptz"
HELD = "INSERT INTO jobs (id, status, owner, lease_until) VALUES (1, 'running', 'w', now() - interval '1 h')"


@pytest.fixture(autouse=True)
def own_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasetop.journal.file", lambda: tmp_path / "state" / "journal.jsonl")


@pytest.fixture
def hand(blank_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(blank_dsn, autocommit=True) as connection:
        yield connection


def run(hand: psycopg.Connection, *statements: str) -> None:
    for statement in statements:
        hand.execute(statement.encode())


def on_update(hand: psycopg.Connection, body: str, when: str = "BEFORE") -> None:
    """A trigger on the jobs: before or after each update of a row, or at the end of the transaction (DEFERRED)."""
    kind, when, end = (
        ("CONSTRAINT ", "AFTER", "DEFERRABLE INITIALLY DEFERRED") if when == "DEFERRED" else ("", when, "")
    )
    run(
        hand,
        f"CREATE FUNCTION turn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$",
        f"CREATE {kind}TRIGGER turn {when} UPDATE ON jobs {end} FOR EACH ROW EXECUTE FUNCTION turn()",
    )


async def understood(database: Database, **told: str) -> Queue:
    return Queue(database, profile.read((await guess.guess(database, "jobs", told)).document(), "jobs"))


async def the_job(queue: Queue, given: str = "1") -> Job:
    job = (await queue.find_jobs([given]))[given]
    assert job is not None
    return job


# What must be asked.


async def test_a_lease_without_a_zone_is_asked_about(database: Database, hand: psycopg.Connection) -> None:
    run(
        hand,
        "ALTER DATABASE " + hand.info.dbname + " SET timezone = 'America/New_York'",
        "CREATE TABLE jobs (id int PRIMARY KEY, status text, owner text, lease_until timestamp)",
    )
    with psycopg.connect(hand.info.dsn, autocommit=True) as worker:
        run(
            worker,
            "INSERT INTO jobs VALUES (1, 'running', 'w', localtimestamp + interval '5 min')",
            "INSERT INTO jobs VALUES (2, 'pending')",
        )
    with pytest.raises(MappingError, match=r"no time zone is stored in lease_until.*own is America/New_York"):
        await understood(database)
    with pytest.raises(MappingError, match="knows no such zone"):
        await understood(database, time_zone="Mars/X")
    queue = await understood(database, time_zone="america/new_york")
    assert (await the_job(queue)).state is State.PROCESSING
    assert await queue.sweep(Policy.REQUEUE, "ops") == ()


@pytest.mark.parametrize("column", ["heartbeat_at", "locked_at"])
async def test_what_expires_may_be_the_job(database: Database, hand: psycopg.Connection, column: str) -> None:
    run(
        hand,
        f"CREATE TABLE jobs (id int PRIMARY KEY, status text, owner text, {column} timestamptz, expires_at "
        f"timestamptz)",
        "INSERT INTO jobs VALUES (1, 'running', 'w', now(), now() - interval '5 min')",
        "INSERT INTO jobs VALUES (2, 'pending')",
    )
    with pytest.raises(MappingError, match=f"expires_at.*'lease={column}"):
        await understood(database)
    assert (await the_job(await understood(database, lease=f"{column} + 90 seconds"))).state is State.PROCESSING
    # Its worker was alive after that: it is no proof.
    doubtful = await understood(database, lease="expires_at")
    job = await the_job(doubtful)
    assert (job.state, job.reason) == (State.STUCK, Reason.AGE)
    assert doubtful.profile.unproven("requeue", job)
    assert await doubtful.sweep(Policy.REQUEUE, "ops") == ()


async def test_expires_at_alone_is_asked_about_too(database: Database, hand: psycopg.Connection) -> None:
    run(hand, "CREATE TABLE payment_jobs (id int PRIMARY KEY, status text, owner text, expires_at timestamptz)")
    run(hand, "INSERT INTO payment_jobs VALUES (1, 'running', 'w', now()), (2, 'pending', NULL, now())")
    with pytest.raises(NoQueue, match="is expires_at the end of a lease, or of the job itself"):
        await open_queue(database)


@pytest.mark.parametrize(
    "columns",
    [
        "lease_until timestamptz, heartbeat_at timestamptz",
        "lease_until timestamptz, lock_expires_at timestamptz, locked_until timestamptz",
        "locked_until timestamptz, lease_expires_at timestamptz",
        "heartbeat_at timestamptz, last_seen_at timestamptz",
        "lease_until timestamptz, worker_id text REFERENCES workers",
    ],
)
async def test_of_several_leases_the_operator_says_which(
    database: Database, hand: psycopg.Connection, columns: str
) -> None:
    run(hand, "CREATE TABLE workers (id text PRIMARY KEY, last_seen timestamptz)")
    run(hand, f"CREATE TABLE jobs (id int PRIMARY KEY, status text, {columns})")
    run(hand, "INSERT INTO jobs VALUES (1, 'running'), (2, 'pending')")
    with pytest.raises(MappingError, match="more than one column may say how long a lease lasts"):
        await understood(database)


@pytest.mark.parametrize("column", ["heartbeat_at", "locked_at", "started_at", "created_at", "last_ping_at"])
@pytest.mark.parametrize("key", ["lease", "lease_until"])
async def test_what_says_since_when_is_not_taken_for_until_when(
    database: Database, hand: psycopg.Connection, column: str, key: str
) -> None:
    run(hand, f"CREATE TABLE jobs (id int PRIMARY KEY, status text, owner text, {column} timestamptz)")
    run(hand, "INSERT INTO jobs VALUES (1, 'running', 'w', now()), (2, 'pending', NULL, NULL)")
    with pytest.raises(MappingError, match="says since when, not until when"):
        await understood(database, **{key: column})


async def test_a_time_out_has_a_unit(database: Database, hand: psycopg.Connection) -> None:
    run(hand, "CREATE TABLE jobs (id int PRIMARY KEY, status text, owner text, locked_at timestamptz)")
    run(hand, "INSERT INTO jobs VALUES (1, 'running', 'w', now()), (2, 'pending', NULL, NULL)")
    with pytest.raises(MappingError, match="4 what"):
        await understood(database, lease="locked_at + 4")


@pytest.mark.parametrize(
    "columns", ["status text, job_status text", "state text, status text", "status text, done bool"]
)
async def test_of_two_statuses_the_operator_says_which(
    database: Database, hand: psycopg.Connection, columns: str
) -> None:
    run(hand, f"CREATE TABLE jobs (id int PRIMARY KEY, {columns}, owner text, lease_until timestamptz)")
    with pytest.raises(MappingError, match="may each say whether a job is done"):
        await understood(database)


@pytest.mark.parametrize("column", ["settled_at timestamptz", "processed timestamptz", "acked int", "receipt text"])
async def test_without_a_status_an_end_by_any_name_is_asked_about(
    database: Database, hand: psycopg.Connection, column: str
) -> None:
    run(hand, f"CREATE TABLE jobs (id int PRIMARY KEY, owner text, lease_until timestamptz, {column})")
    with pytest.raises(MappingError, match="say whether a job is done"):
        await understood(database)
    name = column.split()[0]
    if "timestamptz" in column:
        run(hand, "INSERT INTO jobs VALUES (1, 'w', now() - interval '1 h', now())")
        assert (await the_job(await understood(database, finished_at=name))).state is State.COMPLETED


async def test_an_owner_of_jobs_that_wait_may_be_no_worker(database: Database, hand: psycopg.Connection) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS})", HELD)
    run(hand, "INSERT INTO jobs VALUES (2, 'pending', 'Alice the customer', NULL)")
    with pytest.raises(MappingError, match="it may be no worker"):
        await understood(database)
    queue = await understood(database, owner="none")
    assert len(await queue.sweep(Policy.REQUEUE, "ops")) == 1
    assert hand.execute("SELECT owner FROM jobs WHERE id = 1").fetchone() == ("w",)


async def test_an_owner_that_is_a_customer_is_asked_about(database: Database, hand: psycopg.Connection) -> None:
    run(hand, "CREATE TABLE users (id text PRIMARY KEY, last_seen_at timestamptz)")
    run(
        hand,
        "CREATE TABLE jobs (id int PRIMARY KEY, status text, owner_id text REFERENCES users, started_at timestamptz)",
    )
    with pytest.raises(MappingError, match="is owner_id the worker that has a job"):
        await understood(database)


async def test_inherited_tables_are_refused(database: Database, hand: psycopg.Connection) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS})", "CREATE TABLE more () INHERITS (jobs)", HELD)
    with pytest.raises(MappingError, match="other tables inherit from it"):
        await understood(database)


async def test_what_a_rule_forbids_is_no_state(database: Database, hand: psycopg.Connection) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS}, CHECK (status <> 'stuck'))", HELD, "INSERT INTO jobs VALUES (2)")
    assert not (await understood(database)).can("park")


async def test_of_two_words_for_waiting_the_operator_says_which_is_written(
    database: Database, hand: psycopg.Connection
) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS})", HELD)
    run(
        hand, "INSERT INTO jobs SELECT n, CASE WHEN n < 9 THEN 'created' ELSE 'queued' END FROM generate_series(2, 9) n"
    )
    with pytest.raises(MappingError, match=r"may all mean pending.*the one first that an act"):
        await understood(database)
    queue = await understood(database, pending="queued,created")
    assert (await queue.snapshot()).tallies[State.PENDING].count == 8
    assert (await queue.requeue(await the_job(queue), "ops", "x")).done
    assert hand.execute("SELECT status FROM jobs WHERE id = 1").fetchone() == ("queued",)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"lease": "locked_at + 0 seconds"}, "no time-out above zero"),
        ({"lease": "locked_at + 5 parsecs"}, "no time-out above zero"),
        ({"lease": "id"}, "id is integer, and lease_until must be a timestamp"),
        ({"attempts": "owner"}, "attempts must be an integer"),
        ({"pending": ""}, "has no value"),
        ({"pending": "a,,b"}, "one of the values is empty"),
        ({"pending": "new", "processing": "new"}, "'new' means pending already"),
    ],
)
async def test_what_is_told_must_make_sense(
    database: Database, hand: psycopg.Connection, told: dict[str, str], said: str
) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS}, locked_at timestamptz)", HELD, "INSERT INTO jobs VALUES (2)")
    with pytest.raises(MappingError) as caught:
        await understood(database, **told)
    assert said in str(caught.value)


async def test_a_value_that_the_status_cannot_have_is_refused(database: Database, hand: psycopg.Connection) -> None:
    run(hand, "CREATE TYPE state AS ENUM ('new', 'running')", f"CREATE TABLE jobs ({JOBS})")
    run(hand, "ALTER TABLE jobs ALTER status DROP DEFAULT, ALTER status TYPE state USING status::state")
    with pytest.raises(MappingError, match="'mew' is no state"):
        await understood(database, pending="mew")


async def test_a_lock_that_cannot_be_null_tells_nothing(database: Database, hand: psycopg.Connection) -> None:
    run(
        hand,
        "CREATE TABLE jobs (id int PRIMARY KEY, owner text NOT NULL DEFAULT 'nobody', "
        "lease_until timestamptz NOT NULL DEFAULT now() - interval '1 s')",
    )
    with pytest.raises(MappingError, match="nothing tells a waiting job from one that is held"):
        await understood(database, status="none")


@pytest.mark.parametrize(
    "keys",
    [
        "id int UNIQUE",
        "id int, other int, UNIQUE (id, other)",
    ],
)
async def test_a_key_that_may_be_null_is_none(database: Database, hand: psycopg.Connection, keys: str) -> None:
    run(hand, f"CREATE TABLE jobs ({keys}, status text, owner text, lease_until timestamptz)")
    with pytest.raises(MappingError, match="no primary or unique key without NULLs"):
        await understood(database)


async def test_an_index_that_is_not_valid_is_no_key(database: Database, hand: psycopg.Connection) -> None:
    run(hand, "CREATE TABLE jobs (id int NOT NULL, status text, owner text, lease_until timestamptz)", HELD, HELD)
    with pytest.raises(psycopg.errors.UniqueViolation):
        run(hand, "CREATE UNIQUE INDEX CONCURRENTLY once ON jobs (id)")
    with pytest.raises(MappingError, match="no primary or unique key"):
        await understood(database)


# What is understood.


async def test_included_columns_are_no_part_of_a_key(database: Database, hand: psycopg.Connection) -> None:
    run(
        hand,
        "CREATE TABLE jobs (id int, status text, owner text, lease_until timestamptz, "
        "PRIMARY KEY (id) INCLUDE (status))",
        HELD,
        "INSERT INTO jobs VALUES (2, 'pending')",
    )
    queue = await understood(database)
    assert [column.name for column in queue.profile.live.key] == ["id"]
    assert (await queue.requeue(await the_job(queue), "ops", "x")).done


async def test_key_columns_with_like_names_are_told_apart(database: Database, hand: psycopg.Connection) -> None:
    run(
        hand,
        'CREATE TABLE jobs ("a-b" int, ab int, status text, owner text, lease_until timestamptz, '
        'PRIMARY KEY ("a-b", ab))',
        "INSERT INTO jobs VALUES (1, 2, 'running', 'w', now() - interval '1 h')",
        "INSERT INTO jobs VALUES (2, 2, 'pending'), (1, 1, 'pending')",
    )
    queue = await understood(database)
    job = await the_job(queue, "1/2")
    assert (await queue.requeue(job, "ops", "x")).done
    assert hand.execute("SELECT count(*) FROM jobs WHERE status = 'pending'").fetchone() == (3,)


async def test_types_under_domains_are_known(database: Database, hand: psycopg.Connection) -> None:
    run(
        hand,
        "CREATE DOMAIN moment AS timestamptz",
        "CREATE DOMAIN deadline AS moment",
        "CREATE TABLE jobs (id int PRIMARY KEY, status text, owner text, lease_until deadline)",
        HELD,
        "INSERT INTO jobs VALUES (2, 'pending')",
    )
    queue = await understood(database)
    assert (await the_job(queue)).state is State.STUCK
    assert len(await queue.sweep(Policy.REQUEUE, "ops")) == 1


async def test_columns_made_from_others_are_not_written(database: Database, hand: psycopg.Connection) -> None:
    run(
        hand,
        "CREATE TABLE jobs (id int PRIMARY KEY, owner text, locked_at timestamptz, status text GENERATED ALWAYS AS "
        "(CASE WHEN locked_at IS NULL THEN 'pending' ELSE 'running' END) STORED)",
        "INSERT INTO jobs VALUES (1, 'w', now() - interval '1 h'), (2, NULL, NULL)",
    )
    queue = await understood(database, lease="locked_at + 10 minutes")
    assert any("status is made from other columns" in note for note in queue.profile.notes)
    assert (await queue.requeue(await the_job(queue), "ops", "x")).done
    assert (await the_job(queue)).state is State.PENDING


async def test_what_cannot_be_emptied_stays_and_is_said(database: Database, hand: psycopg.Connection) -> None:
    run(
        hand,
        "CREATE TABLE jobs (id int PRIMARY KEY, status text, owner text NOT NULL, lease_until timestamptz NOT NULL "
        "DEFAULT now() + interval '5 min')",
        HELD,
        "INSERT INTO jobs VALUES (2, 'pending', '')",
    )
    queue = await understood(database)
    assert "cannot be emptied, and stays after a requeue: owner" in queue.profile.notes
    assert [one.key for one in await queue.sweep(Policy.REQUEUE, "ops")] == [("1",)]
    assert hand.execute("SELECT status, owner, lease_until > now() FROM jobs WHERE id = 1").fetchone() == (
        "pending",
        "w",
        True,
    )


@pytest.mark.parametrize(
    ("kind", "there", "given"),
    [
        ("varchar(4)", "pay1", "pay12345"),
        ("numeric(10,0)", "1", "1.4"),
        ("bigint", "7", "007"),
        ("char(3)", "a", "a  "),
    ],
)
async def test_only_who_writes_an_id_in_full_means_that_job(
    database: Database, hand: psycopg.Connection, kind: str, there: str, given: str
) -> None:
    run(hand, f"CREATE TABLE jobs (id {kind} PRIMARY KEY, status text, owner text, lease_until timestamptz)")
    run(
        hand,
        f"INSERT INTO jobs VALUES ('{there}', 'running', 'w', now() - interval '1 h'), ('9', 'pending', NULL, NULL)",
    )
    queue = await understood(database)
    found = await queue.find_jobs([there, given])
    assert found[given] is None
    assert found[there] is not None


async def test_a_uuid_may_be_written_in_capitals(database: Database, hand: psycopg.Connection) -> None:
    run(hand, "CREATE TABLE jobs (id uuid PRIMARY KEY, status text, owner text, lease_until timestamptz)")
    name = "ABCDEF01-2345-6789-ABCD-EF0123456789"
    run(hand, f"INSERT INTO jobs VALUES ('{name}', 'running'), (gen_random_uuid(), 'pending')")
    queue = await understood(database)
    assert (await queue.find_jobs([name]))[name] is not None


@pytest.mark.parametrize("key", [("a", "b/c"), ("a/b", "c"), ("\\", "/"), ("", ""), ("a\\/", "\n"), ("x",)])
def test_a_key_is_read_as_it_is_written(key: tuple[str, ...]) -> None:
    assert parsed(written(key), len(key)) == key


async def test_keys_are_written_by_the_server_as_by_us(database: Database, hand: psycopg.Connection) -> None:
    run(
        hand, "CREATE TABLE jobs (a text, b text, status text, owner text, lease_until timestamptz, PRIMARY KEY (a, b))"
    )
    parts = ["a", "", "/", "\\", "a/b", "\\/", "x\\"]
    for one in parts:
        for other in parts:
            hand.execute("INSERT INTO jobs VALUES (%s, %s, 'running', 'w', now() - interval '1 h')", [one, other])
    run(hand, "INSERT INTO jobs VALUES ('p', 'p', 'pending')")
    queue = await understood(database)
    preview = await queue.expired()
    assert len({job.id for job in preview}) == len(preview) == len(parts) ** 2
    assert {one.key for one in await queue.sweep(Policy.REQUEUE, "ops", preview)} == {job.key for job in preview}


STATES = """status text CHECK (status IN ('pending', 'running', 'failed', 'done', 'parked', 'cancelled'))"""
EACH = """INSERT INTO jobs (id, status, owner, lease_until, run_after) VALUES
    (1, 'pending', NULL, NULL, now() - interval '1 h'), (2, 'pending', NULL, NULL, now() + interval '1 h'),
    (3, 'running', 'w', now() - interval '1 h', now()), (4, 'running', 'w', now() + interval '1 h', now()),
    (5, 'failed', NULL, NULL, now()), (6, 'parked', NULL, NULL, now()), (7, 'done', 'w', NULL, now()),
    (8, 'cancelled', NULL, NULL, now())"""


@pytest.mark.parametrize(
    ("act", "able", "then"),
    [
        ("discard", "12356", "cancelled"),
        ("park", "1235", "parked"),
        ("release", "6", "pending"),
        ("run_now", "12", "pending"),
    ],
)
async def test_acts_for_which_the_table_has_a_word(
    database: Database, hand: psycopg.Connection, act: str, able: str, then: str
) -> None:
    run(
        hand,
        f"CREATE TABLE jobs (id int PRIMARY KEY, {STATES}, owner text, lease_until timestamptz, run_after timestamptz)",
        EACH,
    )
    queue = await understood(database)
    seen = {job.id: job for job in (await queue.snapshot(View.ALL)).jobs}
    assert len(seen) == 8
    run(hand, "UPDATE jobs SET owner = owner WHERE id = 1")
    assert not (await queue.act(act, seen["1"], "ops", "x")).done
    seen = {job.id: job for job in (await queue.snapshot(View.ALL)).jobs}
    done = {name for name, job in seen.items() if (await queue.act(act, job, "ops", "x")).done}
    assert done == set(able)
    query = "SELECT string_agg(DISTINCT status, ' '), count(owner) FROM jobs WHERE id::text = ANY (%s)"
    assert hand.execute(query, [list(able)]).fetchone() == (then, 0)
    assert (await queue.snapshot(View.ALL)).tallies[State.PROCESSING].count == 1


async def test_what_the_table_has_no_word_for_cannot_be_done(database: Database, hand: psycopg.Connection) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS})", HELD)
    queue = await understood(database)
    assert {act for act in ("requeue", "sweep", "discard", "park", "release", "run_now") if queue.can(act)} == {
        "requeue",
        "sweep",
    }


# What must not be acted on.


@pytest.mark.parametrize("change", ["last_error = 'card was charged'", "version = 2", "owner = owner"])
async def test_any_write_to_the_row_refuses_a_requeue(
    database: Database, hand: psycopg.Connection, change: str
) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS}, last_error text, version int DEFAULT 1)", HELD)
    run(hand, "INSERT INTO jobs (id, status) VALUES (2, 'failed'), (3, 'pending')")
    queue = await understood(database)
    for given in ("1", "2"):
        seen = await the_job(queue, given)
        run(hand, f"UPDATE jobs SET {change} WHERE id = {given}")
        outcome = await queue.requeue(seen, "ops", "x")
        assert not outcome.done
        assert "since you looked" in outcome.words or "error was" in outcome.words
        assert (await queue.requeue(await the_job(queue, given), "ops", "x")).done


async def test_a_forced_requeue_follows_heartbeats_and_nothing_else(
    database: Database, hand: psycopg.Connection
) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS}, stage text)", HELD, "INSERT INTO jobs VALUES (2)")
    run(hand, "UPDATE jobs SET lease_until = now() + interval '1 h', stage = 'begun'")
    queue = await understood(database)
    seen = await the_job(queue)
    run(hand, "UPDATE jobs SET stage = 'charged', lease_until = lease_until + interval '1 min' WHERE id = 1")
    refused = await queue.requeue(seen, "ops", "x", force=True)
    assert not refused.done
    seen = await the_job(queue)
    run(hand, "UPDATE jobs SET lease_until = lease_until + interval '1 min' WHERE id = 1")
    assert (await queue.requeue(seen, "ops", "x", force=True)).done


async def test_a_sweep_that_meets_a_job_twice_stops(database: Database, hand: psycopg.Connection) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS})", "INSERT INTO jobs VALUES (0)")
    run(
        hand,
        "INSERT INTO jobs SELECT n, 'running', 'w', now() - interval '1 h' FROM generate_series(1, 600) n",
    )
    on_update(hand, "NEW.status := 'running'; NEW.lease_until := now() - interval '1 s'; RETURN NEW;")
    queue = await understood(database)
    async with asyncio.timeout(30):
        with pytest.raises(Refused, match="600 not: job 1: it is expired after the sweep: a trigger, or a default"):
            await queue.sweep(Policy.REQUEUE, "ops")


async def test_a_trigger_that_swallows_the_write_is_named(database: Database, hand: psycopg.Connection) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS})", HELD, "INSERT INTO jobs VALUES (2)")
    on_update(hand, "RETURN NULL;")
    queue = await understood(database)
    outcome = await queue.requeue(await the_job(queue), "ops", "x")
    assert not outcome.done
    assert "it is as you saw it: perhaps row security, a trigger" in outcome.words


async def test_a_status_that_is_null_is_called_so(database: Database, hand: psycopg.Connection) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS})", HELD, "INSERT INTO jobs VALUES (2, NULL), (3, NULL)")
    queue = await understood(database)
    assert "its status NULL is other" in (await queue.requeue(await the_job(queue, "3"), "ops", "x")).words


async def test_twenty_operators_requeue_a_job_once(
    database: Database, hand: psycopg.Connection, blank_dsn: str
) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS}, attempts int DEFAULT 1)", HELD, "INSERT INTO jobs VALUES (2)")
    queue = await understood(database)
    seen = await the_job(queue)
    others = [Database(blank_dsn) for _ in range(20)]
    try:
        outcomes = await asyncio.gather(
            *(Queue(other, queue.profile).requeue(seen, f"ops{n}", "x") for n, other in enumerate(others))
        )
    finally:
        for other in others:
            await other.close()
    assert [outcome.done for outcome in outcomes].count(True) == 1


# Heartbeats in a table of workers.

WORKERS = (
    "CREATE TABLE workers (id text PRIMARY KEY, last_seen timestamptz)",
    "CREATE TABLE jobs (id int PRIMARY KEY, status text, worker_id text REFERENCES workers, attempts int DEFAULT 1)",
    "INSERT INTO workers VALUES ('dead', now() - interval '1 h'), ('new', NULL)",
    "INSERT INTO jobs VALUES (1, 'running', 'dead'), (2, 'running', 'new'), (3, 'pending', NULL), (4, 'running', NULL)",
)
LEASE = {"lease": "last_seen + 90 seconds"}


async def test_a_worker_that_has_not_beaten_yet_is_alive(database: Database, hand: psycopg.Connection) -> None:
    run(hand, *WORKERS)
    queue = await understood(database, **LEASE)
    jobs = {job.id: job for job in (await queue.snapshot(View.ALL)).jobs}
    assert {name: (str(job.state), str(job.reason)) for name, job in jobs.items()} == {
        "1": ("stuck", "expired"),
        "2": ("processing", "None"),
        "3": ("pending", "None"),
        "4": ("stuck", "owner gone"),
    }
    refused = await queue.requeue(jobs["2"], "ops", "x")
    assert not refused.done
    assert "nothing says that it is dead" in refused.words
    assert (await queue.requeue(jobs["4"], "ops", "x")).done
    assert [one.key for one in await queue.sweep(Policy.REQUEUE, "ops")] == [("1",)]


@contextmanager
def holding(dsn: str, statement: str) -> Iterator[psycopg.Connection]:
    """Another session in the middle of a transaction, which is rolled back unless it commits by itself."""
    with psycopg.connect(dsn) as connection:
        connection.execute(statement.encode())
        yield connection
        connection.rollback()


async def test_a_heartbeat_made_while_the_lock_is_waited_for_counts(
    database: Database, hand: psycopg.Connection, blank_dsn: str
) -> None:
    run(hand, *WORKERS)
    queue = await understood(database, **LEASE)
    seen = await the_job(queue)
    with holding(blank_dsn, "SELECT FROM jobs WHERE id = 1 FOR UPDATE") as other:
        act = asyncio.create_task(queue.requeue(seen, "ops", "x"))
        await asyncio.to_thread(until, lambda: is_blocked_by(hand, other))
        run(hand, "UPDATE workers SET last_seen = now() WHERE id = 'dead'")
        other.commit()
        outcome = await act
    assert not outcome.done
    assert "a live lease is not requeued" in outcome.words


async def test_a_heartbeat_under_way_is_not_overtaken(
    database: Database, hand: psycopg.Connection, blank_dsn: str
) -> None:
    run(hand, *WORKERS, "INSERT INTO workers VALUES ('gone', now() - interval '1 h')")
    run(hand, "INSERT INTO jobs VALUES (5, 'running', 'gone')")
    queue = await understood(database, **LEASE)
    seen = await the_job(queue)
    with holding(blank_dsn, "UPDATE workers SET last_seen = now() WHERE id = 'dead'"):
        with pytest.raises(Refused, match="55P03"):
            await queue.requeue(seen, "ops", "x")
        # The others' jobs need not wait for it.
        assert [one.key for one in await queue.sweep(Policy.REQUEUE, "ops")] == [("5",)]
    assert (await queue.requeue(seen, "ops", "x")).done


async def test_workers_that_a_role_may_not_see_are_not_gone(
    database: Database, hand: psycopg.Connection, blank_dsn: str
) -> None:
    run(hand, *WORKERS, "ALTER TABLE workers ENABLE ROW LEVEL SECURITY")
    run(hand, "UPDATE workers SET last_seen = now()", "DROP ROLE IF EXISTS hidden_from", "CREATE ROLE hidden_from")
    run(hand, "GRANT SELECT, UPDATE ON jobs, workers TO hidden_from", "GRANT hidden_from TO current_user")
    queue = await understood(database, **LEASE)
    blind = Queue(Database(f"{blank_dsn} options='-c role=hidden_from'"), queue.profile)
    try:
        seen = await the_job(blind)
        with pytest.raises(Refused, match="row-level security"):
            await blind.requeue(seen, "ops", "x")
        with pytest.raises(Refused, match="row-level security"):
            await blind.sweep(Policy.REQUEUE, "ops")
    finally:
        await blind.database.close()
        run(hand, "DROP OWNED BY hidden_from", "DROP ROLE hidden_from")


@pytest.mark.parametrize("where", ["job", "workers"])
async def test_a_claim_is_a_sign_of_life(database: Database, hand: psycopg.Connection, where: str) -> None:
    """A worker under its old name claims before its first heartbeat: what was beaten before it counts no more."""
    if where == "job":
        run(
            hand,
            "CREATE TABLE jobs (id int PRIMARY KEY, status text, worker text, heartbeat_at timestamptz, "
            "locked_at timestamptz)",
        )
        run(hand, "INSERT INTO jobs VALUES (1, 'running', 'w', now() - interval '2 h', now())")
    else:
        run(hand, "CREATE TABLE workers (id text PRIMARY KEY, heartbeat_at timestamptz)")
        run(hand, "INSERT INTO workers VALUES ('w', now() - interval '2 h')")
        run(
            hand,
            "CREATE TABLE jobs (id int PRIMARY KEY, status text, worker text REFERENCES workers, locked_at "
            "timestamptz)",
        )
        run(hand, "INSERT INTO jobs VALUES (1, 'running', 'w', now())")
    run(hand, "INSERT INTO jobs VALUES (2, 'pending')")
    queue = await understood(database, lease="heartbeat_at + 90 seconds")
    assert (await the_job(queue)).state is State.PROCESSING
    assert await queue.sweep(Policy.REQUEUE, "ops") == ()
    # Never beaten, and claimed long ago: nothing but age.
    table = "jobs" if where == "job" else "workers"
    run(
        hand,
        f"UPDATE {table} SET heartbeat_at = NULL",
        "UPDATE jobs SET locked_at = now() - interval '1 h' WHERE id = 1",
    )
    job = await the_job(queue)
    assert (job.state, job.reason) == (State.STUCK, Reason.AGE)
    assert queue.profile.unproven("requeue", job)
    assert await queue.sweep(Policy.REQUEUE, "ops") == ()
    run(hand, f"UPDATE {table} SET heartbeat_at = now() - interval '30 min'")
    assert len(await queue.sweep(Policy.REQUEUE, "ops")) == 1


async def test_owners_that_are_not_in_the_workers_table_are_asked_about(
    database: Database, hand: psycopg.Connection
) -> None:
    run(
        hand,
        "CREATE TABLE hosts (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), name text UNIQUE, last_seen timestamptz)",
    )
    run(hand, "CREATE TABLE jobs (id int PRIMARY KEY, status text, worker text)")
    run(hand, "INSERT INTO hosts (name, last_seen) VALUES ('alpha', now())")
    run(hand, "INSERT INTO jobs VALUES (1, 'running', 'alpha'), (2, 'pending', NULL)")
    told = {"lease": "last_seen + 90 seconds"}
    with pytest.raises(MappingError, match="is not compared with the key of"):
        await understood(database, **told, workers="hosts")
    queue = await understood(database, **told, workers="hosts:name")
    assert (await the_job(queue)).state is State.PROCESSING
    run(hand, "UPDATE hosts SET name = 'Alpha'")
    with pytest.raises(MappingError, match=r"owners of jobs that are held are not in public\.hosts"):
        await understood(database, **told, workers="hosts:name")


async def test_no_lease_and_no_owner_need_an_operator_who_is_sure(database: Database, hand: psycopg.Connection) -> None:
    run(hand, *WORKERS)
    queue = await understood(database, **LEASE)
    job = await the_job(queue, "4")
    assert job.reason is Reason.GONE
    assert queue.profile.unproven("requeue", job)
    run(hand, "ALTER TABLE jobs ADD lease_until timestamptz")
    queue = await understood(database, lease="lease_until")
    job = await the_job(queue)
    assert job.reason is Reason.NO_LEASE
    assert queue.profile.unproven("requeue", job)


@pytest.mark.parametrize("status", ["failed", "parked"])
async def test_a_live_lease_is_refused_whatever_the_status(
    database: Database, hand: psycopg.Connection, status: str
) -> None:
    run(
        hand,
        f"CREATE TABLE jobs ({JOBS})",
        HELD,
        "INSERT INTO jobs (id, status) VALUES (2, 'pending'), (3, 'failed'), (4, 'parked')",
    )
    run(hand, f"UPDATE jobs SET status = '{status}', lease_until = now() + interval '1 h' WHERE id = 1")
    queue = await understood(database)
    outcome = await queue.requeue(await the_job(queue), "ops", "x")
    assert not outcome.done
    assert "its lease lasts for another" in outcome.words
    run(hand, "UPDATE jobs SET lease_until = now() - interval '1 s' WHERE id = 1")
    assert (await queue.requeue(await the_job(queue), "ops", "x")).done


async def test_a_job_that_failed_before_and_is_held_again_is_live(database: Database, hand: psycopg.Connection) -> None:
    run(hand, "CREATE TABLE jobs (id int PRIMARY KEY, locked_by text, locked_until timestamptz, failed_at timestamptz)")
    run(hand, "INSERT INTO jobs VALUES (1, 'w', now() + interval '1 h', now() - interval '1 h')")
    queue = await understood(database)
    job = await the_job(queue)
    assert job.state is State.PROCESSING
    assert not (await queue.requeue(job, "ops", "x")).done


async def test_a_job_that_runs_and_has_an_end_is_acted_on_by_nobody(
    database: Database, hand: psycopg.Connection
) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS}, completed_at timestamptz)", HELD, "INSERT INTO jobs VALUES (2)")
    run(hand, "UPDATE jobs SET completed_at = now() WHERE id = 1")
    queue = await understood(database)
    job = await the_job(queue)
    assert job.state is State.OTHER
    assert not (await queue.requeue(job, "ops", "x")).done
    assert await queue.sweep(Policy.REQUEUE, "ops") == ()


async def test_a_requeue_that_a_trigger_undoes_is_not_said_to_be_done(
    database: Database, hand: psycopg.Connection
) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS})", HELD, "INSERT INTO jobs VALUES (2)")
    on_update(hand, "NEW.status := OLD.status; RETURN NEW;")
    queue = await understood(database)
    with pytest.raises(Refused, match="a trigger of the table did something else"):
        await queue.requeue(await the_job(queue), "ops", "x")
    assert (await the_job(queue)).owner == "w"


async def test_the_journal_does_not_tell_of_a_sweep_that_was_rolled_back(
    database: Database, hand: psycopg.Connection
) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS})", HELD, "INSERT INTO jobs VALUES (2)")
    on_update(hand, "RAISE 'audit says no';", "DEFERRED")
    queue = await understood(database)
    with pytest.raises(Refused, match="audit says no"):
        await queue.sweep(Policy.REQUEUE, "ops")
    assert await queue.read_journal() == ()


async def test_what_a_time_out_counts_from_is_not_emptied_where_it_means_something_else(
    database: Database, hand: psycopg.Connection
) -> None:
    run(hand, "CREATE TABLE jobs (id int PRIMARY KEY, status text, owner text, created_at timestamptz)")
    run(hand, "INSERT INTO jobs VALUES (1, 'running', 'w', now() - interval '2 days'), (2, 'pending', NULL, now())")
    queue = await understood(database, lease="created_at + 1 day")
    assert len(await queue.sweep(Policy.REQUEUE, "ops")) == 1
    assert hand.execute("SELECT created_at IS NULL FROM jobs WHERE id = 1").fetchone() == (False,)


def is_blocked_by(hand: psycopg.Connection, other: psycopg.Connection) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
    row = hand.execute(query, [other.info.backend_pid]).fetchone()
    return row is not None and row[0] > 0


async def test_the_plain_table_opens_by_name(database: Database, hand: psycopg.Connection) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS})", HELD, "INSERT INTO jobs VALUES (2)")
    queue = await open_queue(database, table="jobs")
    assert (await queue.snapshot()).tallies[State.STUCK].count == 1


# What is not understood.


async def asked(database: Database, saying: str, **told: str) -> None:
    with pytest.raises(MappingError, match=saying):
        await understood(database, **told)


async def unproven(queue: Queue, act: str, given: str = "1") -> str:
    return queue.profile.unproven(act, await the_job(queue, given)) or ""


async def test_a_waiting_row_that_is_leased_is_somebodys(database: Database, hand: psycopg.Connection) -> None:
    """Some queues leave the status at queued while a worker has the job."""
    run(
        hand,
        "CREATE TABLE jobs (id bigserial PRIMARY KEY, status text NOT NULL, locked_until timestamptz)",
        "INSERT INTO jobs (status, locked_until) VALUES ('queued', now() + interval '1h'), ('queued', NULL), "
        "('queued', now() - interval '1h'), ('done', NULL), ('cancelled', NULL)",
    )
    queue = await understood(database)
    assert [(await the_job(queue, one)).state for one in "123"] == [State.PROCESSING, State.PENDING, State.PENDING]
    for name in ("discard", "requeue"):
        seen = await the_job(queue)
        outcome = await (queue.requeue(seen, "ops", "x") if name == "requeue" else queue.act(name, seen, "ops", "x"))
        assert not outcome.done
        assert "holds its lease" in outcome.words
    assert (await queue.act("discard", await the_job(queue, "2"), "ops", "x")).done


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("phase text NOT NULL", ["Succeeded", "Running", "Pending"]),
        ("statut varchar NOT NULL", ["done", "running", "pending"]),
        ("lifecycle js NOT NULL", ["done", "running", "pending"]),
    ],
)
async def test_a_status_by_another_name_is_found_by_its_words(
    database: Database, hand: psycopg.Connection, column: str, values: list[str]
) -> None:
    run(
        hand,
        "CREATE TYPE js AS ENUM ('pending', 'running', 'done', 'failed')",
        f"CREATE TABLE jobs (id serial PRIMARY KEY, {column}, worker text, lease_until timestamptz)",
        *(f"INSERT INTO jobs ({column.split()[0]}) VALUES ('{value}')" for value in values),
        "UPDATE jobs SET worker = 'w', lease_until = now() - interval '1h' WHERE id < 3",
    )
    name = column.split()[0]
    await asked(database, f"{name} has the words of a status")
    queue = await understood(database, status=name)
    assert (await the_job(queue)).state is State.COMPLETED
    assert (await understood(database, ignore=name)).profile.actions["sweep"].confirm is None


@pytest.mark.parametrize(
    "column", ["output text", "took_ms int", "exit_code int", "tx_hash text", "lifecycle smallint"]
)
async def test_without_a_status_what_may_be_a_result_needs_an_operator_who_is_sure(
    database: Database, hand: psycopg.Connection, column: str
) -> None:
    name = column.split()[0]
    run(
        hand,
        f"CREATE TABLE jobs (id int PRIMARY KEY, locked_by text, locked_until timestamptz, payload jsonb, {column})",
        "INSERT INTO jobs VALUES (1, 'w', now() - interval '1d')",
    )
    queue = await understood(database, status="none")
    assert f"that {name} says nothing about whether a job is over" in await unproven(queue, "sweep")
    assert name in await unproven(queue, "requeue")
    assert any(f"not understood, and an act needs you to be sure: {name}" in note for note in queue.profile.notes)
    assert not await unproven(await understood(database, status="none", ignore=name), "sweep")
    await asked(database, "there is no such column", status="none", ignore="elsewhere")


@pytest.mark.parametrize("column", ["paid boolean", "settle_status text", "deleted_at timestamptz", "paused boolean"])
async def test_beside_a_status_other_ends_need_an_operator_who_is_sure(
    database: Database, hand: psycopg.Connection, column: str
) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS}, {column})", HELD, "INSERT INTO jobs (id, status) VALUES (2, 'done')")
    assert column.split()[0] in await unproven(await understood(database), "sweep")


async def test_what_a_status_beside_it_does_not_say_needs_nobody_to_be_sure(
    database: Database, hand: psycopg.Connection
) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS}, customer text, total numeric, notes text, updated_by text)", HELD)
    assert not await unproven(await understood(database), "sweep")


@pytest.mark.parametrize(("waiting", "running"), [("pending", "active"), ("ready", "processing"), ("new", "claimed")])
async def test_words_with_two_edges_are_asked_about_where_no_job_is_known_to_be_done(
    database: Database, hand: psycopg.Connection, waiting: str, running: str
) -> None:
    run(
        hand,
        f"CREATE TABLE jobs ({JOBS.replace('pending', waiting)})",
        f"INSERT INTO jobs VALUES (1, '{running}', 'w', now() - interval '1h')",
    )
    await asked(database, "no value of status is known to mean completed")
    told = {"pending": waiting, "processing": running, "completed": "done"}
    assert (await the_job(await understood(database, **told))).state is State.STUCK
    run(hand, "INSERT INTO jobs VALUES (3, 'done', NULL, NULL)")
    assert (await the_job(await understood(database))).state is State.STUCK


@pytest.mark.parametrize("column", ["extended_until", "last_activity_at", "updated_at", "last_progress_at"])
async def test_an_instant_after_the_leases_end_is_a_sign_of_life(
    database: Database, hand: psycopg.Connection, column: str
) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS}, {column} timestamptz)", HELD)
    queue = await understood(database)
    assert (await the_job(queue)).reason is Reason.EXPIRED
    run(hand, f"UPDATE jobs SET {column} = now()")
    assert (await the_job(queue)).reason is Reason.AGE
    assert await queue.sweep(Policy.REQUEUE, "ops") == ()
    assert await unproven(queue, "requeue")


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TABLE sessions (host text, pid int, last_seen timestamptz, PRIMARY KEY (host, pid)); "
        "ALTER TABLE jobs ADD host text, ADD pid int, ADD FOREIGN KEY (host, pid) REFERENCES sessions",
        "CREATE TABLE sessions (job_id int REFERENCES jobs, last_heartbeat timestamptz)",
    ],
)
async def test_a_heartbeat_behind_another_foreign_key_is_not_overlooked(
    database: Database, hand: psycopg.Connection, made: str
) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS})", made, HELD)
    queue = await understood(database)
    assert "sessions.last_" in await unproven(queue, "sweep")
    name = "sessions.last_seen" if "last_seen" in made else "sessions.last_heartbeat"
    assert not await unproven(await understood(database, ignore=name), "sweep")


async def test_a_retry_that_has_just_been_claimed_is_not_failed(database: Database, hand: psycopg.Connection) -> None:
    run(
        hand,
        "CREATE TABLE jobs (id int PRIMARY KEY, locked_by text, heartbeat_at timestamptz, failed_at timestamptz)",
        "INSERT INTO jobs VALUES (1, 'w', NULL, now() - interval '1h'), (2, NULL, NULL, now() - interval '1h')",
    )
    queue = await understood(database, lease="heartbeat_at + 90 seconds")
    job = await the_job(queue)
    assert (job.state, job.reason) == (State.STUCK, Reason.NO_LEASE)
    assert await unproven(queue, "requeue")
    assert (await the_job(queue, "2")).state is State.FAILED


async def test_a_failed_job_that_beats_is_somebodys(database: Database, hand: psycopg.Connection) -> None:
    run(
        hand,
        "CREATE TABLE jobs (id int PRIMARY KEY, status text, worker text, heartbeat_at timestamptz)",
        "INSERT INTO jobs VALUES (1, 'failed', 'w', now())",
        "INSERT INTO jobs (id, status) VALUES (2, 'pending'), (3, 'running'), (4, 'done')",
    )
    queue = await understood(database, lease="heartbeat_at + 90 seconds")
    outcome = await queue.requeue(await the_job(queue), "ops", "x")
    assert not outcome.done
    assert "lease lasts" in outcome.words


@pytest.mark.parametrize(
    ("trigger", "act"),
    [
        ("IF NEW.status = 'pending' THEN NEW.status = 'done'; END IF; RETURN NEW;", "requeue"),
        ("IF NEW.status = 'cancelled' THEN NEW.status = OLD.status; END IF; RETURN NEW;", "discard"),
        ("IF NEW.status = 'pending' THEN NEW.status = 'awaiting_approval'; END IF; RETURN NEW;", "requeue"),
    ],
)
async def test_an_act_that_a_trigger_turns_into_something_else_is_rolled_back(
    database: Database, hand: psycopg.Connection, trigger: str, act: str
) -> None:
    run(
        hand,
        f"CREATE TABLE jobs ({JOBS})",
        HELD,
        "INSERT INTO jobs (id, status) VALUES (2, 'pending'), (3, 'done'), (4, 'cancelled')",
    )
    on_update(hand, trigger)
    queue = await understood(database)
    seen = await the_job(queue, "1" if act == "requeue" else "2")
    with pytest.raises(Refused, match="a trigger of the table did something else"):
        await (queue.requeue(seen, "ops", "x") if act == "requeue" else queue.act(act, seen, "ops", "x"))
    assert (await the_job(queue, seen.id)).fence == seen.fence


async def test_a_word_that_nobody_uses_needs_an_operator_who_is_sure(
    database: Database, hand: psycopg.Connection
) -> None:
    run(hand, "CREATE TABLE jobs (id int PRIMARY KEY, status text, owner text, lease_until timestamptz)", HELD)
    assert "that workers look for 'pendng'" in await unproven(await understood(database, pending="pendng"), "requeue")


async def test_a_column_that_hardly_says_until_when_needs_an_operator_who_is_sure(
    database: Database, hand: psycopg.Connection
) -> None:
    run(hand, "CREATE TABLE jobs (id int PRIMARY KEY, status text, worker text, touched_at timestamptz)")
    run(hand, "INSERT INTO jobs VALUES (1, 'running', 'w', now())")
    run(hand, "INSERT INTO jobs (id, status) VALUES (2, 'pending'), (3, 'done')")
    queue = await understood(database, lease="touched_at")
    assert "that touched_at says until when" in await unproven(queue, "sweep")


async def test_an_end_of_an_earlier_run_does_not_end_this_one(database: Database, hand: psycopg.Connection) -> None:
    run(
        hand,
        f"CREATE TABLE jobs ({JOBS}, locked_at timestamptz, finished_at timestamptz)",
        """INSERT INTO jobs VALUES
           (1, 'running', 'w', now() + interval '1 m', NULL, now() - interval '1 d'),
           (2, 'running', 'w', now() - interval '1 m', now() - interval '5 m', now() - interval '1 d'),
           (3, 'running', 'w', now() - interval '1 m', now() - interval '5 m', now()),
           (4, 'running', 'w', now() - interval '1 m', NULL, 'infinity')""",
    )
    queue = await understood(database)
    states = [(await the_job(queue, one)).state for one in "1234"]
    assert states == [State.PROCESSING, State.STUCK, State.OTHER, State.STUCK]
    assert "it has an end" in (await queue.requeue(await the_job(queue, "3"), "ops", "x")).words


async def test_no_cap_is_no_cap_of_none_and_what_is_left_is_asked_about(
    database: Database, hand: psycopg.Connection
) -> None:
    run(
        hand,
        f"CREATE TABLE jobs ({JOBS}, retries int DEFAULT 0, max_retries int DEFAULT 0)",
        HELD,
        "INSERT INTO jobs (id, status) VALUES (2, 'failed')",
    )
    (swept,) = await (await understood(database)).sweep(Policy.REQUEUE, "ops")
    assert swept.status == "pending"
    run(hand, "INSERT INTO jobs (id, status, retries, max_retries) VALUES (3, 'pending', 3, 3)")
    await asked(database, "does it count the attempts that are left")
    assert not (await understood(database, attempts="none")).profile.has("attempts")


async def test_a_job_that_a_constraint_holds_back_does_not_keep_the_others(
    database: Database, hand: psycopg.Connection
) -> None:
    run(
        hand,
        f"CREATE TABLE jobs ({JOBS}, order_ref text)",
        "CREATE UNIQUE INDEX ON jobs (order_ref) WHERE status = 'pending'",
        "INSERT INTO jobs SELECT n, 'running', 'w', now() - interval '1 h', 'o' || n FROM generate_series(1, 3) n",
        "INSERT INTO jobs (id, order_ref) VALUES (4, 'o2')",
    )
    queue = await understood(database)
    with pytest.raises(Refused, match=r"2 jobs swept; 1 not: job 2: refused: another row has that key"):
        await queue.sweep(Policy.REQUEUE, "ops")
    assert [(await the_job(queue, one)).state for one in "123"] == [State.PENDING, State.STUCK, State.PENDING]


async def test_an_instant_in_the_key_is_not_written(database: Database, hand: psycopg.Connection) -> None:
    run(
        hand,
        "CREATE TABLE jobs (id int, scheduled_at timestamptz, status text, owner text, lease_until timestamptz, "
        "PRIMARY KEY (id, scheduled_at))",
        "INSERT INTO jobs VALUES (1, now() - interval '1 d', 'running', 'w', now() - interval '1 h')",
        "INSERT INTO jobs VALUES (2, now() - interval '1 d', 'pending'), (3, now(), 'done')",
    )
    queue = await understood(database)
    (before,) = [job for job in (await queue.snapshot(View.STUCK)).jobs]
    assert (await queue.requeue(before, "ops", "x")).done
    assert (await the_job(queue, before.id)).state is State.PENDING


async def test_an_optimistic_lock_is_raised_so_that_a_late_finisher_fails(
    database: Database, hand: psycopg.Connection
) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS}, lock_version int NOT NULL DEFAULT 0)", HELD)
    queue = await understood(database)
    assert (await queue.requeue(await the_job(queue), "ops", "x")).done
    late = hand.execute("UPDATE jobs SET status = 'done' WHERE id = 1 AND lock_version = 0")
    assert late.rowcount == 0


@pytest.mark.parametrize(
    "told", [{"time_zone": "America/New_York"}, {"time_zone": "UTC", "lease": "locked_at + 4 hours"}]
)
async def test_one_instant_beyond_all_calendars_does_not_close_the_table(
    database: Database, hand: psycopg.Connection, told: dict[str, str]
) -> None:
    column = "locked_at" if "lease" in told else "lease_until"
    run(
        hand,
        f"CREATE TABLE jobs (id int PRIMARY KEY, status text, owner text, {column} timestamp)",
        "INSERT INTO jobs VALUES (1, 'running', 'w', '294276-12-31'), (2, 'running', 'w', 'infinity'), "
        "(3, 'running', 'w', '2020-01-01')",
        "INSERT INTO jobs (id, status) VALUES (4, 'pending'), (5, 'done')",
    )
    queue = await understood(database, **told)
    assert [(await the_job(queue, one)).state for one in "123"] == [State.PROCESSING, State.PROCESSING, State.STUCK]


@pytest.mark.parametrize(
    ("kind", "value"), [("jsonb", "'{\"a\": 12.30}'"), ("bytea", "'{\"a\": 12.30}'"), ("text", "'{\"a\": 12.30}'")]
)
async def test_a_payload_is_shown_as_it_is(database: Database, hand: psycopg.Connection, kind: str, value: str) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS}, body {kind})", HELD, f"UPDATE jobs SET body = {value}")
    found = await (await understood(database)).payload(("1",))
    assert found is not None
    assert found.text == '{"a": 12.30}'


async def test_a_boolean_may_say_that_a_job_is_done(database: Database, hand: psycopg.Connection) -> None:
    run(
        hand,
        "CREATE TABLE jobs (id int PRIMARY KEY, payload jsonb, done boolean NOT NULL DEFAULT false, locked_by text, "
        "locked_until timestamptz)",
        """INSERT INTO jobs (id, done, locked_by, locked_until) VALUES
           (1, true, 'w', now() - interval '1 h'), (2, false, NULL, NULL), (3, false, 'w', now() + interval '1 h'),
           (4, false, 'w', now() - interval '1 h')""",
    )
    queue = await understood(database)
    states = [(await the_job(queue, one)).state for one in "1234"]
    assert states == [State.COMPLETED, State.PENDING, State.PROCESSING, State.STUCK]
    assert "Completed" in (await queue.requeue(await the_job(queue), "ops", "x")).words
    assert [one.key for one in await queue.sweep(Policy.REQUEUE, "ops")] == [("4",)]
    seen = await the_job(queue, "3")
    run(hand, "UPDATE jobs SET done = true WHERE id = 3")
    assert not (await queue.requeue(seen, "ops", "x", force=True)).done


async def test_a_boolean_by_another_name_is_told(database: Database, hand: psycopg.Connection) -> None:
    run(
        hand,
        "CREATE TABLE jobs (id int PRIMARY KEY, ok boolean, locked_by text, locked_until timestamptz)",
        "INSERT INTO jobs VALUES (1, true, 'w', now() - interval '1 h')",
    )
    await asked(database, "--set done=COLUMN")
    assert (await the_job(await understood(database, done="ok"))).state is State.COMPLETED
    await asked(database, "done must be a boolean", done="locked_by")


@pytest.mark.parametrize(("unit", "ticks"), [("seconds", 1), ("milliseconds", 1000)])
async def test_instants_may_be_numbers(database: Database, hand: psycopg.Connection, unit: str, ticks: int) -> None:
    """As in the jobs table of a well-known web framework."""
    run(
        hand,
        "CREATE TABLE jobs (id bigserial PRIMARY KEY, queue text NOT NULL, payload text NOT NULL, attempts smallint "
        "NOT NULL, reserved_at bigint, available_at bigint NOT NULL, created_at bigint NOT NULL)",
        f"""INSERT INTO jobs (queue, payload, attempts, reserved_at, available_at, created_at)
            SELECT 'default', '{{}}', 1, (extract(epoch FROM now()) * {ticks})::bigint - reserved * {ticks}, 0, 1
              FROM (VALUES (10), (NULL), (1000)) AS rows (reserved)""",
    )
    await asked(database, "reserved_at is a number: an instant")
    queue = await understood(database, epoch=unit, lease="reserved_at + 90 seconds")
    states = [(await the_job(queue, one)).state for one in "123"]
    assert states == [State.PROCESSING, State.PENDING, State.STUCK]
    held = await the_job(queue)
    assert not (await queue.requeue(held, "ops", "x")).done
    dead = await the_job(queue, "3")
    assert queue.profile.unproven("requeue", dead)
    assert (await queue.requeue(dead, "ops", "x")).done
    ago = f"(extract(epoch FROM now()) * {ticks} - available_at) / {ticks}"
    row = hand.execute(f"SELECT reserved_at, attempts, {ago} FROM jobs WHERE id = 3".encode()).fetchone()
    assert row is not None
    assert row[:2] == (None, 1) and abs(row[2]) < 60
    await asked(database, "give seconds", epoch="days")


@pytest.mark.parametrize(
    ("body", "when"),
    [
        ("IF NEW.status = 'pending' THEN NEW.status = 'awaiting_approval'; END IF; RETURN NEW;", "BEFORE"),
        ("DELETE FROM jobs WHERE id = NEW.id; RETURN NULL;", "AFTER"),
    ],
)
async def test_a_sweep_that_a_trigger_turns_into_something_else_is_rolled_back(
    database: Database, hand: psycopg.Connection, body: str, when: str
) -> None:
    run(
        hand,
        f"CREATE TABLE jobs ({JOBS})",
        HELD,
        "INSERT INTO jobs (id, status) VALUES (3, 'done')",
    )
    on_update(hand, body, when)
    queue = await understood(database)
    with pytest.raises(Refused, match=r"0 jobs swept; 1 not: job 1: it is .* after the sweep: a trigger"):
        await queue.sweep(Policy.REQUEUE, "ops")
    assert (await the_job(queue)).state is State.STUCK


@pytest.mark.parametrize("act", ["requeue", "sweep"])
async def test_a_trigger_at_the_end_of_the_transaction_is_seen(
    database: Database, hand: psycopg.Connection, act: str
) -> None:
    run(
        hand,
        f"CREATE TABLE jobs ({JOBS})",
        HELD,
        "INSERT INTO jobs (id, status) VALUES (3, 'done')",
    )
    late = "UPDATE jobs SET status = 'done' WHERE id = NEW.id AND status = 'pending'; RETURN NULL;"
    on_update(hand, late, "DEFERRED")
    queue = await understood(database)
    with pytest.raises(Refused, match="a trigger"):
        if act == "sweep":
            await queue.sweep(Policy.REQUEUE, "ops")
        else:
            await queue.requeue(await the_job(queue), "ops", "x")
    assert (await the_job(queue)).state is State.STUCK


@pytest.mark.parametrize("column", ["stage text", "response jsonb", "transaction_id text", "last_heartbeat_ms bigint"])
async def test_without_a_status_whatever_may_have_come_later_matters(
    database: Database, hand: psycopg.Connection, column: str
) -> None:
    run(hand, f"CREATE TABLE jobs (id int PRIMARY KEY, payload jsonb, worker text, lease_until timestamptz, {column})")
    run(hand, "INSERT INTO jobs (id, worker, lease_until) VALUES (1, 'w', now() - interval '1 h')")
    queue = await understood(database, status="none", epoch="none")
    assert column.split()[0] in await unproven(queue, "sweep")


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TABLE jobs_results (job_id int PRIMARY KEY REFERENCES jobs, body text)",
        "CREATE TABLE held (job_id int PRIMARY KEY REFERENCES jobs, locked_until timestamptz)",
        "CREATE TABLE runs (job_id int REFERENCES jobs, finished_at timestamptz)",
    ],
)
async def test_a_table_that_refers_to_the_jobs_may_tell_their_end(
    database: Database, hand: psycopg.Connection, made: str
) -> None:
    run(hand, "CREATE TABLE jobs (id int PRIMARY KEY, worker text, lease_until timestamptz)", made)
    run(hand, "INSERT INTO jobs VALUES (1, 'w', now() - interval '1 h')")
    assert await unproven(await understood(database), "sweep")


@pytest.mark.parametrize(
    "more",
    [
        "callback_url text, tracking_number text, stack_trace text, backoff_seconds int, is_test boolean",
        "package_id text, slack_channel text, background boolean, processor text, processing_time_ms int",
        "delivery_address text, state_code text, statement_descriptor text, sent_to text, paid_amount int",
        "notify_on_success boolean, urgent boolean, enabled boolean, shipping_at timestamptz, charge_id text",
        "expires_at timestamptz, deliver_by timestamptz DEFAULT now() + interval '1 d'",
        "customer_id int REFERENCES users (id)",
    ],
)
async def test_a_sane_table_is_opened_and_swept_without_a_question(
    database: Database, hand: psycopg.Connection, more: str
) -> None:
    run(
        hand,
        "CREATE TABLE users (id int PRIMARY KEY, last_seen_at timestamptz, status text)",
        "CREATE TABLE jobs (id bigserial PRIMARY KEY, status text NOT NULL DEFAULT 'pending', locked_by text, "
        "locked_until timestamptz, attempts int DEFAULT 0, payload jsonb, created_at timestamptz DEFAULT now(), "
        f"updated_at timestamptz, error text, priority int, {more})",
        "INSERT INTO jobs (status, locked_by, locked_until) VALUES ('running', 'w', now() - interval '1 h'), "
        "('pending', NULL, NULL), ('done', NULL, NULL)",
    )
    queue = await understood(database)
    assert not await unproven(queue, "sweep")
    assert [one.key for one in await queue.sweep(Policy.REQUEUE, "ops")] == [("1",)]


@pytest.mark.parametrize(
    "words",
    [
        ["uploaded", "processing", "available", "failed"],
        ["received", "processing", "ready", "done"],
        ["new", "picking", "picked", "shipped", "done"],
        ["pending", "provisioning", "running", "stopped"],
    ],
)
async def test_a_doubtful_word_among_unknown_ones_is_asked_about(
    database: Database, hand: psycopg.Connection, words: list[str]
) -> None:
    run(hand, "CREATE TABLE jobs (id serial PRIMARY KEY, status text, worker text, lease_until timestamptz)")
    for word in words:
        run(hand, f"INSERT INTO jobs (status) VALUES ('{word}')")
    await asked(database, "are in no state that is known")


async def test_a_word_with_two_edges_that_no_row_has_is_not_taken(database: Database, hand: psycopg.Connection) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS})", "INSERT INTO jobs (id) VALUES (1)")
    queue = await understood(database)
    run(hand, "INSERT INTO jobs VALUES (2, 'active', 'w', now() - interval '1 h')")
    assert (await the_job(queue, "2")).state is State.OTHER
    assert await queue.sweep(Policy.REQUEUE, "ops") == ()


@pytest.mark.parametrize("column", ["updated_at", "finished_at"])
async def test_instants_without_a_zone_beside_a_lease_with_one_are_asked_about(
    database: Database, hand: psycopg.Connection, column: str
) -> None:
    run(
        hand,
        f"CREATE TABLE jobs ({JOBS}, {column} timestamp)",
        HELD,
        "INSERT INTO jobs (id, status) VALUES (2, 'done')",
    )
    await asked(database, f"no time zone is stored in {column}")


async def test_a_stage_that_says_done_beside_a_status_matters(database: Database, hand: psycopg.Connection) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS}, phase text)", HELD, "INSERT INTO jobs (id, status) VALUES (2, 'done')")
    run(hand, "UPDATE jobs SET phase = 'capture'")
    assert not await unproven(await understood(database), "sweep")
    run(hand, "UPDATE jobs SET phase = 'Succeeded'")
    assert "phase" in await unproven(await understood(database), "sweep")
    assert not await unproven(await understood(database, ignore="phase"), "sweep")


async def test_a_boolean_beside_a_status_is_refused_and_not_passed_over(
    database: Database, hand: psycopg.Connection
) -> None:
    run(hand, f"CREATE TABLE jobs ({JOBS}, ok boolean)", HELD)
    await asked(database, "has a status, which says it", done="ok")


async def test_what_a_living_worker_has_done_is_no_anomaly(database: Database, hand: psycopg.Connection) -> None:
    run(
        hand,
        "CREATE TABLE workers (id int PRIMARY KEY, last_heartbeat timestamptz)",
        "INSERT INTO workers VALUES (1, now())",
        "CREATE TABLE jobs (id int PRIMARY KEY, status text, worker_id int REFERENCES workers (id))",
        "INSERT INTO jobs VALUES (1, 'done', 1), (2, 'running', 1), (3, 'pending', NULL)",
    )
    queue = await understood(database, lease="last_heartbeat + 90 seconds")
    assert (await queue.anomalies()).total == 0
    assert (await the_job(queue, "1")).lease_until is None
    assert (await the_job(queue, "2")).lease_until is not None


_HOSTILE = '"od\x1b[31md[@click=app.quit]x[/]"'


def make_hostile(hand: psycopg.Connection) -> None:
    run(
        hand,
        f"CREATE TABLE {_HOSTILE} (id text PRIMARY KEY, status text, owner text, lease_until timestamptz, "
        '"deleted\x1b_at" timestamptz)',
        f"INSERT INTO {_HOSTILE} VALUES (E'\x1b[2J1', 'running', E'\x1b]0;t\x07w', now() - interval '1 h')",
        f"INSERT INTO {_HOSTILE} VALUES ('p', 'pending'), ('d', 'done')",
    )


@pytest.mark.parametrize(
    "words", [["list"], ["status"], ["sweep", "--dry-run"], ["sweep"], ["sweep", "--sure"], ["doctor"], ["profile"]]
)
def test_what_a_table_is_called_is_data_in_every_command(hand: psycopg.Connection, words: list[str]) -> None:
    make_hostile(hand)
    result = CliRunner().invoke(main, [*words, "--dsn", hand.info.dsn, "--table", _HOSTILE], color=True)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.output
    assert not {"\x1b", "\x07"} & set(result.output)


async def test_what_a_table_is_called_is_data_on_the_screen(database: Database, hand: psycopg.Connection) -> None:
    make_hostile(hand)
    app = LeasetopApp(await open_queue(database, table=_HOSTILE), actor="ops", interval=timedelta(hours=1))
    async with app.run_test(size=(140, 40)) as pilot, asyncio.timeout(60):
        while app.snapshot is None:
            await pilot.pause(0.02)
        await pilot.pause()
        await pilot.press("r")
        while not isinstance(app.screen, RequeueDialog):
            await pilot.pause(0.02)
        shown = [str(one.render()) for screen in app.screen_stack for one in screen.query(Static)]
        assert any("31md" in said for said in shown)
        assert not {"\x1b", "\x07"} & set("".join(shown))
        await pilot.press("escape")


async def test_a_profile_with_odd_names_can_be_read_again(
    database: Database, hand: psycopg.Connection, tmp_path: Path
) -> None:
    make_hostile(hand)
    document = (await guess.guess(database, _HOSTILE)).document()
    file = tmp_path / "odd.toml"
    file.write_text(profile.written(document))
    assert profile.load(file).document["actions"] == document["actions"]
