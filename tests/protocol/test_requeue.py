"""requeue.sql: an operator's return of one job, only as they saw it, with a trace."""

from collections.abc import Callable

import psycopg
import pytest

from tests import world
from tests.protocol.statement import claim, complete, expire, fence, heartbeat, requeue, sweep

OWNER = "w/1/a"


@pytest.mark.parametrize(
    ("put", "end"),
    [
        (lambda c: world.held(c, lease_s=-5, stage="capture"), ["expired"]),
        (lambda c: world.held(c, lease_s=None, stage="capture"), ["revoked"]),
        (lambda c: world.put(c, "Stuck", attempts=1, stage="capture"), []),
        (lambda c: world.put(c, "Failed", attempts=1, stage="capture"), []),
    ],
    ids=["expired", "no lease", "parked", "failed"],
)
def test_what_is_stuck_or_failed_goes_back_to_pending(
    connection: psycopg.Connection, put: Callable[[psycopg.Connection], int], end: list[str]
) -> None:
    job = put(connection)
    assert requeue(connection, job) == [(job, "Pending", 1, 5)]
    assert world.row(
        connection, job, "status, lease_owner, lease_until, lease_ttl, claimed_at, finished_at, attempts, stage"
    ) == ("Pending", None, None, None, None, None, 1, "capture")
    assert world.events(connection, job) == [*end, "requeued"]
    assert claim(connection) == [(job, 2)]


def test_who_why_and_what_they_saw_is_in_the_history(connection: psycopg.Connection) -> None:
    job = world.held(connection, OWNER, lease_s=-5, stage="capture", error="timeout")
    requeue(connection, job)
    actor, reason, seen = connection.execute(
        "SELECT actor, reason, seen FROM payment_job_history WHERE event = 'requeued'"
    ).fetchone() or ("", "", {})
    assert (actor, reason) == ("ops@box", "looked at the provider: not charged")
    assert seen.pop("lease_until")
    assert seen == {
        "status": "Processing",
        "owner": OWNER,
        "attempt": 1,
        "stage": "capture",
        "error": "timeout",
        "forced": False,
    }


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("status", ["Completed", "Cancelled", "Pending"])
def test_a_finished_or_waiting_job_is_never_requeued(connection: psycopg.Connection, status: str, force: bool) -> None:
    job = world.put(connection, status, attempts=1)
    assert requeue(connection, job, force=force) == []
    assert world.events(connection, job) == []


def test_a_live_lease_is_refused_and_forced_only_as_an_act_of_its_own(connection: psycopg.Connection) -> None:
    job = world.held(connection, OWNER, lease_s=20)
    assert requeue(connection, job) == []
    assert world.row(connection, job) == ("Processing", OWNER, 1)
    assert requeue(connection, job, force=True) == [(job, "Pending", 1, 5)]
    assert world.events(connection, job) == ["revoked", "requeued"]
    assert heartbeat(connection, [(job, 1)]) == [(job, 1, False, False)]
    assert complete(connection, [(job, 1)]) == [(job, 1, "refused")]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        "status = 'Stuck'",
        "lease_owner = 'w/2/b'",
        "attempts = attempts + 1",
        "lease_until = lease_until - interval '1 microsecond'",
        "lease_until = NULL",
    ],
)
def test_a_job_that_is_not_as_it_was_seen_is_left_alone(
    connection: psycopg.Connection, change: str, force: bool
) -> None:
    job = world.held(connection, OWNER, lease_s=-5)
    seen = fence(connection, job)
    connection.execute(f"UPDATE payment_jobs SET {change} WHERE id = %s".encode(), [job])
    before = world.row(connection, job, "payment_jobs::text")
    assert requeue(connection, job, seen, force=force) == []
    assert world.row(connection, job, "payment_jobs::text") == before


def test_what_a_heartbeat_renewed_meanwhile_is_left_alone(connection: psycopg.Connection) -> None:
    job = world.held(connection, OWNER, lease_s=-5)
    seen = fence(connection, job)
    heartbeat(connection, [(job, 1)])
    assert requeue(connection, job, seen) == []


def test_another_job_is_not_requeued_by_the_same_fence(connection: psycopg.Connection) -> None:
    job, twin = world.put(connection, "Stuck", attempts=1), world.put(connection, "Stuck", attempts=1)
    assert requeue(connection, job, fence(connection, twin)) == [(job, "Pending", 1, 5)]
    assert world.row(connection, twin, "status") == ("Stuck",)


def test_used_up_attempts_are_granted_one_more(connection: psycopg.Connection) -> None:
    job = world.put(connection, "Failed", attempts=5, max_attempts=5)
    assert requeue(connection, job) == [(job, "Pending", 5, 6)]
    assert claim(connection) == [(job, 6)]


def test_requeued_twice_from_the_same_screen_happens_once(connection: psycopg.Connection) -> None:
    job = world.held(connection, OWNER)
    expire(connection, job)
    seen = fence(connection, job)
    assert requeue(connection, job, seen) != []
    assert requeue(connection, job, seen) == []
    assert sweep(connection) == []
    assert world.events(connection, job) == ["expired", "requeued"]
