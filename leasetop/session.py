"""The database connection of a process that works by itself for weeks: a worker, its heartbeats, a watcher.

Knows how to run one statement of `sql/` at a time, each a transaction of its own, how to come back after the
server went away, and which errors only mean "somebody else was first". Knows nothing of jobs. Synchronous: a
thread that waits here waits for nobody else. Spans that cross into PostgreSQL are timedeltas, waits are float
seconds.
"""

import logging
import random
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import conninfo
from psycopg.types.string import TextLoader

from leasetop import database, statements
from leasetop.errors import CommandError, Unreachable
from leasetop.text import safe

Row = tuple[Any, ...]

TROUBLE = (psycopg.Error, Unreachable)
"""All that `Session.execute` raises."""

# Serialization failure, deadlock, lock not available: the statement had no effect, and may simply be run
# again.
_RACES = frozenset({"40001", "40P01", "55P03"})
# Prepared statement missing, or there already: a transaction pooler that does not track them is in between.
_POOLER = frozenset({"26000", "42P05"})
# Read-only: after a failover we are still connected to what is a standby now.
_ELSEWHERE = frozenset({"25006"})


class SettingsError(CommandError):
    """A setting that cannot be, in one line that names it."""


def require_positive(**spans: timedelta) -> None:
    """Raises SettingsError for the first span that is not longer than zero, or longer than 100 days."""
    for name, span in spans.items():
        # A back-off of 100 days, doubled 29 times, is just within the range of PostgreSQL's interval.
        if not timedelta(0) < span <= timedelta(days=100):
            raise SettingsError(f"{name} must be longer than 0 s and at most 100 days, not {span}")


def storable(value: str, longest: int) -> str:
    """A text that PostgreSQL can store: no NUL bytes, no lone surrogates, at most `longest` characters."""
    cut = value if len(value) <= longest else value[: longest - 1] + "…"
    return cut.replace("\x00", "␀").encode("utf-8", "backslashreplace").decode()


