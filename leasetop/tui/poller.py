"""Asks for a snapshot again and again, off the screen's way, and says what came of it.

One task, started and ended in one place. It never asks twice at once, and it asks less often where its questions would
take more than a fiftieth of one core of the server, by what they cost on the server's own clock.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from leasetop import answers
from leasetop.errors import LeasetopError
from leasetop.filter import Filter
from leasetop.model import Snapshot, Throughput, View
from leasetop.paging import Place
from leasetop.queue import Queue
from leasetop.reads import PAGE

_SHARE = 0.02
_MOST = 5_000
"""Jobs of a window, at most: each refresh carries them all."""
_LONGEST = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Window:
    """Which part of a list is asked for: it grows by pages, and then moves on, by the place of a job in it."""

    limit: int = PAGE
    after: Place | None = None
    skipped: int = 0
    """How many jobs were before it when it was moved."""
    before: "Window | None" = None

    def further(self, snapshot: Snapshot) -> "Window | None":
        """A page more; or, where that would be too many, the same number from the last page of this one on."""
        if self.limit < _MOST:
            return replace(self, limit=self.limit + PAGE)
        place = snapshot.jobs[-PAGE].place
        return None if place is None else Window(_MOST, place, self.skipped + len(snapshot.jobs) - PAGE + 1, self)


class Poller:
    """`publish` gets each snapshot, `lost` each failure to get one; both are called on the event loop."""

    def __init__(
        self,
        queue: Queue,
        interval: timedelta,
        publish: Callable[[Snapshot], object],
        lost: Callable[[LeasetopError], object],
    ) -> None:
        self.view = View.ACTIVE
        self.chosen = Filter()
        self.sort: str | None = None
        self.descending = False
        self.everywhere = False
        """Whether a filter looks at all jobs, once the operator has asked for that."""
        self._window = Window()
        self.paused = False
        self.interval = interval
        self._queue = queue
        self._publish = publish
        self._lost = lost
        self._wake = asyncio.Event()
        self._throughput: Throughput | None = None
        self._costs: deque[timedelta] = deque(maxlen=3)

    @property
    def pace(self) -> timedelta:
        """How long it waits between two questions: the interval, or longer where they cost too much.

        The least of the last costs counts: the first answer of a cold cache says little about the next.
        """
        cost = min(self._costs) if len(self._costs) > 1 else timedelta()
        return max(self.interval, min(cost / _SHARE, _LONGEST))

    def show(self, queue: Queue) -> None:
        """Another queue from now on; an answer of the former one that is under way is dropped."""
        self._queue, self._throughput = queue, None
        self._costs.clear()
        self.from_the_beginning()
        self.wake()

    @property
    def skipped(self) -> int:
        """How many jobs were before the first that is shown, when the window was moved."""
        return self._window.skipped

    def from_the_beginning(self) -> None:
        """Another list: its first page."""
        self._window, self.everywhere = Window(), False

    def more(self, snapshot: Snapshot) -> bool:
        """Asks for what comes after the jobs of a snapshot; False: there is no more, or no way to ask for it."""
        full = len(snapshot.jobs) >= snapshot.limit
        if not full or (snapshot.after, snapshot.limit) != (self._window.after, self._window.limit):
            return False
        window = self._window.further(snapshot)
        if window is None:
            return False
        self._window = window
        self.wake()
        return True

    def look_everywhere(self) -> None:
        """Lets the filter look at all jobs, until the list is another; what that costs decides how often."""
        self.everywhere = True
        self._costs.clear()
        self.wake()

    def less(self) -> bool:
        """Goes back to the window before this one; False: this is the first."""
        if self._window.before is None:
            return False
        self._window = self._window.before
        self.wake()
        return True

    def is_answer(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot answers what is asked now."""
        asked = (self.view, self.chosen, self.sort, self.descending, self._window.after)
        return (snapshot.view, snapshot.chosen, snapshot.sort, snapshot.descending, snapshot.after) == asked

    def wake(self) -> None:
        """An early refresh: now, or as soon as the one under way is done. Also while paused."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._wake.clear()
            asked = self._queue
            try:
                snapshot = await asked.snapshot(
                    self.view,
                    self._window.limit,
                    chosen=self.chosen,
                    sort=self.sort,
                    descending=self.descending,
                    after=self._window.after,
                    everywhere=self.everywhere,
                )
            except LeasetopError as error:
                if asked is self._queue:
                    self._lost(error)
            else:
                if asked is self._queue:
                    self._costs.append(snapshot.cost)
                    self._publish(self._remember(snapshot))
            await self._pause()

    async def _pause(self) -> None:
        while True:
            try:
                await asyncio.wait_for(self._wake.wait(), self.pace.total_seconds())
            except TimeoutError:
                if self.paused:
                    continue
            return

    def _remember(self, snapshot: Snapshot) -> Snapshot:
        # Each snapshot looks at the newest history only; what earlier ones saw of the window is kept here.
        if snapshot.throughput is None:
            return snapshot
        self._throughput = snapshot.throughput.merged(self._throughput, answers.WINDOW)
        return replace(snapshot, throughput=self._throughput)
