"""The history under any order of acts: one end for each attempt, and none for the one that still runs."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psycopg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import world
from tests.protocol.conftest import Connect
from tests.protocol.statement import (
    claim,
    claim_by_id,
    complete,
    expire,
    fail,
    heartbeat,
    release,
    requeue,
    sweep,
)

ENDS = {"completed", "failed", "released", "expired", "revoked"}
ACTS = st.sampled_from(
    [
        *("claim", "claim", "claim", "expire", "expire", "take over"),
        *("heartbeat", "complete", "fail", "fail for good", "release"),
        *("sweep", "park", "requeue", "force", "lose the lease's end"),
    ]
)


def act(connection: psycopg.Connection, what: str, job: int, token: tuple[int, int], owner: str) -> None:
    """One act, with a token that may be of any attempt, by any of two owners."""
    match what:
        case "claim":
            claim_by_id(connection, job, owner, takeover=False)
        case "take over":
            claim_by_id(connection, job, owner)
        case "expire":
            expire(connection, job) if world.row(connection, job, "status") == ("Processing",) else None
        case "lose the lease's end":
            connection.execute("UPDATE payment_jobs SET lease_until = NULL WHERE id = %s", [job])
        case "heartbeat":
            heartbeat(connection, [token], owner, stage="capture")
        case "complete":
            complete(connection, [token], owner)
        case "fail" | "fail for good":
            fail(connection, token, owner, retry=what == "fail")
        case "release":
            release(connection, [token], owner)
        case "sweep" | "park":
            sweep(connection, "park" if what == "park" else "requeue")
        case "requeue" | "force":
            requeue(connection, job, force=what == "force")
    # Waits are not what is tested here.
    connection.execute("UPDATE payment_jobs SET run_after = clock_timestamp() WHERE status = 'Pending'")


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(acts=st.lists(st.tuples(ACTS, st.integers(-1, 0), st.sampled_from(["w/1/a", "w/2/b"])), max_size=25))
def test_every_ended_attempt_has_exactly_one_end(
    connection: psycopg.Connection, acts: list[tuple[str, int, str]]
) -> None:
    connection.execute("TRUNCATE payment_jobs, payment_job_history")
    job = world.put(connection, max_attempts=4)
    for what, back, owner in acts:
        (attempts,) = world.row(connection, job, "attempts")
        assert isinstance(attempts, int)
        act(connection, what, job, (job, attempts + back), owner)
        check(connection, job)


def check(connection: psycopg.Connection, job: int) -> None:
    status, owner, until, claimed, finished, attempts = world.row(
        connection, job, "status, lease_owner, lease_until, claimed_at, finished_at, attempts"
    )
    assert isinstance(attempts, int)
    history = connection.execute("SELECT attempt, event FROM payment_job_history WHERE job_id = %s", [job])
    ends = Counter(attempt for attempt, event in history if event in ENDS)
    ended = attempts - (status == "Processing")
    assert ends == Counter(range(1, ended + 1))
    assert (owner is not None, claimed is not None) == ((status == "Processing"),) * 2
    assert status == "Processing" or until is None
    assert (finished is not None) == (status in ("Completed", "Failed", "Cancelled"))


def test_sixteen_workers_at_once_leave_one_end_for_each_attempt(
    connection: psycopg.Connection, connect: Connect
) -> None:
    """Claims, heartbeats, failures, completions and sweeps all at once, without an error."""
    for _ in range(60):
        world.put(connection, max_attempts=3)

    connections = [connect() for _ in range(16)]

    def work(number: int) -> None:
        owner, mine = f"w/{number}/a", connections[number]
        for turn in range(40):
            tokens = claim(mine, owner, batch=3)
            heartbeat(mine, tokens, owner)
            for token in tokens[:1]:
                fail(mine, token, owner, backoff_s=0.001)
            if turn % 3:
                complete(mine, tokens[1:2], owner)
            for job, attempt in tokens[2:]:
                mine.execute(
                    "UPDATE payment_jobs SET lease_until = now() WHERE id = %s AND attempts = %s", [job, attempt]
                )
            if turn % 4 == 0:
                sweep(mine, batch=2, backoff_s=0.001)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    connection.execute("UPDATE payment_jobs SET lease_until = now() WHERE status = 'Processing'")
    sweep(connection)
    wrong = connection.execute(
        "SELECT j.id, j.attempts, count(h) FROM payment_jobs j LEFT JOIN payment_job_history h ON h.job_id = j.id "
        "AND h.event <> 'late completion refused' GROUP BY j.id HAVING count(h) <> j.attempts "
        "OR count(DISTINCT h.attempt) <> j.attempts"
    ).fetchall()
    assert wrong == []
