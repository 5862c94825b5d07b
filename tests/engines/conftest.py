"""What all tests of other people's queues share."""

from collections.abc import Callable
from pathlib import Path

import pytest
import pytest_asyncio

from leasetop.database import Database
from leasetop.queue import Queue
from tests.engines import environment
from tests.engines.driver import Engine
from tests.queues import open_queue

MakeEngine = Callable[[str, str], Engine]


@pytest.fixture(autouse=True)
def own_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requeues of tables without a history are written down: not among those of whoever runs the tests."""
    monkeypatch.setattr("leasetop.journal.file", lambda: tmp_path / "journal.jsonl")


@pytest.fixture
def make_engine(blank_dsn: str) -> MakeEngine:
    """Installs a Python engine's tables with its own tool; skips, with the reason, where the engine is not here."""

    def make(name: str, script: str) -> Engine:
        reason = environment.missing(name)
        if reason:
            pytest.skip(reason)
        made = Engine(name, script, blank_dsn)
        made.call("install")
        return made

    return make


@pytest_asyncio.fixture
async def queue(engine: Engine, database: Database) -> Queue:
    """The queue that leasetop finds in the engine's database, once the engine's tables are there."""
    return await open_queue(database)
