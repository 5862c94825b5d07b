"""Waiting for something to be so, with a deadline: for what the database alone can tell, and no event reports."""

import os
import time
from collections.abc import Callable
from pathlib import Path
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


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has reaped yet counts."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
