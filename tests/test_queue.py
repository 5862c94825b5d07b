"""What the queue says of its table, and what it refuses."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import psycopg
import pytest

from leasetop import schema
from leasetop.database import Database
from leasetop.errors import NoQueue, Refused, Unreachable
from leasetop.model import Job, Policy, Reason, State, View
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


async def seen(queue: Queue, job: int) -> Job:
    found = (await queue.find_jobs([str(job)]))[str(job)]
    assert found is not None
    return found


async def test_every_job_is_in_one_shown_state_and_totals_add_up(queue: Queue, connection: psycopg.Connection) -> None:
    connection.execute("ALTER TABLE payment_jobs DROP CONSTRAINT payment_jobs_known_status")
    world.put(connection)
    world.put(connection, delay_s=60)
    world.held(connection)
    world.held(connection, lease_s=-5)
    world.put(connection, "Processing", owner="w/1/a", attempts=1)
    world.put(connection, "Stuck", attempts=1)
    world.put(connection, "Failed", attempts=5)
    world.put(connection, "Completed", attempts=1)
    world.put(connection, "Cancelled")
    world.put(connection, "frozen")
    snapshot = await queue.snapshot(View.ALL)
    counts = {state: tally.count for state, tally in snapshot.tallies.items()}
    assert counts == dict.fromkeys(State, 1) | {State.STUCK: 3}
    assert {reason: tally.count for reason, tally in snapshot.reasons.items()} == dict.fromkeys(
        (Reason.EXPIRED, Reason.NO_LEASE, Reason.PARKED), 1
    )
    assert len(snapshot.jobs) == sum(counts.values()) == 10
    assert len({job.key for job in snapshot.jobs}) == 10


async def test_the_active_tab_shows_what_is_stuck_first(queue: Queue, connection: psycopg.Connection) -> None:
    waiting, running = world.put(connection), world.held(connection)
    expired = world.held(connection, lease_s=-5)
    snapshot = await queue.snapshot(View.ACTIVE)
    assert [job.id for job in snapshot.jobs] == [str(expired), str(running), str(waiting)]


async def test_owners_count_live_and_expired_leases(queue: Queue, connection: psycopg.Connection) -> None:
    world.held(connection, "a/1/x")
    world.held(connection, "a/1/x", lease_s=-5)
    world.held(connection, "b/2/y")
    world.put(connection, "Stuck", attempts=1)
    owners = {owner.name: (owner.held, owner.expired) for owner in (await queue.snapshot()).owners}
    assert owners == {"a/1/x": (2, 1), "b/2/y": (1, 0)}


async def test_infinite_and_ancient_leases_are_read(queue: Queue, connection: psycopg.Connection) -> None:
    for until in ("infinity", "-infinity", "12345-01-01", "0044-03-15 BC"):
        job = world.held(connection)
        connection.execute("UPDATE payment_jobs SET lease_until = %s WHERE id = %s", [until, job])
    states = [job.state for job in (await queue.snapshot(View.ALL)).jobs]
    assert states == [State.STUCK] * 2 + [State.PROCESSING] * 2


async def test_a_capped_count_is_honest(
    queue: Queue, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasetop.reading.CAP", 3)
    for _ in range(5):
        world.put(connection)
    tally = (await queue.snapshot()).tallies[State.PENDING]
    assert (tally.count, tally.capped) == (3, True)


async def test_a_snapshot_writes_nothing(queue: Queue, connection: psycopg.Connection) -> None:
    async with queue.database.reading() as reading:
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            await reading.execute("DELETE FROM payment_jobs")
        await reading.execute("ROLLBACK")


async def test_an_expired_job_is_requeued_with_its_attempts_and_history(
    queue: Queue, connection: psycopg.Connection
) -> None:
    job = world.held(connection, lease_s=-5, attempts=2, stage="capture")
    outcome = await queue.requeue(await seen(queue, job), "ops@box", "pod died")
    assert outcome.done
    columns = "status, lease_owner, lease_until, claimed_at, attempts, stage"
    assert world.row(connection, job, columns) == ("Pending", None, None, None, 2, "capture")
    assert world.events(connection, job) == ["expired", "requeued"]
    who = connection.execute("SELECT actor, reason, seen->>'owner' FROM payment_job_history WHERE event = 'requeued'")
    assert who.fetchone() == ("ops@box", "pod died", "w/1/a")


async def test_a_second_requeue_is_refused(queue: Queue, connection: psycopg.Connection) -> None:
    job = world.held(connection, lease_s=-5)
    before = await seen(queue, job)
    assert (await queue.requeue(before, "ops", "first")).done
    second = await queue.requeue(before, "ops", "second")
    assert not second.done
    assert "status was Processing, is Pending" in second.words
    assert world.events(connection, job).count("requeued") == 1


async def test_a_live_lease_is_refused_with_owner_and_seconds_left(
    queue: Queue, connection: psycopg.Connection
) -> None:
    job = world.held(connection, "pay-7/41/ab", lease_s=20)
    outcome = await queue.requeue(await seen(queue, job), "ops", "hurry")
    assert not outcome.done
    assert "pay-7/41/ab holds its lease for another 19s" in outcome.words
    assert world.row(connection, job) == ("Processing", "pay-7/41/ab", 1)


async def test_a_lease_that_was_taken_since_is_refused(queue: Queue, connection: psycopg.Connection) -> None:
    job = world.held(connection, lease_s=-5)
    before = await seen(queue, job)
    connection.execute(
        "UPDATE payment_jobs SET lease_owner = 'b/2/y', attempts = 2, lease_until = now() + interval '20 s'"
    )
    outcome = await queue.requeue(before, "ops", "late")
    assert not outcome.done
    assert "claimed since you looked" in outcome.words


async def test_a_heartbeat_since_is_a_change(queue: Queue, connection: psycopg.Connection) -> None:
    job = world.held(connection, lease_s=-5)
    before = await seen(queue, job)
    connection.execute("UPDATE payment_jobs SET lease_until = now() - interval '1 s'")
    outcome = await queue.requeue(before, "ops", "late")
    assert not outcome.done
    assert "lease until was" in outcome.words


@pytest.mark.parametrize(
    ("status", "word"),
    [("Completed", "Completed"), ("Cancelled", "Cancelled"), ("Pending", "Pending already")],
)
async def test_what_is_not_stuck_or_failed_is_refused(
    queue: Queue, connection: psycopg.Connection, status: str, word: str
) -> None:
    job = world.put(connection, status, attempts=1)
    outcome = await queue.requeue(await seen(queue, job), "ops", "why not", force=True)
    assert not outcome.done
    assert word in outcome.words
    assert world.row(connection, job)[0] == status


async def test_a_job_that_is_gone_is_said_to_be(queue: Queue, connection: psycopg.Connection) -> None:
    job = world.put(connection, "Failed", attempts=5)
    before = await seen(queue, job)
    connection.execute("DELETE FROM payment_jobs")
    assert "it is gone" in (await queue.requeue(before, "ops", "x")).words


async def test_used_up_attempts_get_one_more(queue: Queue, connection: psycopg.Connection) -> None:
    job = world.put(connection, "Failed", attempts=5, max_attempts=5)
    assert (await queue.requeue(await seen(queue, job), "ops", "bank is back")).done
    assert world.row(connection, job, "attempts, max_attempts, finished_at") == (5, 6, None)


async def test_forcing_a_live_lease_ends_its_attempt_in_the_history(
    queue: Queue, connection: psycopg.Connection
) -> None:
    job = world.held(connection)
    assert (await queue.requeue(await seen(queue, job), "ops", "host is dead", force=True)).done
    assert world.events(connection, job) == ["revoked", "requeued"]


async def test_a_locked_row_is_refused_in_words(queue: Queue, connection: psycopg.Connection, dsn: str) -> None:
    job = world.held(connection, lease_s=-5)
    before = await seen(queue, job)
    with psycopg.connect(dsn) as other:
        other.execute("SELECT 1 FROM payment_jobs WHERE id = %s FOR UPDATE", [job])
        with pytest.raises(Refused, match="locked by another transaction"):
            await queue.requeue(before, "ops", "x")
    assert (await queue.requeue(before, "ops", "x")).done


async def test_a_requeue_waits_for_a_completion_and_then_refuses(
    queue: Queue, connection: psycopg.Connection, dsn: str
) -> None:
    job = world.held(connection, lease_s=-5)
    before = await seen(queue, job)
    with psycopg.connect(dsn) as worker:
        worker.execute("UPDATE payment_jobs SET status = 'Completed', lease_owner = NULL, lease_until = NULL")
        act = asyncio.create_task(queue.requeue(before, "ops", "x"))
        while not connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()[0]:  # type: ignore[index]
            await asyncio.sleep(0.01)
        worker.commit()
    outcome = await act
    assert not outcome.done
    assert "never requeued" in outcome.words


async def test_a_sweep_changes_only_what_the_preview_showed(queue: Queue, connection: psycopg.Connection) -> None:
    first = world.held(connection, lease_s=-5)
    revived = world.held(connection, lease_s=-5)
    preview = await queue.expired()
    later = world.held(connection, lease_s=-5)
    connection.execute("UPDATE payment_jobs SET lease_until = now() + interval '9 s' WHERE id = %s", [revived])
    swept = await queue.sweep(Policy.REQUEUE, "ops", preview)
    assert [one.key for one in swept] == [(str(first),)]
    assert world.row(connection, later)[0] == world.row(connection, revived)[0] == "Processing"


async def test_a_sweep_parks_where_the_policy_says_so(queue: Queue, connection: psycopg.Connection) -> None:
    job = world.held(connection, lease_s=-5, attempts=5)
    await queue.sweep(Policy.PARK, "ops")
    assert world.row(connection, job) == ("Stuck", None, 5)


async def test_a_sweep_goes_on_until_nothing_is_left(
    queue: Queue, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasetop.queue.PAGE", 2)
    jobs = [world.held(connection, lease_s=-5) for _ in range(5)]
    assert len(await queue.sweep(Policy.REQUEUE, "ops")) == len(jobs)


async def test_detail_has_the_history_newest_first(queue: Queue, connection: psycopg.Connection) -> None:
    job = world.held(connection, lease_s=-5)
    await queue.requeue(await seen(queue, job), "ops", "x")
    detail = await queue.detail((str(job),))
    assert [event.event for event in detail.history or ()] == ["requeued", "expired"]
    assert (await queue.detail(("999",))).job is None


async def test_ids_that_are_none_are_not_found(queue: Queue) -> None:
    ids = ["12x", "", "99999999999999999999", "1; DROP TABLE payment_jobs"]
    assert await queue.find_jobs(ids) == dict.fromkeys(ids)


async def test_a_payment_is_enqueued_once(queue: Queue, connection: psycopg.Connection) -> None:
    payment = {"kind": "charge", "idempotency_key": "order-1", "amount": "9.99", "currency": "EUR"}
    made = await queue.enqueue([payment, payment])
    assert made[0] is not None
    assert made[1] is None


async def test_a_database_without_a_queue_is_said_to_have_none(blank_dsn: str) -> None:
    database = Database(blank_dsn)
    with pytest.raises(NoQueue, match="payment_jobs"):
        await open_queue(database)
    await database.close()


async def test_a_broken_connection_is_made_anew(queue: Queue, connection: psycopg.Connection) -> None:
    await queue.snapshot()
    connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasetop'")
    with pytest.raises(Unreachable):
        await queue.snapshot()
    assert (await queue.snapshot()).server.database


async def test_a_read_only_database_refuses_acts_itself(dsn: str, connection: psycopg.Connection) -> None:
    job = world.held(connection, lease_s=-5)
    database = Database(dsn, read_only=True)
    queue = await open_queue(database)
    with pytest.raises(Refused, match="read-only"):
        await queue.requeue(await seen(queue, job), "ops", "x")
    await database.close()


async def test_a_role_without_privileges_is_told_so(queue: Queue, connection: psycopg.Connection, dsn: str) -> None:
    job = world.held(connection, lease_s=-5)
    connection.execute("DROP ROLE IF EXISTS onlooker")
    connection.execute("CREATE ROLE onlooker LOGIN")
    connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO onlooker")
    database = Database(psycopg.conninfo.make_conninfo(dsn, user="onlooker"))
    try:
        with pytest.raises(Refused, match="no privilege"):
            await (await open_queue(database)).requeue(await seen(queue, job), "onlooker", "x")
    finally:
        await database.close()
        connection.execute("DROP OWNED BY onlooker")
        connection.execute("DROP ROLE onlooker")


async def test_a_session_that_somebody_set_read_only_stays_that(dsn: str, connection: psycopg.Connection) -> None:
    job = world.held(connection, lease_s=-5)
    database = Database(psycopg.conninfo.make_conninfo(dsn, options="-c default_transaction_read_only=on"))
    queue = await open_queue(database)
    with pytest.raises(Refused, match="read-only"):
        await queue.sweep(Policy.REQUEUE, "ops")
    await database.close()
    assert world.row(connection, job)[0] == "Processing"


async def test_what_a_trigger_says_reaches_nobody_as_an_escape(queue: Queue, connection: psycopg.Connection) -> None:
    job = world.held(connection, lease_s=-5)
    connection.execute(
        """CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN RAISE EXCEPTION E'\\x1b]0;PWN\\x07\\u009b2J\\nline 2'; END $$;
           CREATE TRIGGER shout BEFORE UPDATE ON payment_jobs FOR EACH ROW EXECUTE FUNCTION shout()"""
    )
    with pytest.raises(Refused) as caught:
        await queue.requeue(await seen(queue, job), "ops", "x")
    assert str(caught.value).isprintable()


async def test_a_forced_requeue_beats_the_heartbeats_that_come_in_between(
    queue: Queue, connection: psycopg.Connection
) -> None:
    job = world.held(connection)
    before = await seen(queue, job)
    connection.execute("UPDATE payment_jobs SET lease_until = lease_until + interval '9 s'")
    outcome = await queue.requeue(before, "ops", "its host is gone", force=True)
    assert outcome.done, outcome.words
    assert world.events(connection, job) == ["revoked", "requeued"]


async def test_a_forced_requeue_does_not_hit_another_attempt(queue: Queue, connection: psycopg.Connection) -> None:
    job = world.held(connection)
    before = await seen(queue, job)
    connection.execute("UPDATE payment_jobs SET attempts = 2, lease_until = lease_until + interval '9 s'")
    assert not (await queue.requeue(before, "ops", "x", force=True)).done


async def test_odd_watchers_rows_are_only_late(queue: Queue, connection: psycopg.Connection) -> None:
    connection.execute(
        """INSERT INTO leasetop_watchers (name, policy, interval, seen_at)
           VALUES ('a', 'weird', '2700000 years', now() - interval '3 days'), ('b', 'park', '30 s', 'infinity')"""
    )
    snapshot = await queue.snapshot()
    assert [watcher.is_late(snapshot.now) for watcher in snapshot.watchers or ()] == [True, True]


async def test_more_owners_than_are_listed_are_counted(queue: Queue, connection: psycopg.Connection) -> None:
    for number in range(7):
        world.held(connection, f"w/{number}/a", lease_s=-5 if number == 0 else 20)
    snapshot = await queue.snapshot(owners=3)
    assert len(snapshot.owners) == 3
    assert (snapshot.owner_count, snapshot.live_owner_count, snapshot.lease_count) == (7, 6, 7)


async def test_a_text_that_is_cut_says_so_and_is_whole_in_the_details(
    queue: Queue, connection: psycopg.Connection
) -> None:
    job = world.put(connection, "Failed", attempts=5, error="a" * 290 + " PSP-REF=XYZ123456789")
    assert ((await queue.snapshot(View.FAILED)).jobs[0].error or "").endswith("…")
    detail = (await queue.detail((str(job),))).job
    assert detail is not None
    assert (detail.error or "").endswith("PSP-REF=XYZ123456789")


async def test_a_role_that_may_read_the_jobs_only_still_sees_them(dsn: str, connection: psycopg.Connection) -> None:
    role = f"reader_{id(connection)}"
    connection.execute(f"CREATE ROLE {role}".encode())
    connection.execute(f"GRANT SELECT ON payment_jobs TO {role}".encode())
    number = world.held(connection)
    database = Database(f"{dsn} options='-c role={role}'")
    try:
        queue = await open_queue(database)
        snapshot = await queue.snapshot()
        assert [job.id for job in snapshot.jobs] == [str(number)]
        assert (snapshot.watchers, snapshot.throughput) == (None, None)
        assert "history: this role may not read them" in snapshot.notes
        detail = await queue.detail(snapshot.jobs[0].key)
        assert detail.job is not None and detail.history is None
    finally:
        await database.close()
        connection.execute(f"DROP OWNED BY {role}".encode())
        connection.execute(f"DROP ROLE {role}".encode())


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "EUC_JP"])
async def test_a_database_of_another_encoding_opens_and_is_acted_on(
    new_database: Callable[..., str], encoding: str
) -> None:
    dsn = new_database("template0", encoding)
    with psycopg.connect(dsn, autocommit=True) as connection:
        schema.apply(connection)
        number = world.held(connection, lease_s=-5)
        connection.execute("UPDATE payment_jobs SET last_error = repeat('x', 400) WHERE id = %s", [number])
        if encoding == "SQL_ASCII":
            connection.execute(rb"UPDATE payment_jobs SET stage = E'\344\377'")
    database = Database(dsn)
    try:
        queue = await open_queue(database)
        (job,) = (await queue.snapshot()).jobs
        assert job.error == "x" * 300 + "…"
        assert job.stage == ("\ufffd\ufffd" if encoding == "SQL_ASCII" else job.stage)
        assert (await queue.detail(job.key)).history is not None
        assert (await queue.requeue(job, "ops@box", "pod died")).done
    finally:
        await database.close()


async def test_many_jobs_are_read_by_their_keys_at_once(queue: Queue, connection: psycopg.Connection) -> None:
    numbers = [world.held(connection, lease_s=-5) for _ in range(3)]
    keys = [*((str(number),) for number in numbers), ("999999",)]
    found = await queue.read_jobs(keys)
    assert list(found) == keys
    assert [None if job is None else job.id for job in found.values()] == [*map(str, numbers), None]
    assert await queue.read_jobs([]) == {}


async def test_many_jobs_of_a_composite_key_are_read_at_once(database: Database, blank_dsn: str) -> None:
    with psycopg.connect(blank_dsn, autocommit=True) as hand:
        hand.execute(
            b"CREATE TABLE jobs (region varchar(9), at timestamptz, status text, owner text, lease_until timestamptz, "
            b"PRIMARY KEY (region, at))"
        )
        hand.execute(
            b"INSERT INTO jobs SELECT r, t, 'pending' FROM unnest(ARRAY['a/b', 'c']) r, "
            b"unnest(ARRAY['2026-01-01'::timestamptz, '2026-01-02']) t"
        )
        hand.execute(b"INSERT INTO jobs VALUES ('x', now(), 'running', 'w', now()), ('y', now(), 'done', NULL, NULL)")
    queue = await open_queue(database, table="jobs")
    jobs = (await queue.snapshot(View.PENDING)).jobs
    assert len(jobs) == 4
    wanted = [jobs[0].key, jobs[3].key, (jobs[0].key[0], "1999-01-01")]
    found = await queue.read_jobs(wanted)
    assert [job.key if job else None for job in found.values()] == [*wanted[:2], None]
