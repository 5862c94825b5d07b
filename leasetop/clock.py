"""The server's clock between two snapshots.

Every deadline, age and countdown is measured against the database's time, never this machine's. A snapshot brings
the server's time; until the next one it is carried on by the monotonic clock, which only measures how long ago that
was. So a box whose own clock is wrong shows the same countdowns as any other.
"""

import time
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class ServerClock:
    """The server's time `at`, read when this machine's monotonic clock showed `monotonic` seconds."""

    at: datetime
    monotonic: float

    @classmethod
    def read(cls, at: datetime, asked: float, answered: float) -> "ServerClock":
        """A reading between `asked` and `answered` (monotonic seconds): taken as the middle of the two."""
        return cls(at, (asked + answered) / 2)

    def now(self) -> datetime:
        """The server's time now, as far as this side can tell."""
        return self.at + self.age()

    def age(self) -> timedelta:
        """How long ago the server's time was read: the age of everything read with it."""
        return timedelta(seconds=max(0.0, time.monotonic() - self.monotonic))
