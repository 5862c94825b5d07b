"""One embedded PostgreSQL for the whole run; a database of its own for each test, copied from a template."""

import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import pytest_asyncio
from psycopg import sql

from leasetop import schema
from leasetop.database import Database
from leasetop.demo.postgres import EmbeddedPostgres

# Nothing here outlives the run: durability only costs time.
SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "autovacuum": "off",
}
_TEMPLATE = "leasetop_template"
_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals, trusted profiles and settings of the tests are not the operator's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    for name in ("LEASETOP_CONFIG", "LEASETOP_DSN", "LEASETOP_INTERVAL", "LEASETOP_READ_ONLY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def short_directory() -> Iterator[Path]:
    """A directory whose path is short enough for a unix socket, and that a server's user can enter, as root too."""
    made = Path(tempfile.mkdtemp(prefix="lt-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def server(short_directory: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(short_directory / "pg", SETTINGS) as running:
        with psycopg.connect(running.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(_TEMPLATE)))
        with psycopg.connect(running.dsn(_TEMPLATE)) as connection:
            schema.apply(connection)
        yield running


@pytest.fixture
def new_database(server: EmbeddedPostgres) -> Iterator[Callable[..., str]]:
    """Makes databases from a template; gives their DSNs, and drops them after the test."""
    made: list[str] = []

    def make(template: str, encoding: str | None = None) -> str:
        name = f"test_{next(_numbers)}"
        command = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
        if encoding is not None:
            options = " ENCODING {} LOCALE_PROVIDER libc LC_COLLATE 'C' LC_CTYPE 'C'"
            command += sql.SQL(options).format(sql.Literal(encoding))
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(command)
        made.append(name)
        return server.dsn(name)

    yield make
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        for name in made:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def dsn(new_database: Callable[..., str]) -> str:
    """A fresh database with the home table."""
    return new_database(_TEMPLATE)


@pytest.fixture
def blank_dsn(new_database: Callable[..., str]) -> str:
    """A fresh database with nothing in it."""
    return new_database("template1")


@pytest_asyncio.fixture
async def database(blank_dsn: str) -> AsyncIterator[Database]:
    """A fresh database with nothing in it, as leasetop connects to it."""
    made = Database(blank_dsn)
    yield made
    await made.close()
