"""Connections for tests of single statements.

These tests are many and short, so they share one database, emptied before each: a copy for each would take most of
their time. A module that changes more than rows (policies, settings), or needs the `dsn`, says `OWN_DATABASE = True`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest

from leasetop import schema
from leasetop.demo.postgres import EmbeddedPostgres

Connect = Callable[[], psycopg.Connection]


@pytest.fixture(scope="session")
def shared_database(server: EmbeddedPostgres) -> str:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE shared")
    dsn = server.dsn("shared")
    with psycopg.connect(dsn) as connection:
        schema.apply(connection)
    return dsn


@pytest.fixture
def emptied(shared_database: str) -> str:
    """The shared database, with nothing in its tables."""
    with psycopg.connect(shared_database, autocommit=True) as connection:
        connection.execute("TRUNCATE payment_jobs, payment_job_history, leasetop_watchers RESTART IDENTITY")
    return shared_database


@pytest.fixture
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Makes connections in autocommit mode, closed at the end of the test."""
    own = getattr(request.module, "OWN_DATABASE", False)
    dsn = request.getfixturevalue("dsn" if own else "emptied")
    with ExitStack() as stack:
        yield lambda: stack.enter_context(psycopg.connect(dsn, autocommit=True))


@pytest.fixture
def connection(connect: Connect) -> psycopg.Connection:
    return connect()
