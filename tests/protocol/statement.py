"""The files of `sql/` called one by one, as their callers do, with what a test does not care about filled in."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import psycopg

from leasetop import statements

Rows = list[tuple[object, ...]]

TTL = timedelta(seconds=30)


def call(connection: psycopg.Connection, name: str, **parameters: object) -> Rows:
    """Runs `sql/NAME.sql`; its rows."""
    cursor = connection.execute(statements.load(name), parameters)
    return cursor.fetchall() if cursor.description else []


def claim(
    connection: psycopg.Connection,
    owner: str = "w/1/a",
    batch: int = 1,
    *,
    takeover: bool = True,
    ttl: timedelta = TTL,
) -> list[tuple[int, int]]:
    """(id, attempt) of the claimed jobs."""
    rows = call(connection, "claim", owner=owner, batch=batch, takeover=takeover, ttl=ttl)
    return [(int(str(row[0])), int(str(row[1]))) for row in rows]


def claim_by_id(
    connection: psycopg.Connection, job: int, owner: str = "w/1/a", *, takeover: bool = True
) -> list[tuple[int, int]]:
    """(id, attempt), or nothing."""
    rows = call(connection, "claim_by_id", id=job, owner=owner, takeover=takeover, ttl=TTL)
    return [(int(str(row[0])), int(str(row[1]))) for row in rows]


def heartbeat(
    connection: psycopg.Connection,
    tokens: Sequence[tuple[int, int]],
    owner: str = "w/1/a",
    *,
    stage: str | None = None,
    revive: bool = True,
) -> Rows:
    """(id, attempt, renewed, held) for each token."""
    return call(connection, "heartbeat", **_tokens(tokens, owner, stage), ttl=TTL, revive=revive)


def complete(
    connection: psycopg.Connection,
    tokens: Sequence[tuple[int, int]],
    owner: str = "w/1/a",
    *,
    stage: str | None = None,
) -> Rows:
    """(id, attempt, outcome) for each token."""
    return call(connection, "complete", **_tokens(tokens, owner, stage))


def fail(
    connection: psycopg.Connection,
    token: tuple[int, int],
    owner: str = "w/1/a",
    *,
    retry: bool = True,
    error: str = "it broke",
    stage: str | None = None,
    backoff_s: float = 2,
    backoff_cap_s: float = 300,
) -> Rows:
    """(id, status, run_after), or nothing."""
    return call(
        connection,
        "fail",
        id=token[0],
        attempt=token[1],
        owner=owner,
        retry=retry,
        error=error,
        stage=stage,
        backoff=timedelta(seconds=backoff_s),
        backoff_cap=timedelta(seconds=backoff_cap_s),
    )


def release(connection: psycopg.Connection, tokens: Sequence[tuple[int, int]], owner: str = "w/1/a") -> list[object]:
    """The released ids."""
    return [row[0] for row in call(connection, "release", **_tokens(tokens, owner, None), reason="stopped")]


def sweep(
    connection: psycopg.Connection,
    policy: str = "requeue",
    *,
    batch: int = 500,
    tokens: Sequence[tuple[int, int]] | None = None,
    backoff_s: float = 2,
    backoff_cap_s: float = 300,
) -> Rows:
    """(id, status, attempts, max_attempts, owner) of the swept jobs."""
    return call(
        connection,
        "sweep",
        policy=policy,
        actor="watcher/1/a",
        batch=batch,
        ids=None if tokens is None else [job for job, _ in tokens],
        attempts=None if tokens is None else [attempt for _, attempt in tokens],
        backoff=timedelta(seconds=backoff_s),
        backoff_cap=timedelta(seconds=backoff_cap_s),
    )


def fence(connection: psycopg.Connection, job: int) -> str:
    """What an operator sees of a job, as requeue.sql compares it."""
    found = connection.execute(
        "SELECT ROW(status, lease_owner, attempts, lease_until)::text FROM payment_jobs WHERE id = %s", [job]
    ).fetchone()
    assert found is not None
    return str(found[0])


def requeue(connection: psycopg.Connection, job: int, seen: str | None = None, *, force: bool = False) -> Rows:
    """(id, status, attempts, max_attempts), or nothing; `seen` is the job as it is now where none is given."""
    return call(
        connection,
        "requeue",
        key_id=job,
        fence=fence(connection, job) if seen is None else seen,
        force=force,
        actor="ops@box",
        reason="looked at the provider: not charged",
    )


def act(connection: psycopg.Connection, name: str, job: int, seen: str | None = None) -> Rows:
    """discard, run_now, park or release_parked: (id, status, attempts, max_attempts), or nothing."""
    return call(
        connection,
        name,
        key_id=job,
        fence=fence(connection, job) if seen is None else seen,
        actor="ops@box",
        reason="the customer asked",
    )


def undo_requeue(
    connection: psycopg.Connection,
    job: int,
    status: str | None,
    *,
    max_attempts: int = 5,
    since: datetime | None = None,
    seen: str | None = None,
) -> Rows:
    """(id, status, attempts, max_attempts), or nothing; `since` and `seen` are as now where none are given."""
    found = connection.execute("SELECT run_after FROM payment_jobs WHERE id = %s", [job]).fetchone()
    assert found is not None
    return call(
        connection,
        "undo_requeue",
        key_id=job,
        fence=fence(connection, job) if seen is None else seen,
        status=status,
        max_attempts=max_attempts,
        since=found[0] if since is None else since,
        actor="ops@box",
        reason="the wrong job",
    )


def expire(connection: psycopg.Connection, job: int, since_s: float = 5) -> None:
    """The job's lease is over since then."""
    connection.execute(
        "UPDATE payment_jobs SET lease_until = clock_timestamp() - %s::interval WHERE id = %s",
        [timedelta(seconds=since_s), job],
    )


def _tokens(tokens: Sequence[tuple[int, int]], owner: str, stage: str | None) -> dict[str, object]:
    return {
        "owner": owner,
        "ids": [job for job, _ in tokens],
        "attempts": [attempt for _, attempt in tokens],
        "stages": [stage] * len(tokens),
    }
