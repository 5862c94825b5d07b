"""The five tiles: how many, and since when."""

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from leasetop import text
from leasetop.model import Snapshot, State, Tally


class Tile(Static):
    """A titled box with two lines: a figure, and what to know about it. A click asks for the tab of that name."""

    class Chosen(Message):
        """A click."""

        def __init__(self, view: str) -> None:
            super().__init__()
            self.view = view

    def __init__(self, title: str, state: State) -> None:
        super().__init__(markup=False, classes=f"tile -{state}")
        self.border_title = Content(title)
        self._title = title
        self._said = ("", "")

    def on_click(self) -> None:
        self.post_message(self.Chosen(self._title))

    def show(self, figure: str, note: str, alarm: bool = False) -> None:
        self.set_class(alarm, "-alarm")
        if (figure, note) != self._said:
            self._said = figure, note
            self.update(Content.assemble((figure, "bold"), "\n", note), layout=False)


class Tiles(Horizontal):
    """Pending, Processing, Stuck, Failed, Completed, from one snapshot."""

    def compose(self) -> ComposeResult:
        self._pending = Tile("Pending", State.PENDING)
        self._processing = Tile("Processing", State.PROCESSING)
        self._stuck = Tile("Stuck", State.STUCK)
        self._failed = Tile("Failed", State.FAILED)
        self._completed = Tile("Completed", State.COMPLETED)
        yield from (self._pending, self._processing, self._stuck, self._failed, self._completed)

    def show(self, snapshot: Snapshot) -> None:
        now = snapshot.clock.now()

        def ago(word: str, tally: Tally | None, newest: bool = False) -> str:
            moment = None if tally is None else tally.newest if newest else tally.oldest
            return "" if moment is None else f"{word} {text.duration(now - moment)}"

        def figure(state: State) -> str:
            tally = snapshot.tallies.get(state)
            return "not kept" if tally is None else text.count(tally.count, tally.capped)

        tallies = snapshot.tallies
        scheduled = tallies.get(State.SCHEDULED, Tally())
        waiting = f" +{text.count(scheduled.count, scheduled.capped)}" if scheduled.count else ""
        pending = figure(State.PENDING) + waiting
        if waiting and len(pending) + len(" later") <= self._pending.size.width:
            pending += " later"
        self._pending.show(pending, ago("oldest", tallies.get(State.PENDING)))
        more = "+" if snapshot.owners_capped else ""
        owners = text.plural(snapshot.live_owner_count, "owner") + more if snapshot.has_owners else "by whom: not kept"
        self._processing.show(figure(State.PROCESSING), owners)
        stuck = tallies.get(State.STUCK, Tally())
        self._stuck.show(figure(State.STUCK), ago("oldest", stuck), alarm=stuck.count > 0)
        failed = tallies.get(State.FAILED, Tally())
        self._failed.show(figure(State.FAILED), ago("newest", failed, newest=True), alarm=failed.count > 0)
        throughput = snapshot.throughput
        if throughput is None:
            self._completed.show(figure(State.COMPLETED), ago("newest", tallies.get(State.COMPLETED), newest=True))
            return
        width = max(5, self._completed.size.width - 2)
        start = snapshot.now - throughput.bucket * width
        values = [
            sum(number for at, number in throughput.completed.items() if 0 <= (at - start) // throughput.bucket - n < 1)
            for n in range(width)
        ]
        self._completed.show(f"{throughput.per_minute(snapshot.now):.0f}/min", text.sparkline(values, width))
