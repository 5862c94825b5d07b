"""What the trends screen shows, kept over its openings: the latest look at the history, and leasetop's own samples.

The history is asked for at most every ten seconds, and less often where that would take more than a fiftieth of one
core of the server. How long the oldest pending job waits no table keeps: it is sampled from each snapshot.
"""

import time
from collections import deque
from datetime import datetime, timedelta

from leasetop.errors import LeasetopError
from leasetop.model import Snapshot, State, Trends
from leasetop.queue import Queue
from leasetop.reads import TRENDS_WINDOW

_PACE = timedelta(seconds=10)
_LONGEST = timedelta(seconds=60)
_SHARE = 0.02
_SLOT = timedelta(seconds=10)
_MINUTE = timedelta(minutes=1)


class PendingAges:
    """How long the oldest pending job waited, for the last hour or since leasetop looks: the longest of each slot."""

    def __init__(self) -> None:
        self._slots: deque[tuple[datetime, timedelta]] = deque(maxlen=TRENDS_WINDOW // _SLOT + 1)
        self.since: datetime | None = None
        self.latest: timedelta | None = None
        """None where the queue does not tell."""

    def take(self, snapshot: Snapshot) -> None:
        tally = snapshot.tallies.get(State.PENDING)
        if tally is None or (tally.count and tally.oldest is None):
            self.latest = None
            return
        now = snapshot.now
        self.latest = max(timedelta(), now - tally.oldest) if tally.oldest else timedelta()
        self.since = self.since or now
        if self._slots and now - self._slots[-1][0] < _SLOT:
            at, longest = self._slots.pop()
            self._slots.append((at, max(longest, self.latest)))
        else:
            self._slots.append((now, self.latest))

    def by_minute(self, now: datetime) -> dict[int, timedelta]:
        """Minutes before now -> the longest wait seen then; a minute without a sample is missing."""
        found: dict[int, timedelta] = {}
        for at, age in self._slots:
            ago = max(0, (now - at) // _MINUTE)
            if ago < TRENDS_WINDOW // _MINUTE:
                found[ago] = max(found.get(ago, timedelta()), age)
        return found


class Lookout:
    """`latest` is the newest look at the history, `error` why the last one failed."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Another queue is shown."""
        self.ages = PendingAges()
        self.latest: Trends | None = None
        self.error: str | None = None
        self._asked: float | None = None

    def sample(self, snapshot: Snapshot) -> None:
        """From each snapshot, also while no trends are shown."""
        self.ages.take(snapshot)

    @property
    def pace(self) -> timedelta:
        """How long at least between two looks."""
        cost = self.latest.cost if self.latest else timedelta()
        return max(_PACE, min(cost / _SHARE, _LONGEST))

    @property
    def is_due(self) -> bool:
        """Whether the history may be asked again."""
        return self._asked is None or time.monotonic() - self._asked >= self.pace.total_seconds()

    async def look(self, queue: Queue) -> None:
        """Asks now. What was known stays where it fails."""
        self._asked = time.monotonic()
        try:
            self.latest, self.error = await queue.trends(), None
        except LeasetopError as error:
            self.error = str(error)
