"""From a command's target to a queue that can be asked; and whether there is a person to ask."""

import shutil
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from leasetop.cli.errors import READ_ONLY, fail
from leasetop.cli.options import Settled, Target, settle
from leasetop.errors import LeasetopError

if TYPE_CHECKING:
    from leasetop.database import Database
    from leasetop.queue import Queue

T = TypeVar("T")


def is_terminal(stream: IO[str] | None) -> bool:
    # None: it was closed by whoever started us.
    return stream is not None and stream.isatty()


def width(stream: IO[str] | None) -> int | None:
    """How many cells a line has where a person reads it; None: it goes to a file or a program."""
    return shutil.get_terminal_size().columns if is_terminal(stream) else None


def need_terminal(instead: str) -> None:
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        fail(f"the screen needs a terminal, and this is none; use {instead}", 1)


def must_write() -> None:
    # Workers and watchers are told by their own command line, not by an operator's settings.
    if click.get_current_context().find_root().params.get("read_only"):
        raise click.UsageError("this command writes: it cannot be --read-only")


def say_notes(queue: "Queue") -> None:
    """What a table of somebody's own lacks, and what is unsure, on standard error."""
    from leasetop import text

    if queue.profile.label == "own":
        for note in queue.profile.notes:
            click.echo(f"note: {text.safe(note)}", err=True)


async def with_queue(target: Target, use: "Callable[[Queue], Coroutine[Any, Any, T]]") -> T:
    async with opened(settle(target.place)) as database:
        return await use(await find_queue(database, target))


@asynccontextmanager
async def opened(settled: Settled) -> AsyncIterator["Database"]:
    """The database, read-only where flag, environment or file want it so."""
    from leasetop.database import Database

    title, database = None, Database(settled.dsn, read_only=settled.is_read_only)
    try:
        if settled.asks_title and not settled.is_read_only:
            # On the connection that would write.
            async with database.acting() as connection:
                row = await (await connection.execute("SELECT current_database()::text")).fetchone()
                title = titled(row[0] if row else "", connection.info.host)
        why = click.get_current_context().meta[READ_ONLY] = settled.why_read_only(title)
        if why and not settled.is_read_only:
            await database.close()
            database = Database(settled.dsn, read_only=True)
        yield database
    finally:
        await database.close()


def titled(database: str, host: str) -> str:
    """`database@host` as the header shows it; a unix socket has a directory for a host."""
    return f"{database}@{'local' if host.startswith('/') or not host else host}"


async def find_queue(database: "Database", target: Target) -> "Queue":
    from leasetop.finding import find
    from leasetop.queue import Queue

    if target.profile is not None:
        _look_first(target.profile)
    profile = await find(
        database, table=target.table, profile=target.profile, name=target.queue, params=dict(target.params)
    )
    return Queue(database, profile)


def _look_first(profile: Path) -> None:
    """A profile of the operator's own is shown before its first use."""
    from leasetop import text, trust
    from leasetop.profile import load

    load(profile)
    if trust.is_trusted(profile):
        return
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise LeasetopError(
            f"{profile} is SQL that would be run, and nobody has looked at it here as it is now: "
            f"read it, then say: leasetop profile --trust {profile}"
        )
    click.echo(text.safe_lines(profile.read_text(encoding="utf-8"), 100_000), err=True)
    click.confirm(f"{profile}: this SQL will be run. Is it as you want it?", abort=True, err=True)
    trust.trust(profile)


def run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    return asyncio.run(work)
