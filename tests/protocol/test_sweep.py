"""sweep.sql: ends what is over, under either policy, and nothing else."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests import world
from tests.protocol.conftest import Connect
from tests.protocol.statement import claim, complete, heartbeat, sweep

OWNER = "w/1/a"
POLICIES = ["requeue", "park"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "put",
    [
        lambda c: world.held(c, lease_s=20),
        lambda c: world.held(c, lease_s=None),
        lambda c: world.put(c),
        lambda c: world.put(c, "Stuck", attempts=1),
        lambda c: world.put(c, "Completed", attempts=1),
        lambda c: world.put(c, "Failed", attempts=5),
        lambda c: world.put(c, "Cancelled"),
    ],
    ids=["live", "no lease", "pending", "parked", "completed", "failed", "cancelled"],
)
def test_what_has_not_expired_is_never_swept(
    connection: psycopg.Connection, policy: str, put: Callable[[psycopg.Connection], int]
) -> None:
    job = put(connection)
    before = world.row(connection, job, "payment_jobs::text")
    assert sweep(connection, policy) == []
    assert sweep(connection, policy, tokens=[(job, 1)]) == []
    assert world.row(connection, job, "payment_jobs::text") == before


def test_under_requeue_an_expired_lease_goes_back_to_pending_with_a_wait(connection: psycopg.Connection) -> None:
    job = world.held(connection, OWNER, lease_s=-5, stage="capture", attempts=3)
    assert sweep(connection) == [(job, "Pending", 3, 5, OWNER)]
    assert world.row(connection, job, "lease_owner, lease_until, lease_ttl, claimed_at, stage, last_error") == (
        *(None, None, None, None),
        *("capture", "lease expired in attempt 3"),
    )
    (wait,) = world.row(connection, job, "extract(epoch FROM run_after - clock_timestamp())::float8")
    assert isinstance(wait, float) and -1 < wait <= 8
    ends = connection.execute(
        "SELECT event, attempt, owner, stage, actor, reason, started_at IS NOT NULL FROM payment_job_history"
    )
    assert ends.fetchall() == [("expired", 3, OWNER, "capture", "watcher/1/a", "swept: will be tried again", True)]


def test_at_max_attempts_a_sweep_fails_the_job_and_clears_its_owner(connection: psycopg.Connection) -> None:
    job = world.held(connection, OWNER, lease_s=-5, attempts=5, max_attempts=5)
    assert sweep(connection) == [(job, "Failed", 5, 5, OWNER)]
    assert world.row(connection, job, "lease_owner, lease_until, finished_at IS NOT NULL") == (None, None, True)
    assert connection.execute("SELECT event, reason FROM payment_job_history").fetchall() == [
        ("expired", "swept: attempts used up")
    ]


@pytest.mark.parametrize("attempts", [1, 5])
def test_under_park_an_expired_lease_waits_for_a_person(connection: psycopg.Connection, attempts: int) -> None:
    job = world.held(connection, OWNER, lease_s=-5, attempts=attempts, stage="capture")
    assert sweep(connection, "park") == [(job, "Stuck", attempts, 5, OWNER)]
    assert world.row(connection, job, "lease_owner, finished_at, stage") == (None, None, "capture")
    assert world.events(connection, job) == ["expired"]


def test_a_parked_job_is_neither_taken_over_nor_revived_nor_completed(connection: psycopg.Connection) -> None:
    job = world.held(connection, OWNER, lease_s=-5)
    sweep(connection, "park")
    before = world.row(connection, job, "payment_jobs::text")
    assert claim(connection, batch=10) == []
    assert heartbeat(connection, [(job, 1)]) == [(job, 1, False, False)]
    assert complete(connection, [(job, 1)]) == [(job, 1, "refused")]
    assert sweep(connection) == []
    assert world.row(connection, job, "payment_jobs::text") == before


def test_a_sweep_takes_at_most_its_batch_in_the_order_of_ids(connection: psycopg.Connection) -> None:
    jobs = [world.held(connection, lease_s=-n) for n in range(1, 6)]
    assert [[row[0] for row in sweep(connection, batch=2)] for _ in range(4)] == [jobs[:2], jobs[2:4], jobs[4:], []]


def test_with_tokens_only_what_the_preview_showed_is_swept(connection: psycopg.Connection) -> None:
    shown, other = world.held(connection, lease_s=-5), world.held(connection, lease_s=-5)
    again = world.held(connection, lease_s=-5, attempts=2)
    assert [row[0] for row in sweep(connection, tokens=[(shown, 1), (again, 1)])] == [shown]
    assert [world.row(connection, job, "status") for job in (other, again)] == [("Processing",)] * 2
    assert sweep(connection, tokens=[]) == []


@pytest.mark.parametrize("attempt", [1, 3, 40])
def test_a_swept_job_waits_within_its_bounds(connection: psycopg.Connection, attempt: int) -> None:
    for _ in range(20):
        world.held(connection, lease_s=-5, attempts=attempt, max_attempts=attempt + 1)
    connection.execute("SELECT setseed(0.5)")
    sweep(connection, backoff_s=2, backoff_cap_s=60)
    shortest, longest = connection.execute(
        "SELECT extract(epoch FROM min(run_after) - clock_timestamp())::float8, "
        "extract(epoch FROM max(run_after) - clock_timestamp())::float8 FROM payment_jobs"
    ).fetchone() or (0.0, 0.0)
    most = min(60, 2 * 2 ** (attempt - 1))
    assert -1 < shortest < most / 2 < longest <= most


def test_a_sweep_waits_for_nobody(connection: psycopg.Connection, connect: Connect) -> None:
    locked, free = world.held(connection, lease_s=-5), world.held(connection, lease_s=-5)
    with connection.transaction():
        connection.execute("SELECT FROM payment_jobs WHERE id = %s FOR UPDATE", [locked])
        assert [row[0] for row in sweep(connect())] == [free]


def test_two_sweepers_at_once_end_each_lease_once(connection: psycopg.Connection, connect: Connect) -> None:
    jobs = [world.held(connection, lease_s=-5) for _ in range(300)]
    sweepers = [connect() for _ in range(4)]

    def sweep_all(sweeper: psycopg.Connection) -> list[object]:
        found: list[object] = []
        # Less than the batch may also mean that the others hold the rest: look until nothing is over.
        while sweeper.execute("SELECT 1 FROM payment_jobs WHERE status = 'Processing'").fetchone():
            found += [row[0] for row in sweep(sweeper, batch=20)]
        return found

    with ThreadPoolExecutor(len(sweepers)) as pool:
        swept = [job for found in pool.map(sweep_all, sweepers) for job in found]
    assert sorted(swept) == jobs  # type: ignore[type-var]
    assert connection.execute("SELECT count(*) FROM payment_job_history").fetchone() == (300,)
