"""Tables that leasetop has never seen: what their columns are taken for, and what a requeue leaves of them.

`cases/NAME.sql` makes a table as somebody out there might have it; `cases/NAME.json` says what must come of it.
"""

import json
import tomllib
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from leasetop import guess, journal, profile
from leasetop.database import Database
from leasetop.errors import NoQueue, Refused
from leasetop.mapping import Meaning
from leasetop.model import Policy, State, View
from leasetop.naming import MappingError
from leasetop.queue import Queue
from tests.queues import open_queue

CASES = Path(__file__).parent / "cases"
NAMES = sorted(file.stem for file in CASES.glob("*.json"))


@pytest.fixture(autouse=True)
def own_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "state" / "journal.jsonl"
    monkeypatch.setattr("leasetop.journal.file", lambda: file)
    return file


def told(case: dict[str, Any]) -> dict[str, str]:
    """The hints of a case as an operator gives them with --set."""
    hints = case.get("hints", {})
    if isinstance(hints, str):
        return {}
    states = {state: str(value) for state, value in hints.get("states", {}).items()}
    return states | {name: hints[name] for name in ("lease", "time_zone") if name in hints}


async def understood(database: Database, name: str, dsn: str) -> tuple[dict[str, Any], Queue, Meaning]:
    case = json.loads((CASES / f"{name}.json").read_text())
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute((CASES / f"{name}.sql").read_bytes())
    meaning = await guess.guess(database, case["table"], told(case))
    return case, Queue(database, profile.read(meaning.document(), name)), meaning


@pytest.mark.parametrize("name", NAMES)
async def test_every_job_is_counted_in_its_state(database: Database, blank_dsn: str, name: str) -> None:
    case, queue, _ = await understood(database, name, blank_dsn)
    snapshot = await queue.snapshot(View.ALL)
    counts = {str(state): tally.count for state, tally in snapshot.tallies.items()}
    assert {state: counts.get(state, 0) for state in case["counts"]} == case["counts"]
    assert sum(counts.values()) == len(snapshot.jobs) == case["total"]
    if "owners" in case:
        assert {owner.name: owner.held for owner in snapshot.owners} == case["owners"]


@pytest.mark.parametrize("name", NAMES)
async def test_what_needs_attention_is_stuck_with_its_reason(database: Database, blank_dsn: str, name: str) -> None:
    case, queue, _ = await understood(database, name, blank_dsn)
    jobs = (await queue.snapshot(View.STUCK)).jobs
    assert {job.id: str(job.reason) for job in jobs} == case["attention"]


@pytest.mark.parametrize("name", NAMES)
async def test_what_the_table_lacks_is_said(database: Database, blank_dsn: str, name: str) -> None:
    case, queue, _ = await understood(database, name, blank_dsn)
    said = " | ".join((await queue.snapshot()).notes)
    assert [words for words in case["says"] if words not in said] == []


@pytest.mark.parametrize("name", NAMES)
async def test_a_requeue_does_what_the_case_says(database: Database, blank_dsn: str, name: str) -> None:
    case, queue, meaning = await understood(database, name, blank_dsn)
    found = await queue.find_jobs(list(case["requeue"]))
    for given, wanted in case["requeue"].items():
        job = found[given]
        assert job is not None, given
        outcome = await queue.requeue(job, "ops@box", "test")
        if wanted != "ok":
            assert not outcome.done
            assert wanted.lower() in outcome.words.lower()
            continue
        assert outcome.done, outcome.words
        assert not (await queue.requeue(job, "ops@box", "again")).done
        after = (await queue.find_jobs([given]))[given]
        assert after is not None
        assert after.attempts == job.attempts
        (key,) = (column for column in meaning.table.columns if column.key)
        with psycopg.connect(blank_dsn) as connection:
            for column, value in case["after_requeue"].items():
                query = sql.SQL("SELECT {}::text FROM {} WHERE {}::text = %s").format(
                    sql.Identifier(column), sql.SQL(meaning.table.quoted), sql.Identifier(key.name)
                )
                row = connection.execute(query, [given]).fetchone()
                assert row is not None
                if value != "unchanged":
                    assert row[0] == (None if value is None else str(value)), column


@pytest.mark.parametrize("name", NAMES)
async def test_a_sweep_ends_expired_leases_only(database: Database, blank_dsn: str, name: str) -> None:
    case, queue, _ = await understood(database, name, blank_dsn)
    live = (await queue.snapshot(View.PROCESSING)).jobs
    expired = {key for key, reason in case["attention"].items() if reason == "expired"}
    preview = await queue.expired()
    assert {job.id for job in preview} == expired
    assert {one.key[0] for one in await queue.sweep(Policy.REQUEUE, "ops", preview)} == expired
    assert await queue.sweep(Policy.REQUEUE, "ops", preview) == ()
    assert (await queue.snapshot(View.PROCESSING)).jobs == live
    with pytest.raises(Refused, match="no state for parked jobs"):
        await queue.sweep(Policy.PARK, "ops")


