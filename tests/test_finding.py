"""Which queues a database holds, and which of several is meant."""

import psycopg
import pytest

from leasetop import schema
from leasetop.database import Database
from leasetop.errors import NoQueue
from leasetop.finding import SeveralQueues, survey
from leasetop.model import State
from leasetop.profile import ProfileError
from tests.queues import open_queue

_CHANCY = """
CREATE TABLE {0}.chancy_jobs (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), queue text, func text, kwargs jsonb,
  state text, priority int DEFAULT 0, attempts int DEFAULT 0, max_attempts int DEFAULT 1, taken_by text,
  created_at timestamptz DEFAULT now(), started_at timestamptz, completed_at timestamptz,
  scheduled_at timestamptz DEFAULT now(), unique_key text, errors jsonb DEFAULT '[]', claim_id uuid);
CREATE TABLE {0}.chancy_workers (worker_id text PRIMARY KEY, last_seen timestamptz);
CREATE TABLE {0}.chancy_queues (name text PRIMARY KEY);
INSERT INTO {0}.chancy_queues VALUES ('default');
"""
_PGMQ = """
CREATE SCHEMA pgmq;
CREATE TABLE pgmq.meta (queue_name text PRIMARY KEY, is_partitioned boolean, is_unlogged boolean);
INSERT INTO pgmq.meta VALUES ('Emails', false, false), ('it''s odd', false, false);
CREATE TABLE pgmq.q_emails (msg_id bigint PRIMARY KEY, read_ct int DEFAULT 0, enqueued_at timestamptz DEFAULT now(),
  last_read_at timestamptz, vt timestamptz DEFAULT now(), message jsonb);
CREATE TABLE pgmq.a_emails (LIKE pgmq.q_emails);
ALTER TABLE pgmq.a_emails ADD archived_at timestamptz DEFAULT now();
CREATE TABLE pgmq."q_it's odd" (LIKE pgmq.q_emails);
CREATE TABLE pgmq."a_it's odd" (LIKE pgmq.a_emails);
INSERT INTO pgmq.q_emails (msg_id) VALUES (1), (2);
"""


def run(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


async def test_a_known_queue_is_found_in_whatever_schema_it_is(database: Database, blank_dsn: str) -> None:
    odd = '"Odd ""one"" here"'
    run(blank_dsn, f"CREATE SCHEMA {odd}", _CHANCY.format(odd))
    queue = await open_queue(database)
    assert queue.profile.id == "chancy"
    assert queue.profile.title == 'chancy in Odd "one" here'
    assert (await queue.snapshot()).tallies[State.PENDING].count == 0


async def test_a_schema_that_the_role_may_not_use_is_not_looked_into(database: Database, blank_dsn: str) -> None:
    run(blank_dsn, "CREATE SCHEMA closed", _CHANCY.format("closed"))
    stranger = f"stranger_{id(database)}"
    run(blank_dsn, f"CREATE ROLE {stranger} LOGIN")
    other = Database(f"{blank_dsn} options='-c role={stranger}'")
    try:
        assert (await survey(other)).profiles == ()
    finally:
        await other.close()
        run(blank_dsn, f"DROP ROLE {stranger}")


async def test_of_several_queues_one_must_be_named(database: Database, blank_dsn: str) -> None:
    run(blank_dsn, _CHANCY.format("public"), "CREATE SCHEMA b", _CHANCY.format("b"))
    with psycopg.connect(blank_dsn) as connection:
        schema.apply(connection)
    with pytest.raises(SeveralQueues, match=r"3 queues here: 'payment_jobs', 'chancy in b', 'chancy'.*--queue"):
        await open_queue(database)
    assert (await open_queue(database, name="chancy in b")).profile.live.relation.startswith('"b"."chancy_jobs"')
    with pytest.raises(NoQueue, match="no queue 'river' here; found: 'payment_jobs', "):
        await open_queue(database, name="river")


async def test_each_queue_of_a_library_that_has_tables_for_each_is_one(database: Database, blank_dsn: str) -> None:
    run(blank_dsn, _PGMQ)
    found = await survey(database)
    assert [profile.title for profile in found.profiles] == ["pgmq: Emails", "pgmq: it's odd"]
    emails = await open_queue(database, name="pgmq: Emails")
    assert (await emails.snapshot()).tallies[State.PENDING].count == 2
    odd = await open_queue(database, name="pgmq: it's odd")
    assert (await odd.snapshot()).tallies[State.PENDING].count == 0


async def test_what_cannot_be_read_is_told_and_hides_nothing(database: Database, blank_dsn: str) -> None:
    run(blank_dsn, _PGMQ, _CHANCY.format("public"))
    stranger = f"reader_{id(database)}"
    run(blank_dsn, f"CREATE ROLE {stranger} LOGIN", f"GRANT USAGE ON SCHEMA pgmq, public TO {stranger}")
    other = Database(f"{blank_dsn} options='-c role={stranger}'")
    try:
        found = await survey(other)
        assert [profile.id for profile in found.profiles] == ["chancy"]
        (trouble,) = found.troubles
        assert trouble.startswith("pgmq: no privilege")
    finally:
        await other.close()
        run(blank_dsn, f"DROP OWNED BY {stranger}", f"DROP ROLE {stranger}")


async def test_a_payment_jobs_that_cannot_be_understood_does_not_hide_the_others(
    database: Database, blank_dsn: str
) -> None:
    run(blank_dsn, _CHANCY.format("public"), "CREATE TABLE payment_jobs (what text)")
    found = await survey(database)
    assert [profile.id for profile in found.profiles] == ["chancy"]
    assert "payment_jobs" in found.troubles[0]


async def test_a_parameter_moves_the_line_between_live_and_stuck(database: Database, blank_dsn: str) -> None:
    run(
        blank_dsn,
        _CHANCY.format("public"),
        "INSERT INTO chancy_workers VALUES ('w', now() - interval '2 minutes')",
        "INSERT INTO chancy_jobs (queue, state, taken_by, attempts) VALUES ('default', 'running', 'w', 1)",
    )
    assert (await (await open_queue(database)).snapshot()).tallies[State.STUCK].count == 1
    patient = await open_queue(database, params={"stale_after": "5 minutes"})
    snapshot = await patient.snapshot()
    assert (snapshot.tallies[State.STUCK].count, snapshot.tallies[State.PROCESSING].count) == (0, 1)
    (job,) = snapshot.jobs
    assert not (await patient.requeue(job, "ops", "impatient")).done


@pytest.mark.parametrize(
    ("params", "said"),
    [({"stale": "1 s"}, "has no parameter 'stale'; it has stale_after"), ({"stale_after": "'; DROP"}, "stale_after:")]
    + [({"stale_after": span}, "is not above zero") for span in ("-1 minute", "0", "00:00")],
)
async def test_a_wrong_parameter_is_refused_in_words(
    database: Database, blank_dsn: str, params: dict[str, str], said: str
) -> None:
    run(blank_dsn, _CHANCY.format("public"))
    with pytest.raises(ProfileError, match=said):
        await open_queue(database, params=params)


async def test_where_nothing_is_found_the_message_says_what_was_looked_for(database: Database) -> None:
    with pytest.raises(NoQueue, match=r"looked for payment_jobs, .*procrastinate.*leasetop init"):
        await open_queue(database)
