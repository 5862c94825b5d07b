"""The worker as a library: what a handler gets, and what becomes of a job however its handler ends."""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta

import psycopg
import pytest
from psycopg import conninfo, sql

from leasetop import schema
from leasetop.demo.postgres import EmbeddedPostgres
from leasetop.endings import error_text
from leasetop.errors import LeasetopError
from leasetop.leases import ClaimedJob, LeaseLost
from leasetop.model import Policy
from leasetop.session import SettingsError
from leasetop.worker import PermanentFailure, Settings, Worker
from tests import world
from tests.waiting import until
from tests.workers import Events, running

QUICK = {"poll": timedelta(milliseconds=20), "backoff": timedelta(milliseconds=10), "drain": timedelta(seconds=5)}


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as made:
        yield made


def worker(dsn: str, handler: Callable[[ClaimedJob], object], events: Events, **settings: object) -> Worker:
    return Worker(dsn, handler, Settings(**(QUICK | settings)), observer=events)  # type: ignore[arg-type]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_plain_handler_gets_the_job_with_its_token(
    dsn: str, connection: psycopg.Connection, concurrency: int
) -> None:
    job, events, got = world.put(connection, key="k1", stage="authorize"), Events(), []
    with running(made := worker(dsn, got.append, events, concurrency=concurrency)):
        events.wait("completed", job)
    (claimed,) = got
    assert (claimed.id, claimed.attempt, claimed.idempotency_key, claimed.stage) == (job, 1, "k1", "authorize")
    assert claimed.token == (made.owner, 1)
    assert str(claimed.amount) == "12.30"
    assert claimed.payload == {}


def test_an_async_handler_completes_many_at_once(dsn: str, connection: psycopg.Connection) -> None:
    jobs, events, together = [world.put(connection) for _ in range(4)], Events(), threading.Barrier(4, timeout=10)

    async def handler(job: ClaimedJob) -> None:
        await job.areached("met")
        await asyncio.to_thread(together.wait)

    with running(worker(dsn, handler, events, concurrency=4, batch=4)):
        for job in jobs:
            events.wait("completed", job)
    assert world.row(connection, jobs[0], "stage") == ("met",)


def test_an_exception_is_tried_again_and_its_words_are_kept(dsn: str, connection: psycopg.Connection) -> None:
    job, events = world.put(connection), Events()

    def handler(claimed: ClaimedJob) -> None:
        if claimed.attempt == 1:
            raise ValueError("bank said\x00no\udc80")

    with running(worker(dsn, handler, events)):
        events.wait("completed", job)
    error = connection.execute("SELECT error FROM payment_job_history WHERE event = 'failed'").fetchone()
    assert error == ("ValueError: bank said␀no\\udc80",)
    assert world.events(connection, job) == ["failed", "completed"]


def test_a_permanent_failure_is_not_tried_again(dsn: str, connection: psycopg.Connection) -> None:
    job, events = world.put(connection), Events()

    def handler(claimed: ClaimedJob) -> None:
        raise PermanentFailure("card declined")

    with running(worker(dsn, handler, events)):
        events.wait("failed", job)
    assert world.row(connection, job, "status, attempts, last_error") == (
        "Failed",
        1,
        "PermanentFailure: card declined",
    )


def test_a_stage_is_recorded_before_the_work_goes_on(dsn: str, connection: psycopg.Connection) -> None:
    job, events, seen = world.put(connection), Events(), []

    def handler(claimed: ClaimedJob) -> None:
        claimed.reached("capture")
        seen.append(world.row(connection, job, "stage, status"))

    with running(worker(dsn, handler, events)):
        events.wait("completed", job)
    assert seen == [("capture", "Processing")]


def test_an_async_handler_is_cancelled_when_its_lease_is_lost(dsn: str, connection: psycopg.Connection) -> None:
    job, events, ends = world.put(connection), Events(), []

    async def handler(claimed: ClaimedJob) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ends.append(claimed.held())
            raise

    with running(worker(dsn, handler, events, ttl=timedelta(seconds=2), heartbeat=timedelta(seconds=0.1))):
        events.wait("claimed", job)
        connection.execute("UPDATE payment_jobs SET lease_owner = 'thief', attempts = 2")
        events.wait("lost", job)
        until(lambda: ends)
    assert ends == [False]
    assert world.row(connection, job) == ("Processing", "thief", 2)


