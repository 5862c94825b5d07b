"""What all tests of other people's queues share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from leasetop.database import Database


@pytest.fixture(autouse=True)
def own_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requeues of tables without a history are written down: not among those of whoever runs the tests."""
    monkeypatch.setattr("leasetop.journal.file", lambda: tmp_path / "journal.jsonl")


@pytest_asyncio.fixture
async def database(blank_dsn: str) -> AsyncIterator[Database]:
    """A fresh database with nothing in it, as leasetop connects to it."""
    made = Database(blank_dsn)
    yield made
    await made.close()
