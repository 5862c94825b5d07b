"""claim.sql and claim_by_id.sql: at most one owner, never more than asked for, and no lost attempt without an end."""

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

from tests import world
from tests.protocol.conftest import Connect
from tests.protocol.statement import call, claim, claim_by_id, heartbeat
from tests.waiting import until_blocked


def test_a_claim_takes_the_lease_and_spends_one_attempt(connection: psycopg.Connection) -> None:
    job = world.put(connection)
    assert claim(connection) == [(job, 1)]
    assert world.row(connection, job) == ("Processing", "w/1/a", 1)
    (left,) = world.row(connection, job, "lease_until - clock_timestamp()")
    assert isinstance(left, timedelta) and timedelta(seconds=25) < left <= timedelta(seconds=30)
    assert world.row(connection, job, "lease_ttl, heartbeats") == (timedelta(seconds=30), 0)


def test_a_claim_returns_what_a_worker_needs_in_the_order_it_relies_on(connection: psycopg.Connection) -> None:
    job = world.put(connection, key="k1", stage="authorize")
    parameters = {"owner": "w/1/a", "batch": 1, "takeover": True, "ttl": timedelta(seconds=30)}
    ((*row,),) = call(connection, "claim", **parameters)
    del row[4]
    assert [str(value) for value in row] == [
        *(str(job), "1", "5", "w/1/a", "charge"),
        *("k1", "12.30", "EUR", "{}", "authorize"),
    ]


def test_claims_go_by_run_after_then_by_id(connection: psycopg.Connection) -> None:
    second, first, last = (world.put(connection, delay_s=delay) for delay in (-30, -60, -5))
    assert [claim(connection) for _ in range(3)] == [[(first, 1)], [(second, 1)], [(last, 1)]]


def test_claims_of_the_same_time_go_by_id(connection: psycopg.Connection) -> None:
    jobs = [world.put(connection) for _ in range(3)]
    connection.execute("UPDATE payment_jobs SET run_after = 'epoch'")
    assert [claim(connection) for _ in range(3)] == [[(job, 1)] for job in jobs]


def test_expired_leases_are_taken_over_before_new_jobs_are_begun(connection: psycopg.Connection) -> None:
    world.put(connection, delay_s=-60)
    expired = world.held(connection, "w/9/z", lease_s=-1)
    assert claim(connection) == [(expired, 2)]


@pytest.mark.parametrize(
    "put",
    [
        lambda c: world.put(c, delay_s=60),
        lambda c: world.put(c, attempts=5, max_attempts=5),
        lambda c: world.held(c, "w/9/z", lease_s=20),
        lambda c: world.held(c, "w/9/z", lease_s=None),
        lambda c: world.held(c, "w/9/z", lease_s=-5, attempts=5, max_attempts=5),
        lambda c: world.put(c, "Stuck", attempts=1),
        lambda c: world.put(c, "Completed", attempts=1),
        lambda c: world.put(c, "Failed", attempts=5),
        lambda c: world.put(c, "Cancelled"),
    ],
    ids=[
        "scheduled",
        "used up",
        "live",
        "no lease",
        "expired and used up",
        "parked",
        "completed",
        "failed",
        "cancelled",
    ],
)
def test_what_is_not_claimable_is_never_claimed(
    connection: psycopg.Connection, put: Callable[[psycopg.Connection], int]
) -> None:
    job = put(connection)
    before = world.row(connection, job, "payment_jobs::text")
    assert claim(connection, batch=10) == []
    assert claim_by_id(connection, job) == []
    assert world.row(connection, job, "payment_jobs::text") == before
    assert world.events(connection, job) == []


def test_under_park_an_expired_lease_is_never_taken_over(connection: psycopg.Connection) -> None:
    job = world.held(connection, "w/9/z", lease_s=-5)
    assert claim(connection, takeover=False) == []
    assert claim_by_id(connection, job, takeover=False) == []
    assert world.row(connection, job) == ("Processing", "w/9/z", 1)


@pytest.mark.parametrize("by_id", [False, True])
def test_a_takeover_writes_the_end_of_the_lost_attempt(connection: psycopg.Connection, by_id: bool) -> None:
    job = world.held(connection, "w/9/z", lease_s=-5, stage="capture")
    assert (claim_by_id(connection, job) if by_id else claim(connection)) == [(job, 2)]
    ends = connection.execute(
        "SELECT event, attempt, owner, stage, actor, reason, started_at < ended_at FROM payment_job_history"
    ).fetchall()
    assert ends == [("expired", 1, "w/9/z", "capture", "w/1/a", "taken over", True)]


def test_the_loser_of_a_takeover_cannot_heartbeat_even_under_the_same_name(connection: psycopg.Connection) -> None:
    job = world.held(connection, "w/1/a", lease_s=-5)
    assert claim(connection, "w/1/a") == [(job, 2)]
    assert heartbeat(connection, [(job, 1), (job, 2)]) == [(job, 1, False, False), (job, 2, True, True)]


def test_claim_by_id_takes_only_that_job(connection: psycopg.Connection) -> None:
    world.put(connection)
    wanted = world.put(connection)
    assert claim_by_id(connection, wanted) == [(wanted, 1)]
    assert claim_by_id(connection, wanted) == []
    assert claim_by_id(connection, 999_999) == []