if hasattr(time, "CLOCK_BOOTTIME"):

    def elapsed() -> float:
        """Seconds that only grow. They count while the process is stopped, and the machine suspended."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:

    def elapsed() -> float:
        """Seconds that only grow. They count while the process is stopped."""
        return time.clock_gettime(time.CLOCK_MONOTONIC)


def is_race(error: BaseException) -> bool:
    """Whether this only says that somebody else was at the same rows: run the statement again."""
    return isinstance(error, psycopg.Error) and error.sqlstate in _RACES


def words(error: BaseException) -> str:
    """Any error as one line."""
    if isinstance(error, psycopg.Error):
        return safe(database.in_words(error), 500)
    return safe(error, 500)


def fact(log: logging.Logger, level: int, event: str, text: str, **fields: object) -> None:
    """One line, one fact; the same as structured fields on the record, under stable names."""
    log.log(level, text, extra={"event": event, **fields})


class Session:
    """One connection, made when first needed and made anew after it broke. For one thread at a time.

    `pooled` is for a transaction pooler in between: nothing is prepared, and every setting is of the
    transaction only. Otherwise the settings are the session's, and each statement is prepared once.
    """

    def __init__(
        self, dsn: str | None, application: str, *, patience: timedelta, lock: timedelta, pooled: bool = False
    ) -> None:
        self._dsn = _watched(dsn, patience)
        self._application = application
        self._pooled = pooled
        self._prepared = not pooled
        self._settings = {
            # Whatever the role or the database has as default: the protocol is written for READ COMMITTED.
            "default_transaction_isolation": "read committed",
            "statement_timeout": f"{_milliseconds(patience)}ms",
            "lock_timeout": f"{_milliseconds(lock)}ms",
            # Each statement is served by an index. A plan made while the table was small is kept for a long
            # time.
            "enable_seqscan": "off",
            "jit": "off",
        }
        self._connection: psycopg.Connection | None = None
        self._cursor: psycopg.Cursor | None = None

    @property
    def lost(self) -> bool:
        """Whether the latest error cost the connection (or there never was one)."""
        return self._connection is None or self._connection.closed

    def connection(self) -> psycopg.Connection:
        """The connection, new where there is none. Raises Unreachable."""
        if self._connection is not None and self._connection.closed:
            self.close()
        if self._connection is None:
            made = database.connect(self._dsn, self._application)
            made.prepare_threshold = 0 if self._prepared else None
            # Neither is needed as a value here: instants stay on the server, payloads wait until they are
            # asked for.
            made.adapters.register_loader("timestamptz", TextLoader)
            made.adapters.register_loader("jsonb", TextLoader)
            if self._pooled:
                made.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            else:
                self._set(made, local=False)
            self._connection, self._cursor = made, made.cursor()
        return self._connection

    def execute(self, name: str, parameters: Mapping[str, object]) -> list[Row]:
        """Runs `sql/NAME.sql` as a transaction of its own. Raises what TROUBLE names."""
        connection = self.connection()
        try:
            if self._pooled:
                with connection.transaction():
                    self._set(connection, local=True)
                    return self._run(name, parameters)
            return self._run(name, parameters)
        except psycopg.Error as error:
            self._mend(connection, error)
            raise

    def _run(self, name: str, parameters: Mapping[str, object]) -> list[Row]:
        cursor = self._cursor
        assert cursor is not None
        cursor.execute(statements.load(name), parameters)
        # Cheaper than to look at cursor.description, which makes an object for each column.
        return cursor.fetchall() if cursor.pgresult and cursor.pgresult.nfields else []

    def close(self) -> None:
        """Closes the connection; the next statement would make a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = self._cursor = None

    def _set(self, connection: psycopg.Connection, local: bool) -> None:
        calls = ", ".join(f"set_config(%s, %s, {'true' if local else 'false'})" for _ in self._settings)
        values = [value for setting in self._settings.items() for value in setting]
        try:
            connection.execute(f"SELECT {calls}".encode(), values, prepare=False)
        except psycopg.Error:
            connection.close()
            raise

    def _mend(self, connection: psycopg.Connection, error: psycopg.Error) -> None:
        if error.sqlstate in _POOLER:
            self._prepared = False
        if connection.closed or error.sqlstate in _POOLER | _ELSEWHERE:
            self.close()


class Outage:
    """Counts failures in a row: says so once, says once that it is over, and how long to wait meanwhile."""

    def __init__(self, log: logging.Logger, what: str, first: float, longest: float) -> None:
        self._log, self._what, self._first, self._longest = log, what, first, longest
        self._failures = 0

    def failed(self, error: BaseException) -> float:
        """Seconds to wait before the next try: doubled for each failure, with jitter."""
        if not self._failures:
            text = f"{self._what}: {words(error)}; trying again until it works"
            fact(self._log, logging.WARNING, "outage", text, error=words(error))
        wait: float = min(self._longest, self._first * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return wait * random.uniform(0.5, 1.0)

    def worked(self) -> None:
        """To be told after each success."""
        if self._failures:
            fact(self._log, logging.INFO, "back", f"{self._what}: works again", failures=self._failures)
            self._failures = 0


def _watched(dsn: str | None, patience: timedelta) -> str:
    """The DSN with limits for a network that swallows packets, where it sets none itself."""
    limits = {
        "tcp_user_timeout": str(_milliseconds(patience)),
        "keepalives_idle": str(max(1, round(patience.total_seconds() / 2))),
        "keepalives_interval": str(max(1, round(patience.total_seconds() / 6))),
        "keepalives_count": "3",
        # A server in SQL_ASCII would otherwise hand out bytes.
        "client_encoding": "UTF8",
    }
    return conninfo.make_conninfo("", **(limits | database.parse(dsn)))


def _milliseconds(span: timedelta) -> int:
    return max(1, round(span.total_seconds() * 1000))