@pytest.mark.parametrize("name", NAMES)
async def test_a_written_profile_reads_as_it_was(database: Database, blank_dsn: str, name: str, tmp_path: Path) -> None:
    _, queue, meaning = await understood(database, name, blank_dsn)
    file = tmp_path / "mine.toml"
    file.write_text(profile.written(meaning.document()))
    assert tomllib.loads(file.read_text()) == meaning.document()
    assert profile.load(file) == queue.profile


async def test_an_act_on_a_table_without_history_is_in_the_journal(
    database: Database, blank_dsn: str, own_journal: Path
) -> None:
    _, queue, _ = await understood(database, "plain_payment_jobs", blank_dsn)
    job = (await queue.find_jobs(["3"]))["3"]
    assert job is not None
    await queue.requeue(job, "ops@box", "pod died")
    (entry,) = map(json.loads, own_journal.read_text().splitlines())
    assert (entry["actor"], entry["act"], entry["job"], entry["reason"]) == ("ops@box", "requeue", ["3"], "pod died")
    assert entry["seen"]["owner"] == "worker-2"
    assert entry["done"]
    assert own_journal.stat().st_mode & 0o777 == 0o600


async def test_an_act_that_cannot_be_journaled_says_so(database: Database, blank_dsn: str, own_journal: Path) -> None:
    _, queue, _ = await understood(database, "plain_payment_jobs", blank_dsn)
    own_journal.parent.write_text("in the way")
    job = (await queue.find_jobs(["3"]))["3"]
    assert job is not None
    outcome = await queue.requeue(job, "ops@box", "pod died")
    assert outcome.done
    assert f"not in the journal {journal.file()}" in outcome.words


async def test_a_plain_payment_jobs_opens_without_a_question(database: Database, blank_dsn: str) -> None:
    with psycopg.connect(blank_dsn, autocommit=True) as connection:
        connection.execute((CASES / "plain_payment_jobs.sql").read_bytes())
    queue = await open_queue(database)
    assert not queue.profile.is_home
    assert (await queue.snapshot()).tallies[State.STUCK].count == 1


@pytest.mark.parametrize(
    ("columns", "settings", "said"),
    [
        ("id int PRIMARY KEY, status text", {}, "no column says until when a lease lasts"),
        ("id int, status text, lease_until timestamptz", {}, "no primary or unique key"),
        ("id int PRIMARY KEY, locked_at timestamptz", {}, "tell how long a lease lasts"),
        ("id int PRIMARY KEY, state int, lease_until timestamptz", {}, "--set pending=VALUE --set processing=VALUE"),
        ("id int PRIMARY KEY, state int, lease_until timestamptz", {"owner": "nobody"}, "has no such column"),
        ("id int PRIMARY KEY, state int, lease_until timestamptz", {"colour": "red"}, "not known; known are"),
        (
            "id int PRIMARY KEY, state int, lease_until timestamptz",
            {"lease": "soon"},
            "a column, or a column + time-out",
        ),
    ],
)
async def test_what_cannot_be_known_is_asked_for(
    database: Database, blank_dsn: str, columns: str, settings: dict[str, str], said: str
) -> None:
    with psycopg.connect(blank_dsn, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE odd ({columns})".encode())
    with pytest.raises(MappingError) as caught:
        await guess.guess(database, "odd", settings)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["nothing", "no.such", '"', "a.b.c.d", "x; DROP TABLE y", ""])
async def test_a_table_that_is_not_there_is_said(database: Database, name: str) -> None:
    with pytest.raises(NoQueue, match="there is no table"):
        await guess.guess(database, name)


@pytest.mark.parametrize(
    ("status", "waiting"),
    [
        ("text DEFAULT 'queued'", "queued"),
        ("text CHECK (status IN ('QUEUED', 'running', 'it''s odd'))", "QUEUED"),
        ("varchar(20) CHECK (status::text = ANY (ARRAY['new', 'running']))", "new"),
    ],
)
async def test_a_state_that_no_row_is_in_is_known_by_default_and_constraint(
    database: Database, blank_dsn: str, status: str, waiting: str
) -> None:
    with psycopg.connect(blank_dsn, autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE tasks (id int PRIMARY KEY, status {status}, owner text, lease_until timestamptz)".encode()
        )
        connection.execute(b"INSERT INTO tasks VALUES (1, 'running', 'w', now() - interval '1 h')")
        queue = await open_queue(database, table="tasks")
        (job,) = (await queue.snapshot()).jobs
        assert (await queue.requeue(job, "ops", "x")).done
        assert connection.execute("SELECT status FROM tasks").fetchone() == (waiting,)


