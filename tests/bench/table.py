"""What the measures share: a fresh home table, jobs in it, and rows of figures."""

import psycopg

from leasetop import schema
from leasetop.demo.postgres import EmbeddedPostgres


def empty(server: EmbeddedPostgres, name: str) -> str:
    """A new database with nothing in it; its DSN."""
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    return server.dsn(name)


def fresh(server: EmbeddedPostgres, name: str) -> str:
    """A new database with the home table; its DSN."""
    dsn = empty(server, name)
    with psycopg.connect(dsn) as connection:
        schema.apply(connection)
    return dsn


def enqueue(dsn: str, jobs: int) -> None:
    """So many Pending jobs, and the planner's figures brought up to date."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            """INSERT INTO payment_jobs (idempotency_key, amount, currency)
               SELECT gen_random_uuid()::text, 1, 'EUR' FROM generate_series(1, %s)""",
            [jobs],
        )
        connection.execute("VACUUM ANALYZE payment_jobs")


def row(*cells: object) -> None:
    """One line: the first cell to the left, figures to the right."""
    first, *rest = (f"{cell:,.2f}" if isinstance(cell, float) else str(cell) for cell in cells)
    print(f"{first:<34}" + "".join(f"{cell:>16}" for cell in rest), flush=True)
