"""`leasetop demo`: an embedded PostgreSQL, a trickle of payments, a watcher, workers, and the screen over it all.

What it starts is gone when the screen is: after quit by its own hand, after SIGKILL by the hands of the keeper (the
server's) and the guard (the fleet's).
"""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

import psycopg

from leasetop import schema, statements, whoami
from leasetop.config import Config
from leasetop.database import Database, connect
from leasetop.demo import shop
from leasetop.demo.fleet import Fleet
from leasetop.demo.postgres import EmbeddedPostgres, default_directory
from leasetop.finding import find
from leasetop.model import Policy
from leasetop.queue import Queue

DATABASE = "leasetop"
_FIRST_PAYMENTS = 25


def dsn(directory: Path | None) -> str:
    """Where psql finds the demo's database while it runs."""
    return EmbeddedPostgres(directory or default_directory()).dsn(DATABASE)


def run(
    directory: Path | None, *, fresh: bool, workers: int, policy: Policy, race: bool, config: Config | None = None
) -> None:
    """Until the operator quits. Raises DemoError or another LeasetopError, in words."""
    server = EmbeddedPostgres(directory or default_directory())
    server.start(fresh=fresh)
    try:
        prepare(server)
        asyncio.run(_show(server.dsn(DATABASE), workers, policy, race, config or Config()))
    finally:
        server.stop()


def prepare(server: EmbeddedPostgres) -> None:
    """The demo's database with its tables, and some payments to begin with."""
    with connect(server.dsn("postgres"), "leasetop demo") as connection:
        there = connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
        if there is None:
            connection.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(DATABASE)))
    with connect(server.dsn(DATABASE), "leasetop demo") as connection:
        schema.apply(connection)
        connection.execute(statements.text("demo").encode())
        shop.enqueue(connection, _FIRST_PAYMENTS)


async def _show(dsn: str, workers: int, policy: Policy, race: bool, config: Config) -> None:
    # The screen's libraries are loaded while the server starts to answer, not before there is one.
    from leasetop.tui.app import LeasetopApp

    database = Database(dsn)
    fleet = Fleet(dsn, policy=policy)
    try:
        await fleet.start_watcher()
        await fleet.start_shop()
        if workers:
            await fleet.spawn(workers)
        app = LeasetopApp(
            Queue(database, await find(database)),
            actor=whoami.operator(),
            interval=timedelta(seconds=config.interval_s),
            policy=policy,
            fleet=fleet,
            config=config,
            demo_database=database,
            race=race,
        )
        await app.run_async()
        if app.return_code:
            sys.exit(app.return_code)
    finally:
        await fleet.close()
        await database.close()
