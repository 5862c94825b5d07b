"""Connections to PostgreSQL, short transactions on them, and the server's errors in words.

Two kinds of transaction exist: `reading` (REPEATABLE READ, READ ONLY, so that all figures of one screen agree) and
`acting` (READ COMMITTED). Each has a connection of its own, made when first needed and made anew when it broke. All
session settings are SET LOCAL inside the transaction and prepared statements are off, so that a transaction pooler
in between changes nothing. Passwords never leave this module.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg import conninfo, pq, sql
from psycopg.abc import Buffer
from psycopg.rows import dict_row
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.string import TextLoader

from leasetop import text
from leasetop.errors import DsnError, LeasetopError, ReadOnly, Refused, Unreachable
from leasetop.model import ALWAYS, NEVER

Row = Mapping[str, Any]
"""A row as it enters; rows become model objects in answers.py and queue.py, and nowhere else."""

Question = tuple[bytes | None, Mapping[str, object]]
"""A statement with what its parameters are; None where there is nothing to ask."""
_READING = b"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"

# What it logs is that a pipeline was given up after an error, and that error is told here.
logging.getLogger("psycopg").setLevel(logging.ERROR)

CONNECT_TIMEOUT = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long the database may take for us before it is to give up by itself."""

    statement: timedelta = timedelta(seconds=5)
    lock: timedelta = timedelta(seconds=2)
    idle: timedelta = timedelta(seconds=10)

    def settings(self) -> dict[str, str]:
        """The same as settings of a transaction, with what makes every server answer in the same format."""
        return {
            "statement_timeout": _milliseconds(self.statement),
            "lock_timeout": _milliseconds(self.lock),
            "idle_in_transaction_session_timeout": _milliseconds(self.idle),
            "TimeZone": "UTC",
            "DateStyle": "ISO, MDY",
            "IntervalStyle": "postgres",
            "extra_float_digits": "1",
            # Else a backslash in a profile's text would mean something.
            "standard_conforming_strings": "on",
            # A screen that refreshes must not take a second core; and an Append then keeps the order of its arms.
            "max_parallel_workers_per_gather": "0",
        }


def _milliseconds(span: timedelta) -> str:
    return str(max(1, round(span.total_seconds() * 1000)))


class _Text(TextLoader):
    """A text of a database without an encoding (SQL_ASCII) may be anything: what is no UTF-8 is shown as �."""

    def load(self, data: Buffer) -> str:
        return bytes(data).decode("utf-8", "replace")


class _ClampedTimestamptz(TimestamptzLoader):
    """PostgreSQL's infinity, years beyond 9999 and BC become NEVER and ALWAYS instead of an error."""

    def load(self, data: Buffer) -> datetime:
        try:
            return super().load(data)
        except psycopg.DataError:
            written = bytes(data)
            return ALWAYS if written.startswith(b"-") or written.endswith(b"BC") else NEVER


def parse(dsn: str | None) -> dict[str, str]:
    """A URI or key=value string -> libpq's parameters; None -> none, libpq's own environment counts.

    Raises DsnError. What was given is never repeated: it may hold a password.
    """
    if dsn is None:
        return {}
    try:
        found = conninfo.conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        raise DsnError(
            "--dsn is neither a postgresql://user@host:port/database URI nor key=value pairs such as "
            f"'host=db1 dbname=pay user=ops' ({_kind(str(error))})"
        ) from None
    given = {key: str(value) for key, value in found.items() if value is not None}
    if "@" in given.get("host", ""):
        # An unescaped @ in the password: what libpq takes for the host is the rest of the password.
        raise DsnError("--dsn: the host holds an @: write an @ in the user or password as %40")
    return given


def _kind(message: str) -> str:
    # libpq quotes the offending piece, which may be the password: keep what stands before the first quote.
    return text.safe(message.split('"')[0].split("\n")[0].strip(" :")) or "it cannot be parsed"


def parameters(dsn: str | None, application: str) -> dict[str, str]:
    """Everything for psycopg's connect: the DSN, our name, and a time-out where nobody set one."""
    found = parse(dsn)
    if "connect_timeout" not in found and "PGCONNECT_TIMEOUT" not in os.environ:
        found["connect_timeout"] = str(round(CONNECT_TIMEOUT.total_seconds()))
    # Whatever PGCLIENTENCODING says: texts are read as Unicode here.
    return found | {"application_name": application, "client_encoding": "UTF8"}


