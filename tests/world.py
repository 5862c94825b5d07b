"""The smallest worlds that show a point: rows put into the home table as a test needs them."""

from datetime import timedelta

import psycopg

_INSERT = """
    INSERT INTO payment_jobs (idempotency_key, amount, currency, status, stage, lease_owner, lease_until, lease_ttl,
                              claimed_at, attempts, max_attempts, run_after, created_at, finished_at, last_error)
    VALUES (coalesce(%(key)s, gen_random_uuid()::text), 12.30, 'EUR', %(status)s, %(stage)s, %(owner)s,
            clock_timestamp() + %(lease)s::interval, %(ttl)s, clock_timestamp() - %(claimed)s::interval, %(attempts)s,
            %(max_attempts)s, clock_timestamp() + %(delay)s::interval, clock_timestamp() - %(age)s::interval,
            CASE WHEN %(status)s IN ('Completed', 'Failed', 'Cancelled') THEN clock_timestamp() END, %(error)s)
    RETURNING id
"""


def put(
    connection: psycopg.Connection,
    status: str = "Pending",
    *,
    owner: str | None = None,
    lease_s: float | None = None,
    attempts: int = 0,
    max_attempts: int = 5,
    stage: str | None = None,
    delay_s: float = 0,
    age_s: float = 60,
    error: str | None = None,
    key: str | None = None,
) -> int:
    """One job; `lease_s` seconds of lease are left (negative: over since), None for none."""
    held = status == "Processing"
    row = connection.execute(
        _INSERT,
        {
            "key": key,
            "status": status,
            "stage": stage,
            "owner": owner,
            "lease": None if lease_s is None else timedelta(seconds=lease_s),
            "ttl": timedelta(seconds=30) if held else None,
            "claimed": timedelta(seconds=20) if held else None,
            "attempts": attempts,
            "max_attempts": max_attempts,
            "delay": timedelta(seconds=delay_s),
            "age": timedelta(seconds=age_s),
            "error": error,
        },
    ).fetchone()
    assert row is not None
    return int(row[0])


def held(connection: psycopg.Connection, owner: str = "w/1/a", lease_s: float = 20, **more: object) -> int:
    """A job that `owner` holds in its first attempt."""
    return put(connection, "Processing", owner=owner, lease_s=lease_s, **({"attempts": 1} | more))  # type: ignore[arg-type]


def row(connection: psycopg.Connection, job: int, columns: str = "status, lease_owner, attempts") -> tuple[object, ...]:
    """Some columns of one job."""
    found = connection.execute(f"SELECT {columns} FROM payment_jobs WHERE id = %s", [job]).fetchone()
    assert found is not None, f"job {job} is gone"
    return found


def events(connection: psycopg.Connection, job: int) -> list[str]:
    """The history of one job, oldest first."""
    found = connection.execute("SELECT event FROM payment_job_history WHERE job_id = %s ORDER BY id", [job])
    return [event for (event,) in found]
