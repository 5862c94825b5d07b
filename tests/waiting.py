"""Waiting for something to be so, with a deadline: for what the database alone can tell, and no event reports."""

import time
from collections.abc import Callable
from typing import TypeVar

import psycopg

T = TypeVar("T")


def until(check: Callable[[], T], timeout: float = 15.0) -> T:
    """The first true value of `check`."""
    deadline = time.monotonic() + timeout
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < deadline, f"still not so after {timeout} s"
        time.sleep(0.005)


def until_blocked(observer: psycopg.Connection, blocked: psycopg.Connection) -> None:
    """Until that connection's statement waits for a lock."""
    query = "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
    until(lambda: observer.execute(query, [blocked.info.backend_pid]).fetchall())
