"""Opens a queue as the commands do: its profile is found in the database, or told by the test."""

from typing import Any

from leasetop.database import Database
from leasetop.finding import find
from leasetop.queue import Queue


async def open_queue(database: Database, **chosen: Any) -> Queue:
    """The queue of this database; `chosen` as find takes it."""
    return Queue(database, await find(database, **chosen))