def connect(dsn: str | None, application: str) -> psycopg.Connection:
    """A plain connection in autocommit mode, for one process that works through its own statements.

    Raises Unreachable with the reason in words.
    """
    try:
        made = psycopg.connect(**parameters(dsn, application), autocommit=True)  # type: ignore[arg-type]
    except psycopg.Error as error:
        raise unreachable(error) from None
    made.adapters.register_loader("timestamptz", _ClampedTimestamptz)
    return made


class Database:
    """The screen's and the commands' way to the server: short transactions, each kind on a connection of its own."""

    def __init__(
        self,
        dsn: str | None,
        *,
        application: str = "leasetop",
        read_only: bool = False,
        limits: Limits | None = None,
    ) -> None:
        self._parameters = parameters(dsn, application)
        self._read_only = read_only
        self._limits = limits or Limits()
        self._lines: dict[str, psycopg.AsyncConnection] = {}
        self._locks = {"reading": asyncio.Lock(), "acting": asyncio.Lock()}

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[psycopg.AsyncConnection]:
        """One transaction in which all reads agree with each other. Raises Unreachable or Refused."""
        async with self._transaction("reading", _READING) as connection:
            yield connection

    async def ask(self, questions: Sequence[Question]) -> list[list[Row] | None]:
        """The answers to all questions, None for one that is None, from one transaction that only reads.

        In one round trip: over a slow line that is what a refresh costs. Raises Unreachable or Refused.
        """
        async with self._in_words("reading") as connection:
            cursors: list[psycopg.AsyncCursor[Row] | None] = []
            async with connection.pipeline():
                await connection.execute(_READING)
                await connection.execute(*_set_local(self._limits.settings()))
                for sql, given in questions:
                    cursors.append(None if sql is None else connection.cursor(row_factory=dict_row))
                    if sql is not None:
                        await cursors[-1].execute(sql, given)  # type: ignore[union-attr]
                await connection.execute(b"COMMIT")
            return [None if cursor is None else list(await cursor.fetchall()) for cursor in cursors]

    @property
    def host(self) -> str:
        """Where the server was reached that answered last; empty before there was an answer."""
        connection = self._lines.get("reading")
        return "" if connection is None else connection.info.host

    @asynccontextmanager
    async def acting(self) -> AsyncIterator[psycopg.AsyncConnection]:
        """One transaction that may write, rolled back on any error. Raises Unreachable or Refused."""
        # Never READ WRITE: a session or role that somebody set read-only is to stay that.
        mode = b", READ ONLY" if self._read_only else b""
        async with self._transaction("acting", b"BEGIN ISOLATION LEVEL READ COMMITTED" + mode) as connection:
            yield connection

    async def close(self) -> None:
        """Closes both connections; the next transaction would open them again."""
        for connection in self._lines.values():
            await connection.close()
        self._lines.clear()

    @asynccontextmanager
    async def _transaction(self, kind: str, begin: bytes) -> AsyncIterator[psycopg.AsyncConnection]:
        async with self._in_words(kind) as connection:
            # One round trip for the beginning: the pipeline sends both before it waits.
            async with connection.pipeline():
                await connection.execute(begin)
                await connection.execute(*_set_local(self._limits.settings()))
            yield connection
            await connection.execute(b"COMMIT")

    @asynccontextmanager
    async def _in_words(self, kind: str) -> AsyncIterator[psycopg.AsyncConnection]:
        """The connection of a kind, for one user at a time; idle again after an error, which is told in words."""
        async with self._locks[kind]:
            connection = await self._line(kind)
            try:
                yield connection
            except psycopg.Error as error:
                await self._give_up(connection)
                raise in_words(error) from error
            except BaseException:
                await self._give_up(connection)
                raise

    async def _line(self, kind: str) -> psycopg.AsyncConnection:
        connection = self._lines.get(kind)
        if connection is not None and not connection.closed and not connection.broken:
            return connection
        try:
            made = await psycopg.AsyncConnection.connect(
                **self._parameters,  # type: ignore[arg-type]
                autocommit=True,
                prepare_threshold=None,
            )
            if made.info.parameter_status("server_encoding") == "SQL_ASCII":
                # Asked for UTF-8, the server refuses a row in which there is anything else.
                await made.execute(b"SET client_encoding TO 'SQL_ASCII'")
        except psycopg.Error as error:
            raise unreachable(error) from None
        for name in ("text", "varchar", "bpchar", "name"):
            made.adapters.register_loader(name, _Text)
        made.adapters.register_loader("timestamptz", _ClampedTimestamptz)
        self._lines[kind] = made
        return made

    async def _give_up(self, connection: psycopg.AsyncConnection) -> None:
        """Back to idle after an error; a connection that cannot get there is closed and made anew next time."""
        try:
            if connection.info.transaction_status in (
                pq.TransactionStatus.INTRANS,
                pq.TransactionStatus.INERROR,
            ):
                await connection.execute(b"ROLLBACK")
        except psycopg.Error:
            await connection.close()
        if connection.info.transaction_status is not pq.TransactionStatus.IDLE:
            await connection.close()