def test_a_plain_handler_hears_at_its_next_stage_that_its_lease_is_lost(
    dsn: str, connection: psycopg.Connection
) -> None:
    job, events, heard = world.put(connection), Events(), []

    def handler(claimed: ClaimedJob) -> None:
        connection.execute("UPDATE payment_jobs SET lease_owner = 'thief', attempts = 2")
        try:
            claimed.reached("capture")
        except LeaseLost:
            heard.append(claimed.held())
            raise

    with running(worker(dsn, handler, events)):
        events.wait("lost", job)
    assert heard == [False]
    assert world.row(connection, job, "lease_owner, stage") == ("thief", None)


def test_a_late_completion_is_refused_and_the_history_says_so(dsn: str, connection: psycopg.Connection) -> None:
    job, events = world.put(connection), Events()

    def handler(claimed: ClaimedJob) -> None:
        connection.execute("UPDATE payment_jobs SET lease_owner = 'thief', attempts = 2")

    with running(worker(dsn, handler, events)):
        until(lambda: world.events(connection, job) == ["late completion refused"])
    assert world.row(connection, job) == ("Processing", "thief", 2)


def test_one_failed_heartbeat_is_not_a_lost_lease(dsn: str, connection: psycopg.Connection) -> None:
    job, events, go_on = world.put(connection), Events(), threading.Event()

    def handler(claimed: ClaimedJob) -> None:
        go_on.wait(20)

    settings = {"ttl": timedelta(seconds=4), "heartbeat": timedelta(seconds=0.2)}
    with running(worker(dsn, handler, events, **settings)):
        events.wait("heartbeat", times=2)
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'leasetop%'"
        )
        events.wait("heartbeat", times=events.count("heartbeat") + 2)
        go_on.set()
        events.wait("completed", job)
    assert world.events(connection, job) == ["completed"]


def test_without_heartbeats_a_lease_runs_out_and_the_job_is_aborted(dsn: str, connection: psycopg.Connection) -> None:
    job, events, go_on = world.put(connection), Events(), threading.Event()
    made = worker(
        dsn,
        lambda claimed: go_on.wait(20),
        events,
        ttl=timedelta(seconds=0.6),
        heartbeat=timedelta(seconds=0.2),
        policy=Policy.PARK,
    )
    made.heartbeats_on = False
    with running(made):
        events.wait("lost", job)
        go_on.set()
        until(lambda: world.events(connection, job) == ["late completion refused"])
    assert world.row(connection, job)[0] == "Processing"


def test_a_completion_waits_for_a_locked_row_as_long_as_the_lease_lives(
    dsn: str, connection: psycopg.Connection
) -> None:
    job, events = world.put(connection), Events()
    with (
        psycopg.connect(dsn) as other,
        running(worker(dsn, lambda claimed: lock(other, claimed), events, ttl=timedelta(seconds=5))),
    ):
        events.wait("claimed", job)
        locked = "SELECT FROM payment_jobs WHERE id = %s FOR UPDATE SKIP LOCKED"
        until(lambda: not connection.execute(locked, [job]).fetchall())
        time.sleep(0.2)  # the completion is refused as busy meanwhile; no event says so
        assert world.row(connection, job)[0] == "Processing"
        other.commit()
        events.wait("completed", job)
    assert world.events(connection, job) == ["completed"]


def lock(connection: psycopg.Connection, job: ClaimedJob) -> None:
    connection.execute("SELECT FROM payment_jobs WHERE id = %s FOR UPDATE", [job.id])


def test_under_park_nothing_is_taken_over(dsn: str, connection: psycopg.Connection) -> None:
    job, other, events = world.held(connection, lease_s=-5), world.put(connection), Events()
    with running(worker(dsn, lambda claimed: None, events, policy=Policy.PARK)):
        events.wait("completed", other)
        events.wait("idle")
    assert world.row(connection, job)[1] == "w/1/a"


def test_an_object_with_an_async_call_is_an_async_handler(dsn: str, connection: psycopg.Connection) -> None:
    job, events = world.put(connection), Events()

    class Handler:
        async def __call__(self, claimed: ClaimedJob) -> None:
            await claimed.areached("called")

    with running(worker(dsn, Handler(), events)):
        events.wait("completed", job)
    assert world.row(connection, job, "stage") == ("called",)