async def test_a_table_in_our_own_words_opens_when_nothing_is_pending(database: Database, blank_dsn: str) -> None:
    with psycopg.connect(blank_dsn, autocommit=True) as connection:
        connection.execute(
            b"CREATE TABLE payment_jobs (id int PRIMARY KEY, status text, lease_owner text, lease_until timestamptz)"
        )
        connection.execute(b"INSERT INTO payment_jobs VALUES (1, 'Processing', 'w', now() - interval '1 h')")
        queue = await open_queue(database)
        (job,) = (await queue.snapshot()).jobs
        assert (await queue.requeue(job, "ops", "x")).done
        assert connection.execute("SELECT status FROM payment_jobs").fetchone() == ("Pending",)


@pytest.mark.parametrize(
    "columns",
    ["st char(1), worker text", "done boolean, failed boolean, worker text", "progress int, locked_by text"],
)
async def test_what_may_be_a_status_is_asked_about(database: Database, blank_dsn: str, columns: str) -> None:
    with psycopg.connect(blank_dsn, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE odd (id int PRIMARY KEY, {columns}, lease_until timestamptz)".encode())
    with pytest.raises(MappingError, match=r"say whether a job is done.*--set status="):
        await guess.guess(database, "odd")
    with pytest.raises(MappingError, match="which column is the status"):
        await guess.guess(database, "odd", {"pending": "P"})
    assert (await guess.guess(database, "odd", {"status": "none"})).document()


async def test_without_a_status_an_end_says_that_a_job_is_done(database: Database, blank_dsn: str) -> None:
    with psycopg.connect(blank_dsn, autocommit=True) as connection:
        connection.execute(
            b"CREATE TABLE tasks (id int PRIMARY KEY, locked_by text, locked_until timestamptz, "
            b"finished_at timestamptz)"
        )
        connection.execute(
            b"""INSERT INTO tasks VALUES (1, NULL, NULL, NULL), (2, 'w', now() - interval '1 h', NULL),
                (3, 'w', now() - interval '1 h', now()), (4, NULL, NULL, now())"""
        )
        queue = await open_queue(database, table="tasks")
        snapshot = await queue.snapshot(View.ALL)
        counts = {state: tally.count for state, tally in snapshot.tallies.items() if tally.count}
        assert counts == {State.PENDING: 1, State.STUCK: 1, State.COMPLETED: 2}
        done = (await queue.find_jobs(["3"]))["3"]
        assert done is not None
        assert not (await queue.requeue(done, "ops", "x")).done


async def test_a_state_that_is_only_compared_needs_no_row(database: Database, blank_dsn: str) -> None:
    with psycopg.connect(blank_dsn, autocommit=True) as connection:
        connection.execute(b"CREATE TABLE tasks (id int PRIMARY KEY, status text, owner text, lease_until timestamptz)")
        connection.execute(b"INSERT INTO tasks VALUES (1, 'PENDING', NULL, NULL)")
        queue = await open_queue(database, table="tasks")
        connection.execute(b"INSERT INTO tasks VALUES (2, 'RUNNING', 'w', now() - interval '1 h')")
        assert (await queue.snapshot()).tallies[State.STUCK].count == 1


async def test_a_part_of_a_key_may_hold_a_slash(database: Database, blank_dsn: str) -> None:
    with psycopg.connect(blank_dsn, autocommit=True) as connection:
        connection.execute(
            b"CREATE TABLE t (region text, id int, status text, owner text, lease_until timestamptz, "
            b"PRIMARY KEY (region, id))"
        )
        connection.execute(
            b"INSERT INTO t VALUES ('eu/1', 2, 'running', 'w', now() - interval '1 h'), "
            b"('eu', 1, 'pending', NULL, NULL)"
        )
        queue = await open_queue(database, table="t")
        assert {job.id for job in (await queue.snapshot()).jobs} == {"eu\\/1/2", "eu/1"}
        found = await queue.find_jobs(["eu\\/1/2", "eu/1/2", "eu/1", "eu", "eu/1/x"])
        assert {given: job.key for given, job in found.items() if job} == {
            "eu\\/1/2": ("eu/1", "2"),
            "eu/1": ("eu", "1"),
        }
        (seen,) = await queue.expired()
        (swept,) = await queue.sweep(Policy.REQUEUE, "ops", [seen])
        assert swept.key == ("eu/1", "2")
