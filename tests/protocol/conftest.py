"""Connections for tests of single statements."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest

Connect = Callable[[], psycopg.Connection]


@pytest.fixture
def connect(dsn: str) -> Iterator[Connect]:
    """Makes connections in autocommit mode, closed at the end of the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(psycopg.connect(dsn, autocommit=True))


@pytest.fixture
def connection(connect: Connect) -> psycopg.Connection:
    return connect()