def test_a_handler_that_exits_has_failed_and_the_worker_lives(dsn: str, connection: psycopg.Connection) -> None:
    jobs, events = [world.put(connection, max_attempts=1) for _ in range(2)], Events()
    with running(worker(dsn, lambda claimed: sys.exit(3), events)):
        for job in jobs:
            events.wait("failed", job)
    assert world.row(connection, jobs[0], "status, last_error") == ("Failed", "SystemExit: 3")


def test_a_payload_that_python_cannot_hold_fails_its_own_job_only(dsn: str, connection: psycopg.Connection) -> None:
    bad, good, events = world.put(connection, max_attempts=1), world.put(connection), Events()
    connection.execute("UPDATE payment_jobs SET payload = repeat('9', 5000)::jsonb WHERE id = %s", [bad])
    with running(worker(dsn, lambda claimed: claimed.payload, events, batch=2)):
        events.wait("failed", bad)
        events.wait("completed", good)


def test_a_claimed_job_whose_lease_ran_out_before_its_turn_is_not_begun(
    dsn: str, connection: psycopg.Connection
) -> None:
    jobs, events, begun = [world.put(connection) for _ in range(2)], Events(), []

    def handler(claimed: ClaimedJob) -> None:
        begun.append(claimed.id)
        events.wait("lost", jobs[1])

    short = {"ttl": timedelta(seconds=0.4), "heartbeat": timedelta(seconds=0.1), "policy": Policy.PARK, "batch": 2}
    made = worker(dsn, handler, events, **short)
    made.heartbeats_on = False
    with running(made):
        events.wait("late", jobs[0])
    assert begun == [jobs[0]]
    assert world.events(connection, jobs[1]) == []


def test_a_worker_that_claims_its_own_lost_job_anew_completes_only_the_new_attempt(
    dsn: str, connection: psycopg.Connection
) -> None:
    job, events, go_on = world.put(connection), Events(), threading.Event()
    short = {"ttl": timedelta(seconds=0.4), "heartbeat": timedelta(seconds=0.1)}
    made = worker(dsn, lambda claimed: go_on.wait(20), events, concurrency=2, **short)
    made.heartbeats_on = False
    with running(made):
        events.wait("claimed", job, times=2)
        made.heartbeats_on = True
        go_on.set()
        events.wait("late", job)
        events.wait("completed", job)
    assert world.row(connection, job, "status, attempts") == ("Completed", 2)
    assert sorted(world.events(connection, job)) == ["completed", "expired", "late completion refused"]


def test_one_job_that_the_database_does_not_let_complete_does_not_hold_up_the_others(
    dsn: str, connection: psycopg.Connection
) -> None:
    jobs, events = [world.put(connection) for _ in range(5)], Events()
    connection.execute(
        f"""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
            CREATE TRIGGER refuse BEFORE UPDATE ON payment_jobs FOR EACH ROW
                WHEN (new.status = 'Completed' AND new.id = {jobs[2]}) EXECUTE FUNCTION refuse()""".encode()
    )
    with running(worker(dsn, lambda claimed: None, events, batch=5)):
        for job in (*jobs[:2], *jobs[3:]):
            events.wait("completed", job)
        assert world.row(connection, jobs[2], "status") == ("Processing",)
        connection.execute("DROP TRIGGER refuse ON payment_jobs")
        events.wait("completed", jobs[2])


def test_a_completion_whose_answer_was_lost_is_no_late_completion(dsn: str, connection: psycopg.Connection) -> None:
    job, events = world.put(connection), Events()
    made = worker(dsn, lambda claimed: None, events)
    execute, lost = made._session.execute, []

    def lossy(name: str, parameters: Mapping[str, object]) -> list[tuple[object, ...]]:
        rows = execute(name, parameters)
        if name == "complete" and not lost:
            lost.append(rows)
            made._session.close()
            raise psycopg.OperationalError("the connection was lost after the commit")
        return rows

    made._session.execute = lossy  # type: ignore[method-assign]
    with running(made):
        events.wait("completed", job)
    assert lost == [[(job, 1, "completed")]]
    assert world.events(connection, job) == ["completed"]


