"""Two statements at the same row, the worst moment forced: between what one has read and what it locks.

A row-level security policy whose condition waits for an advisory lock stops a statement after it took its snapshot
and before it locks the row. The other statement commits meanwhile; the stopped one must see that.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime

import psycopg
import pytest

from tests import world
from tests.protocol.conftest import Connect
from tests.protocol.statement import (
    act,
    claim,
    claim_by_id,
    complete,
    expire,
    fail,
    fence,
    heartbeat,
    release,
    requeue,
    sweep,
    undo_requeue,
)
from tests.waiting import until_blocked

OWN_DATABASE = True
HOLDER, RIVAL = "w/9/z", "w/1/a"

_GATE = """
    CREATE FUNCTION gate() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
    BEGIN
        PERFORM pg_advisory_lock_shared(7);
        PERFORM pg_advisory_unlock_shared(7);
        RETURN true;
    END $$;
    CREATE POLICY gate ON payment_jobs USING (gate());
    ALTER TABLE payment_jobs ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
    GRANT ALL ON payment_jobs, payment_job_history TO pg_write_all_data;
"""

Statement = Callable[[psycopg.Connection, int], object]

RIVALS: dict[str, Statement] = {
    "claim": lambda c, job: claim(c, RIVAL),
    "claim by id": lambda c, job: claim_by_id(c, job, RIVAL),
    "sweep": lambda c, job: sweep(c),
    "sweep of tokens": lambda c, job: sweep(c, tokens=[(job, 1)]),
}


class Gate:
    """A connection whose statements stop at the gate while it is shut."""

    def __init__(self, admin: psycopg.Connection, stopped: psycopg.Connection) -> None:
        self._admin, self.stopped = admin, stopped
        admin.execute(_GATE)
        # A superuser would pass the policy by: this role is none, and owns nothing.
        stopped.execute("SET ROLE pg_write_all_data")

    @contextmanager
    def holding(self, statement: Statement, job: int) -> Iterator[list[object]]:
        """Runs the statement up to the gate; in the block others act; the answer is in the list afterwards."""
        answer: list[object] = []
        self._admin.execute("SELECT pg_advisory_lock(7)")
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(statement, self.stopped, job)
            until_blocked(self._admin, self.stopped)
            yield answer
            self._admin.execute("SELECT pg_advisory_unlock(7)")
            answer.append(running.result(timeout=10))


@pytest.fixture
def gate(connection: psycopg.Connection, connect: Connect) -> Gate:
    return Gate(connection, connect())


@pytest.mark.parametrize("rival", RIVALS)
def test_a_lease_that_a_heartbeat_renews_meanwhile_is_left_alone(
    connection: psycopg.Connection, gate: Gate, rival: str
) -> None:
    job = world.held(connection, HOLDER, lease_s=-5)
    with gate.holding(RIVALS[rival], job) as answer:
        heartbeat(connection, [(job, 1)], HOLDER)
    assert answer == [[]]
    assert world.row(connection, job) == ("Processing", HOLDER, 1)
    assert world.events(connection, job) == []


@pytest.mark.parametrize("rival", RIVALS)
def test_a_job_that_completes_meanwhile_stays_completed(connection: psycopg.Connection, gate: Gate, rival: str) -> None:
    job = world.held(connection, HOLDER, lease_s=-5)
    with gate.holding(RIVALS[rival], job) as answer:
        complete(connection, [(job, 1)], HOLDER)
    assert answer == [[]]
    assert world.events(connection, job) == ["completed"]


@pytest.mark.parametrize("rival", RIVALS)
def test_a_job_that_is_claimed_meanwhile_belongs_to_the_first(
    connection: psycopg.Connection, gate: Gate, rival: str
) -> None:
    job = world.held(connection, HOLDER, lease_s=-5)
    with gate.holding(RIVALS[rival], job) as answer:
        assert claim(connection, "w/2/b") == [(job, 2)]
    assert answer == [[]]
    assert world.row(connection, job) == ("Processing", "w/2/b", 2)
    assert world.events(connection, job) == ["expired"]


@pytest.mark.parametrize("rival", ["claim", "claim by id"])
def test_a_pending_job_that_is_claimed_meanwhile_is_not_claimed_twice(
    connection: psycopg.Connection, gate: Gate, rival: str
) -> None:
    job = world.put(connection)
    with gate.holding(RIVALS[rival], job) as answer:
        assert claim(connection, "w/2/b") == [(job, 1)]
    assert answer == [[]]


@pytest.mark.parametrize(
    "write",
    [
        lambda c, job: [row[2:] for row in heartbeat(c, [(job, 1)], HOLDER)],
        lambda c, job: [row[2:] for row in complete(c, [(job, 1)], HOLDER)],
        lambda c, job: fail(c, (job, 1), HOLDER),
        lambda c, job: release(c, [(job, 1)], HOLDER),
    ],
    ids=["heartbeat", "complete", "fail", "release"],
)
def test_a_holder_s_write_that_meets_a_new_owner_changes_nothing(
    connection: psycopg.Connection, gate: Gate, write: Statement
) -> None:
    job = world.held(connection, HOLDER)
    with gate.holding(write, job) as answer:
        expire(connection, job)
        claim(connection, "w/2/b")
    # What it answers was true when it began to look ("busy", "held": ask again); what counts is the row.
    assert answer[0] in ([], [(False, True)], [("busy",)])
    assert world.row(connection, job) == ("Processing", "w/2/b", 2)
    assert world.events(connection, job) == ["expired"]


def test_a_requeue_that_meets_a_renewed_lease_changes_nothing(connection: psycopg.Connection, gate: Gate) -> None:
    job = world.held(connection, HOLDER, lease_s=-5)
    seen = fence(connection, job)
    with gate.holding(lambda c, job: requeue(c, job, seen), job) as answer:
        heartbeat(connection, [(job, 1)], HOLDER)
    assert answer == [[]]
    assert world.events(connection, job) == []


@pytest.mark.parametrize(
    ("name", "put"),
    [
        ("discard", lambda c: world.held(c, HOLDER, lease_s=-5)),
        ("park", lambda c: world.held(c, HOLDER, lease_s=-5)),
        ("run_now", lambda c: world.put(c, delay_s=600)),
        ("release_parked", lambda c: world.put(c, "Stuck")),
        ("undo_requeue", lambda c: world.put(c, "Stuck")),
    ],
)
def test_an_act_that_meets_a_claim_changes_nothing(
    connection: psycopg.Connection, gate: Gate, name: str, put: Callable[[psycopg.Connection], int]
) -> None:
    job = put(connection)
    if name == "undo_requeue":
        requeue(connection, job)
    seen, (since,) = fence(connection, job), world.row(connection, job, "run_after")
    assert isinstance(since, datetime)

    def undo(stopped: psycopg.Connection, job: int) -> object:
        return undo_requeue(stopped, job, "Stuck", since=since, seen=seen)

    statement = undo if name == "undo_requeue" else lambda c, job: act(c, name, job, seen)
    with gate.holding(statement, job) as answer:
        if name == "release_parked":
            requeue(connection, job)
        connection.execute("UPDATE payment_jobs SET run_after = now() WHERE run_after > now()")
        ((_, attempt),) = claim(connection, "w/2/b")
        before = world.events(connection, job)
    assert answer == [[]]
    assert world.row(connection, job) == ("Processing", "w/2/b", attempt)
    assert world.events(connection, job) == before


def test_a_sweep_that_meets_a_requeue_changes_nothing(connection: psycopg.Connection, gate: Gate) -> None:
    job = world.held(connection, HOLDER, lease_s=-5)
    with gate.holding(RIVALS["sweep"], job) as answer:
        requeue(connection, job)
    assert answer == [[]]
    assert world.events(connection, job) == ["expired", "requeued"]