def _set_local(settings: Mapping[str, str]) -> tuple[sql.Composed, list[str]]:
    call = sql.SQL("set_config({}, %s, true)")
    calls = sql.SQL(", ").join(call.format(sql.Literal(name)) for name in settings)
    return sql.SQL("SELECT ") + calls, list(settings.values())


def unreachable(error: psycopg.Error) -> Unreachable:
    """Why no connection came about, and what to do, in one line."""
    message = text.safe(" ".join(str(error).split()))
    for sign, advice in _CONNECT_ADVICE:
        if sign in message:
            return Unreachable(f"{_short(message)} - {advice}")
    return Unreachable(f"{_short(message)} - check --dsn or PGHOST, PGPORT, PGUSER, PGDATABASE")


_CONNECT_ADVICE = (
    ("password authentication failed", "check the user and PGPASSWORD or the password file (~/.pgpass)"),
    ("no password supplied", "set PGPASSWORD, or add the server to the password file (~/.pgpass)"),
    ("does not exist", "check the database and user names in --dsn"),
    ("Connection refused", "nothing listens there: check host and port, and that the server runs"),
    ("No such file or directory", "no server on that socket: give --dsn, or start one with: leasetop demo"),
    ("could not translate host name", "check the host name in --dsn"),
    ("failed to resolve host", "check the host name in --dsn"),
    ("timeout expired", "the host does not answer: check the address and the firewall"),
    ("too many clients", "the server has no connection left: free one or raise max_connections"),
    ("remaining connection slots", "the server has no connection left: free one or raise max_connections"),
    ("pg_hba.conf", "the server does not let this user in from here: check pg_hba.conf"),
    ("is starting up", "the server is starting: wait a moment"),
    ("is shutting down", "the server is stopping: wait, or start it again"),
)


def _short(message: str) -> str:
    # libpq tries each address of a host and says so for each: the first says enough.
    first = message.split(" Multiple connection attempts failed", maxsplit=1)[0]
    first = first.replace("connection failed: ", "", 1).replace("Is the server running", "- is the server running")
    return f"no connection to PostgreSQL: {first[:300]}"


def in_words(error: psycopg.Error) -> LeasetopError:
    """The server's error as one line for the operator. A lost connection becomes Unreachable, the rest Refused."""
    code = error.sqlstate
    if code is None or code.startswith(("08", "57P0")):
        if isinstance(error, psycopg.OperationalError):
            return Unreachable(f"the connection to PostgreSQL is lost: {_first_line(error)}")
        return Refused(_first_line(error))
    said = text.safe(error.diag.message_primary or _first_line(error), 500)
    advice = _ADVICE.get(code)
    kind = ReadOnly if code == "25006" else Refused
    return kind(f"{advice} ({said}, SQLSTATE {code})" if advice else f"{said} (SQLSTATE {code})")


_ADVICE = {
    "23505": "refused: another row has that key already",
    "25006": "refused: this connection is read-only",
    "40001": "somebody else changed the same rows first: try again",
    "40P01": "a deadlock with another transaction was broken: try again",
    "42501": "no privilege for this: ask the owner of the table for it",
    "42P01": "a table is missing: the profile does not fit this database (for the home table: leasetop init)",
    "42703": "a column is missing: the table is of another version than the profile",
    "53100": "the server's disk is full",
    "53200": "the server is out of memory",
    "55P03": "locked by another transaction right now (a row perhaps by its worker, just finishing): try again",
    "57014": "the server took too long and gave up: try again, or ask for less",
}


def _first_line(error: psycopg.Error) -> str:
    return text.safe(next(iter(str(error).strip().splitlines()), type(error).__name__), 300)