def test_twenty_racing_claims_have_exactly_one_winner_in_each_of_fifty_rounds(
    connection: psycopg.Connection, connect: Connect
) -> None:
    rivals, rounds = [connect() for _ in range(20)], 50
    barrier = threading.Barrier(len(rivals))
    jobs = [world.put(connection, delay_s=3600) for _ in range(rounds)]

    def prepare(number: int) -> None:
        # Every other round is a race for an expired lease.
        job = jobs[number]
        if number % 2:
            connection.execute("UPDATE payment_jobs SET run_after = clock_timestamp() WHERE id = %s", [job])
        else:
            connection.execute(
                "UPDATE payment_jobs SET status = 'Processing', lease_owner = 'w/9/z', attempts = 1, "
                "lease_until = clock_timestamp() - interval '1 s' WHERE id = %s",
                [job],
            )

    def race(rival: int) -> list[int]:
        won = []
        for number, job in enumerate(jobs):
            if barrier.wait(timeout=30) == 0:
                prepare(number)
            barrier.wait(timeout=30)
            owner = f"w/{rival}/a"
            # A third of the rivals ask for the job by its id.
            tokens = claim_by_id(rivals[rival], job, owner) if rival % 3 == 0 else claim(rivals[rival], owner)
            won += [id_ for id_, _ in tokens]
        return won

    with ThreadPoolExecutor(len(rivals)) as pool:
        winners = list(itertools.chain(*pool.map(race, range(len(rivals)))))
    assert sorted(winners) == jobs
    assert connection.execute("SELECT count(*) FROM payment_job_history").fetchone() == (rounds / 2,)


PLANS = {
    "as planned": {},
    "nested loops only": {"enable_hashjoin": "off", "enable_mergejoin": "off"},
    "hash joins only": {"enable_nestloop": "off", "enable_mergejoin": "off"},
    "merge joins only": {"enable_nestloop": "off", "enable_hashjoin": "off"},
    "no index": {"enable_indexscan": "off", "enable_bitmapscan": "off", "enable_indexonlyscan": "off"},
    "no sequential scan": {"enable_seqscan": "off"},
    "nested loops, nothing kept": {"enable_hashjoin": "off", "enable_mergejoin": "off", "enable_material": "off"},
}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_a_claim_never_takes_more_than_it_asks_for(connection: psycopg.Connection, plan: str, mode: str) -> None:
    for setting, value in (PLANS[plan] | {"plan_cache_mode": mode}).items():
        connection.execute(f"SET {setting} = {value}")
    connection.prepare_threshold = 0
    for _ in range(30):
        world.put(connection)
    for _ in range(5):
        world.held(connection, "w/9/z", lease_s=-5)
    sizes = [len(claim(connection, f"w/{batch}/a", batch)) for batch in (1, 3, 10)]
    assert sizes == [1, 3, 10]
    assert connection.execute("SELECT count(*) FROM payment_jobs WHERE attempts > 1").fetchone() == (5,)


def test_a_locked_job_is_passed_over_not_waited_for(connection: psycopg.Connection, connect: Connect) -> None:
    locked, free = world.put(connection), world.put(connection)
    other = connect()
    with other.transaction():
        other.execute("SELECT FROM payment_jobs WHERE id = %s FOR UPDATE", [locked])
        assert claim(connection, batch=10) == [(free, 1)]
        assert claim_by_id(connection, locked) == []


def test_a_lock_held_longer_than_the_ttl_does_not_eat_the_lease(
    connection: psycopg.Connection, connect: Connect
) -> None:
    job = world.put(connection)
    rival, ttl = connect(), timedelta(milliseconds=100)
    with ThreadPoolExecutor(1) as pool:
        with connection.transaction():
            connection.execute("LOCK TABLE payment_jobs IN ACCESS EXCLUSIVE MODE")
            waiting = pool.submit(claim, rival, ttl=ttl)
            until_blocked(connection, rival)
            connection.execute("SELECT pg_sleep(%s)", [2 * ttl.total_seconds()])
            (unlocked,) = connection.execute("SELECT clock_timestamp()").fetchone() or ()
        assert waiting.result(timeout=10) == [(job, 1)]
    assert world.row(connection, job, f"lease_until - interval '100 ms' >= '{unlocked}'") == (True,)


def test_claims_do_not_read_the_whole_table_with_a_plan_from_when_it_was_empty(
    connection: psycopg.Connection,
) -> None:
    connection.prepare_threshold = 0
    connection.execute("SET plan_cache_mode = force_generic_plan")
    connection.execute("SET enable_seqscan = off")  # as the worker's session has it
    claim(connection)
    connection.execute(
        "INSERT INTO payment_jobs (idempotency_key, amount, currency, status) "
        "SELECT 'done' || n, 1, 'EUR', 'Completed' FROM generate_series(1, 20000) n"
    )
    world.put(connection)
    before = _blocks_read(connection)
    claim(connection)
    assert _blocks_read(connection) - before < 60


def _blocks_read(connection: psycopg.Connection) -> int:
    connection.execute("SELECT pg_stat_force_next_flush()")
    row = connection.execute(
        "SELECT heap_blks_read + heap_blks_hit FROM pg_statio_user_tables WHERE relname = 'payment_jobs'"
    ).fetchone()
    assert row is not None
    return int(row[0])
