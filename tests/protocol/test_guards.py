"""The worker's later writes: each guard violated in turn leaves row and history as they were."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import psycopg
import pytest

from tests import world
from tests.protocol.conftest import Connect
from tests.protocol.statement import call, claim, complete, expire, fail, heartbeat, release
from tests.waiting import until_blocked

OWNER = "w/1/a"
Token = tuple[int, int]

# One write of each kind, and whether it says that it did something.
WRITES: dict[str, Callable[[psycopg.Connection, Token, str], bool]] = {
    "heartbeat": lambda c, token, owner: heartbeat(c, [token], owner) == [(*token, True, True)],
    "complete": lambda c, token, owner: complete(c, [token], owner) == [(*token, "completed")],
    "fail": lambda c, token, owner: bool(fail(c, token, owner)),
    "release": lambda c, token, owner: release(c, [token], owner) == [token[0]],
}


def violate(connection: psycopg.Connection, guard: str, job: int) -> tuple[Token, str]:
    """The token and owner to write with, where exactly that guard stands against it."""
    if guard in ("Pending", "Stuck", "Completed", "Failed", "Cancelled"):
        connection.execute("UPDATE payment_jobs SET status = %s WHERE id = %s", [guard, job])
    return {
        "wrong id": ((job + 1000, 1), OWNER),
        "wrong owner": ((job, 1), "w/1/b"),
        "an attempt before": ((job, 0), OWNER),
        "an attempt after": ((job, 2), OWNER),
    }.get(guard, ((job, 1), OWNER))


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    "guard",
    [
        *("wrong id", "wrong owner", "an attempt before", "an attempt after"),
        *("Pending", "Stuck", "Completed", "Failed", "Cancelled"),
    ],
)
def test_a_write_that_misses_one_guard_changes_nothing(connection: psycopg.Connection, write: str, guard: str) -> None:
    job = world.held(connection, OWNER)
    token, owner = violate(connection, guard, job)
    before = world.row(connection, job, "payment_jobs::text")
    assert not WRITES[write](connection, token, owner)
    assert world.row(connection, job, "payment_jobs::text") == before
    assert set(world.events(connection, job)) <= {"late completion refused"}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_with_the_whole_token_is_done(connection: psycopg.Connection, write: str) -> None:
    assert WRITES[write](connection, (world.held(connection, OWNER), 1), OWNER)


@pytest.mark.parametrize("write", WRITES)
def test_the_same_owner_s_earlier_attempt_is_fenced_off(connection: psycopg.Connection, write: str) -> None:
    job = world.held(connection, OWNER, lease_s=-5)
    assert claim(connection, OWNER) == [(job, 2)]
    assert not WRITES[write](connection, (job, 1), OWNER)
    assert world.row(connection, job) == ("Processing", OWNER, 2)
    assert WRITES[write](connection, (job, 2), OWNER)


def test_tokens_of_one_call_are_answered_one_by_one(connection: psycopg.Connection) -> None:
    mine, theirs = world.held(connection, OWNER), world.held(connection, "w/2/b")
    stale = world.held(connection, OWNER, attempts=3)
    tokens = [(stale, 2), (mine, 1), (theirs, 1), (stale, 3)]
    assert {row[:2]: row[2:] for row in heartbeat(connection, tokens)} == {
        (mine, 1): (True, True),
        (theirs, 1): (False, False),
        (stale, 2): (False, False),
        (stale, 3): (True, True),
    }
    assert {row[:2]: row[2] for row in complete(connection, tokens)} == {
        (mine, 1): "completed",
        (theirs, 1): "refused",
        (stale, 2): "refused",
        (stale, 3): "completed",
    }


def test_no_tokens_are_no_error(connection: psycopg.Connection) -> None:
    assert (heartbeat(connection, []), complete(connection, []), release(connection, [])) == ([], [], [])


# Heartbeat.


def test_a_heartbeat_moves_the_lease_on_and_counts(connection: psycopg.Connection) -> None:
    job = world.held(connection, OWNER, lease_s=1)
    heartbeat(connection, [(job, 1)], stage="capture")
    left, beats, stage = world.row(connection, job, "lease_until - clock_timestamp(), heartbeats, stage")
    assert isinstance(left, timedelta) and left > timedelta(seconds=25)
    assert (beats, stage) == (1, "capture")
    heartbeat(connection, [(job, 1)])
    assert world.row(connection, job, "heartbeats, stage") == (2, "capture")


def test_each_job_gets_its_own_stage(connection: psycopg.Connection) -> None:
    jobs = [world.held(connection, OWNER) for _ in range(3)]
    connection.execute("SET enable_indexscan = off")
    for job, stage in zip(jobs, ("a", None, "c"), strict=True):
        heartbeat(connection, [(job, 1)], stage=stage)
    assert [world.row(connection, job, "stage") for job in jobs] == [("a",), (None,), ("c",)]


def test_a_heartbeat_revives_an_expired_lease_only_where_it_may(connection: psycopg.Connection) -> None:
    job = world.held(connection, OWNER, lease_s=-5)
    assert heartbeat(connection, [(job, 1)], revive=False) == [(job, 1, False, False)]
    assert world.row(connection, job, "lease_until < clock_timestamp()") == (True,)
    assert heartbeat(connection, [(job, 1)], revive=True) == [(job, 1, True, True)]
    assert world.row(connection, job, "lease_until > clock_timestamp()") == (True,)


def test_a_heartbeat_does_not_wait_for_a_locked_row_and_still_holds_it(
    connection: psycopg.Connection, connect: Connect
) -> None:
    locked, free = world.held(connection, OWNER), world.held(connection, OWNER)
    with connection.transaction():
        connection.execute("SELECT FROM payment_jobs WHERE id = %s FOR UPDATE", [locked])
        answers = heartbeat(connect(), [(locked, 1), (free, 1)])
    assert set(answers) == {(locked, 1, False, True), (free, 1, True, True)}


def test_heartbeats_stay_hot(connection: psycopg.Connection) -> None:
    job = world.held(connection, OWNER)
    before = _updates(connection)
    for _ in range(20):
        heartbeat(connection, [(job, 1)])
    assert [after - was for after, was in zip(_updates(connection), before, strict=True)] == [20, 20]


def _updates(connection: psycopg.Connection) -> tuple[int, ...]:
    connection.execute("SELECT pg_stat_force_next_flush()")
    return connection.execute(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'payment_jobs'"
    ).fetchone() or (0, 0)


# Complete.


def test_completing_clears_the_lease_and_writes_the_end(connection: psycopg.Connection) -> None:
    job = world.held(connection, OWNER, stage="settle", error="earlier")
    complete(connection, [(job, 1)])
    assert world.row(
        connection,
        job,
        "status, lease_owner, lease_until, lease_ttl, claimed_at, last_error, stage, finished_at IS NOT NULL",
    ) == ("Completed", None, None, None, None, None, "settle", True)
    ends = connection.execute("SELECT event, attempt, owner, stage, started_at IS NOT NULL FROM payment_job_history")
    assert ends.fetchall() == [("completed", 1, OWNER, "settle", True)]


def test_work_that_nobody_began_again_completes_after_its_lease(connection: psycopg.Connection) -> None:
    job = world.held(connection, OWNER, lease_s=-5)
    assert complete(connection, [(job, 1)]) == [(job, 1, "completed")]


def test_a_late_completion_is_refused_and_recorded_and_the_row_is_untouched(connection: psycopg.Connection) -> None:
    job = world.held(connection, OWNER, lease_s=-5)
    claim(connection, "w/2/b")
    before = world.row(connection, job, "payment_jobs::text")
    assert complete(connection, [(job, 1)], stage="capture") == [(job, 1, "refused")]
    assert world.row(connection, job, "payment_jobs::text") == before
    last = connection.execute(
        "SELECT event, attempt, owner, stage FROM payment_job_history ORDER BY id DESC LIMIT 1"
    ).fetchone()
    assert last == ("late completion refused", 1, OWNER, "capture")


def test_completing_twice_is_safe_when_the_first_answer_was_lost(connection: psycopg.Connection) -> None:
    job = world.held(connection, OWNER)
    assert [complete(connection, [(job, 1)]) for _ in range(2)] == [[(job, 1, "completed")]] * 2
    assert world.events(connection, job) == ["completed"]


def test_a_locked_row_is_busy_and_completes_later(connection: psycopg.Connection, connect: Connect) -> None:
    locked, free = world.held(connection, OWNER), world.held(connection, OWNER)
    worker = connect()
    with connection.transaction():
        connection.execute("SELECT FROM payment_jobs WHERE id = %s FOR UPDATE", [locked])
        answers = complete(worker, [(locked, 1), (free, 1)])
    assert set(answers) == {(locked, 1, "busy"), (free, 1, "completed")}
    assert complete(worker, [(locked, 1)]) == [(locked, 1, "completed")]
    assert world.events(connection, locked) == ["completed"]


# Fail.


def test_a_failed_attempt_goes_back_to_pending_after_a_wait(connection: psycopg.Connection) -> None:
    job = world.held(connection, OWNER)
    ((id_, status, run_after),) = fail(connection, (job, 1), error="card declined", stage="authorize")
    assert (id_, status) == (job, "Pending") and isinstance(run_after, datetime)
    assert world.row(
        connection, job, "lease_owner, lease_until, claimed_at, finished_at, last_error, stage, attempts"
    ) == (None, None, None, None, "card declined", "authorize", 1)
    ends = connection.execute("SELECT event, attempt, owner, stage, error, reason FROM payment_job_history")
    assert ends.fetchall() == [("failed", 1, OWNER, "authorize", "card declined", "will be tried again")]


@pytest.mark.parametrize(
    ("attempts", "retry", "reason"), [(5, True, "attempts used up"), (1, False, "failed for good")]
)
def test_the_last_attempt_and_a_permanent_failure_end_the_job(
    connection: psycopg.Connection, attempts: int, retry: bool, reason: str
) -> None:
    job = world.held(connection, OWNER, attempts=attempts, max_attempts=5)
    ((_, status, _),) = fail(connection, (job, attempts), retry=retry)
    assert status == "Failed"
    assert world.row(connection, job, "lease_owner, finished_at IS NOT NULL") == (None, True)
    assert connection.execute("SELECT event, reason FROM payment_job_history").fetchall() == [("failed", reason)]


@pytest.mark.parametrize(("attempt", "longest"), [(1, 2), (2, 4), (4, 16), (9, 300), (40, 300), (2_000_000_000, 300)])
def test_the_wait_doubles_with_each_attempt_up_to_its_cap(
    connection: psycopg.Connection, attempt: int, longest: float
) -> None:
    waits: list[float] = []
    connection.execute("SELECT setseed(0.5)")
    for _ in range(12):
        job = world.held(connection, OWNER, attempts=attempt, max_attempts=attempt + 1)
        fail(connection, (job, attempt), backoff_s=2, backoff_cap_s=300)
        (wait,) = world.row(connection, job, "extract(epoch FROM run_after - clock_timestamp())::float8")
        assert isinstance(wait, float) and -1 < wait <= longest
        waits.append(wait)
    # Full jitter: anywhere between nothing and the longest. Seeded, so the same waits in each run.
    assert min(waits) < longest / 2 < max(waits)


def test_the_wait_survives_as_a_column(connection: psycopg.Connection) -> None:
    job = world.held(connection, OWNER, attempts=4)
    connection.execute("SELECT setseed(0.5)")
    fail(connection, (job, 4), backoff_s=3600, backoff_cap_s=36000)
    assert claim(connection, batch=10) == []
    connection.execute("UPDATE payment_jobs SET run_after = clock_timestamp() WHERE id = %s", [job])
    assert claim(connection) == [(job, 5)]


def test_a_failure_that_waits_for_a_lock_writes_after_it(connection: psycopg.Connection, connect: Connect) -> None:
    job = world.held(connection, OWNER)
    worker = connect()
    with ThreadPoolExecutor(1) as pool:
        with connection.transaction():
            connection.execute("SELECT FROM payment_jobs WHERE id = %s FOR UPDATE", [job])
            failing = pool.submit(fail, worker, (job, 1))
            until_blocked(connect(), worker)
        assert failing.result(timeout=10)
    assert world.events(connection, job) == ["failed"]


def test_a_failure_that_waited_while_the_lease_passed_on_changes_nothing(
    connection: psycopg.Connection, connect: Connect
) -> None:
    job = world.held(connection, OWNER)
    worker = connect()
    with ThreadPoolExecutor(1) as pool:
        with connection.transaction():
            expire(connection, job)
            claim(connection, "w/2/b")
            failing = pool.submit(fail, worker, (job, 1))
            until_blocked(connect(), worker)
        assert failing.result(timeout=10) == []
    assert world.row(connection, job) == ("Processing", "w/2/b", 2)


# Release.


def test_a_released_job_is_pending_at_once_and_keeps_its_attempt(connection: psycopg.Connection) -> None:
    job = world.held(connection, OWNER, stage="authorize")
    assert release(connection, [(job, 1)]) == [job]
    assert world.row(connection, job, "status, lease_owner, attempts, max_attempts, stage") == (
        *("Pending", None, 1, 5),
        "authorize",
    )
    assert world.events(connection, job) == ["released"]
    assert claim(connection) == [(job, 2)]


def test_releasing_the_last_attempt_grants_one_more(connection: psycopg.Connection) -> None:
    job = world.held(connection, OWNER, attempts=5, max_attempts=5)
    release(connection, [(job, 5)])
    assert claim(connection) == [(job, 6)]


def test_a_late_end_is_noted_once_however_often_it_is_told(connection: psycopg.Connection) -> None:
    job = world.held(connection, OWNER)
    for _ in range(2):
        call(connection, "late", id=job, attempt=1, owner=OWNER, stage="capture")
    assert world.events(connection, job) == ["late completion refused"]