def test_an_outage_is_logged_once_and_once_when_it_is_over(
    dsn: str, server: EmbeddedPostgres, connection: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    events, name = Events(), connection.info.dbname
    with caplog.at_level(logging.INFO), running(worker(dsn, lambda claimed: None, events)):
        events.wait("idle")
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
            admin.execute(allow.format(sql.Identifier(name), sql.Literal(False)))
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'leasetop%'"
            admin.execute(ended)
            until(lambda: logged(caplog, "outage"))
            admin.execute(allow.format(sql.Identifier(name), sql.Literal(True)))
        with psycopg.connect(dsn, autocommit=True) as again:
            job = world.put(again)
        events.wait("completed", job)
    assert logged(caplog, "outage") == logged(caplog, "back") == 1
    assert not any(record.exc_info for record in caplog.records)


def logged(caplog: pytest.LogCaptureFixture, event: str) -> int:
    return sum(1 for record in caplog.records if getattr(record, "event", None) == event)


def test_a_database_without_the_table_is_said_at_once(blank_dsn: str) -> None:
    with pytest.raises(LeasetopError, match="leasetop init"):
        worker(blank_dsn, lambda claimed: None, Events()).run()


def test_a_server_that_is_not_there_is_said_at_once(dsn: str) -> None:
    nowhere = conninfo.make_conninfo(dsn, host="/nonexistent")
    with pytest.raises(LeasetopError, match="no server on that socket"):
        worker(nowhere, lambda claimed: None, Events()).run()


def test_ctrl_c_without_signal_handlers_completes_what_is_done_and_releases_the_rest(
    dsn: str, connection: psycopg.Connection
) -> None:
    jobs = [world.put(connection) for _ in range(3)]

    def handler(claimed: ClaimedJob) -> None:
        if claimed.id == jobs[1]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker(dsn, handler, Events(), batch=3).run()
    assert [world.events(connection, job) for job in jobs] == [["completed"], ["released"], ["released"]]


def test_behind_a_pooler_nothing_is_prepared_and_nothing_is_set_for_the_session(
    dsn: str, connection: psycopg.Connection
) -> None:
    job, events = world.put(connection), Events()
    made = worker(dsn, lambda claimed: claimed.reached("met"), events, pooled=True)
    with running(made):
        events.wait("completed", job)
        made.stop()
        events.wait("stopped")
        line = made._session.connection()
        made._session.execute("late", {"id": job, "attempt": 1, "owner": made.owner, "stage": None})
        assert line.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
        assert line.execute("SHOW lock_timeout").fetchone() == ("0",)
        made._session.close()


def test_what_the_database_s_own_encoding_cannot_hold_fails_nobody_else(
    server: EmbeddedPostgres, connection: psycopg.Connection
) -> None:
    name = sql.Identifier(f"{connection.info.dbname}_latin1")
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0").format(name))
    latin1 = server.dsn(f"{connection.info.dbname}_latin1")
    with psycopg.connect(latin1, autocommit=True) as mine:
        schema.apply(mine)
        job, events, refused = world.put(mine, max_attempts=1), Events(), []

        def handler(claimed: ClaimedJob) -> None:
            try:
                claimed.reached("capture ✓")
            except LeasetopError as error:
                refused.append(str(error))
            assert claimed.held()
            raise ValueError("declined ✗")

        with running(worker(latin1, handler, events)):
            events.wait("failed", job)
        assert "LATIN1" in refused[0]
        assert world.row(mine, job, "stage, last_error") == (None, r"ValueError: declined \u2717")


def test_the_text_of_an_error_can_always_be_stored() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert error_text(Mute()) == "Mute: (its message cannot be read)"
    assert error_text(ValueError()) == "ValueError"
    assert error_text(ValueError("a\x00b\ud800")) == "ValueError: a␀b\\ud800"
    assert len(error_text(ValueError("x" * 1_000_000))) == 8000


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ttl": timedelta(seconds=10), "heartbeat": timedelta(seconds=6)}, "heartbeat"),
        ({"ttl": timedelta(0)}, "ttl"),
        ({"concurrency": 0}, "concurrency"),
        ({"batch": 1001}, "batch"),
        ({"name": "a/b"}, "name"),
        ({"name": "\x1b[2J"}, "name"),
        ({"drain": timedelta(seconds=-1)}, "drain"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(settings: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Settings(**settings)  # type: ignore[arg-type]
