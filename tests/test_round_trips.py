"""Over a slow line a question costs the time of a round trip: how many there are is what a person waits for."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
from psycopg import conninfo

from leasetop.database import Database
from leasetop.model import View
from leasetop.queue import Queue
from tests import world
from tests.queues import open_queue


class Line:
    """A proxy before the server's socket that counts how often the client spoke after the server had."""

    def __init__(self, server: str) -> None:
        self._server = server
        self.turns = 0
        self._server_spoke = True

    async def serve(self, socket: Path) -> asyncio.Server:
        return await asyncio.start_unix_server(self._carry, socket)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_unix_connection(self._server)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, by_server: bool) -> None:
            while data := await source.read(65536):
                if not by_server and self._server_spoke:
                    self.turns += 1
                self._server_spoke = by_server
                sink.write(data)
                await sink.drain()
            sink.close()

        await asyncio.gather(pump(reader, forth, False), pump(back, writer, True), return_exceptions=True)


@pytest.fixture
async def line(dsn: str, short_directory: Path) -> AsyncIterator[Line]:
    info = conninfo.conninfo_to_dict(dsn)
    name = f".s.PGSQL.{info.get('port') or 5432}"
    made = Line(f"{info['host']}/{name}")
    directory = short_directory / "line"
    directory.mkdir(exist_ok=True)
    server = await made.serve(directory / name)
    yield made
    server.close()
    (directory / name).unlink(missing_ok=True)


@pytest.fixture
async def queue(dsn: str, line: Line, short_directory: Path) -> AsyncIterator[Queue]:
    database = Database(conninfo.make_conninfo(dsn, host=str(short_directory / "line")))
    found = await open_queue(database)
    await found.snapshot()
    yield found
    await database.close()


async def test_each_question_of_the_screen_is_one_round_trip(queue: Queue, line: Line, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        keys = [(str(world.held(connection, lease_s=-5)),) for _ in range(20)]
    questions = (
        lambda: queue.snapshot(View.ALL),
        lambda: queue.detail(keys[0]),
        lambda: queue.read_jobs(keys),
        lambda: queue.expired(),
        lambda: queue.anomalies(),
        lambda: queue.payload(keys[0]),
    )
    for ask in questions:
        line.turns = 0
        assert await ask()
        assert line.turns == 1


async def test_an_act_is_four_round_trips(queue: Queue, line: Line, dsn: str) -> None:
    """Its beginning, the act, what it made of the job, and the end."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        keys = [(str(world.held(connection, lease_s=-5)),) for _ in range(2)]
    first, second = [job for job in (await queue.read_jobs(keys)).values() if job is not None]
    # Opens the connection that writes.
    assert (await queue.requeue(first, "ops@box", "pod died")).done
    line.turns = 0
    assert (await queue.requeue(second, "ops@box", "pod died")).done
    assert line.turns == 4
