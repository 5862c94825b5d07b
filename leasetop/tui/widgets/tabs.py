"""The tabs of the jobs screen."""

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.widgets import Static

from leasetop import text
from leasetop.model import Snapshot, View
from leasetop.tui.widgets.tiles import Tile


class Tabs(Static):
    """The tabs with their keys and counts, and how many rows are shown of how many."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._view = View.ACTIVE
        self._snapshot: Snapshot | None = None
        self._marks = self._skipped = 0
        self._ends: list[tuple[int, View]] = []
        """Where each tab ends, from the left."""

    def show(self, snapshot: Snapshot | None, view: View, skipped: int = 0) -> None:
        self._snapshot, self._view, self._skipped = snapshot, view, skipped
        self.on_resize()

    def show_marks(self, number: int) -> None:
        self._marks = number
        self.on_resize()

    def on_resize(self) -> None:
        pieces: list[str | tuple[str, str]] = []
        shown = ""
        if self._snapshot is not None and self._snapshot.view is self._view:
            total = self._snapshot.total(self._view)
            marks = f"{text.count(self._marks)} marked, " if self._marks else ""
            first = f" from {text.count(self._skipped + 1)}" if self._skipped else ""
            shown = f"{marks}{text.count(len(self._snapshot.jobs))}{first} of {text.count(total.count, total.capped)} "
        names = [(view, f" {n} {view} ") for n, view in enumerate(View, start=1)]
        if sum(cell_len(said) for _, said in names) > self.size.width - cell_len(shown):
            names = [(view, f" {n} {view}") for n, view in enumerate(View, start=1)]
            shown = f" {shown}"
        if sum(cell_len(said) for _, said in names) > self.size.width - cell_len(shown):
            # Narrow: how many are marked, or else how many are shown, without the rest.
            shown = f" {shown.strip().split(',' if self._marks else ' of')[0]} "
        room = self.size.width - cell_len(shown)
        self._ends, end = [], 0
        for view, said in names:
            end += cell_len(said)
            self._ends.append((end, view))
            pieces.append((said, "bold reverse" if view is self._view else ""))
        used = sum(cell_len(said) for _, said in names)
        pieces.append(" " * max(0, room - used))
        pieces.append((shown, "$text-muted"))
        self.update(Content.assemble(*pieces), layout=False)

    def on_click(self, event: events.Click) -> None:
        view = next((view for end, view in self._ends if event.x < end), None)
        if view is not None:
            self.post_message(Tile.Chosen(view.value))
