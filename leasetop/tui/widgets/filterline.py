"""The filter line: an input, and below it what the filter means and how much of the queue it looked at."""

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from leasetop import reading, text
from leasetop.filter import Filter, FilterError, parse
from leasetop.model import Snapshot

_PLACEHOLDER = "pay-7  owner:pay  state:stuck  attempts>=3  age>10m  -kind:refund  id=8841"


class FilterLine(Vertical):
    """Shown while it is used; `Changed` carries each filter that could be understood, `Left` that typing is over."""

    BINDINGS = [Binding("escape", "clear", "Clear", show=False)]

    class Changed(Message):
        """Another filter."""

        def __init__(self, chosen: Filter) -> None:
            super().__init__()
            self.chosen = chosen

    class Left(Message):
        """Back to the table."""

    def __init__(self) -> None:
        super().__init__()
        self._chosen = Filter()
        self._error = ""

    def compose(self) -> ComposeResult:
        yield Input(placeholder=_PLACEHOLDER, compact=True, id="filter")
        yield Static(id="explained", markup=False)

    @property
    def chosen(self) -> Filter:
        """The filter that counts."""
        return self._chosen

    def open(self) -> None:
        """For typing."""
        self.display = self.query_one(Input).display = True
        # At once, and not after the next refresh: what is typed meanwhile would be taken for keys of the table.
        self.screen.set_focus(self.query_one(Input))

    def put(self, line: str) -> None:
        """Another filter, not typed."""
        self.query_one(Input).value = line
        self.display = self.query_one(Input).display = bool(line)

    def show(self, snapshot: Snapshot | None) -> None:
        """How much was looked at."""
        said = f"{self._error} (until then: {self._chosen.explained})" if self._error else self._chosen.explained
        found = ""
        if snapshot is not None and snapshot.chosen == self._chosen:
            if self._chosen:
                found = f"  {text.count(len(snapshot.jobs), len(snapshot.jobs) >= snapshot.limit)} found"
            else:
                said = f"sorted by {snapshot.sort}" if snapshot.sort is not None else said
                self._show_sorting(snapshot)
            capped = self._capped(snapshot)
            if snapshot.everywhere:
                found += ", among all"
            elif capped:
                found += f", among the first {text.count(reading.CAP)} of {' and '.join(capped)}: F looks through all"
        keys = "   enter: to the list, esc: clears" if self.query_one(Input).has_focus and not self._error else ""
        self.query_one("#explained", Static).update(
            Content.assemble(
                (text.safe(said), "$text-error" if self._error else "$text-muted"),
                (found, "bold"),
                (keys, "$text-muted"),
            ),
            layout=False,
        )

    def _show_sorting(self, snapshot: Snapshot) -> None:
        """Without a filter there is a line only where the order is that of a part of the jobs."""
        if not self.query_one(Input).has_focus:
            self.display = self.is_short(snapshot) or (snapshot.sort is not None and snapshot.everywhere)
            self.query_one(Input).display = not self.display

    def is_short(self, snapshot: Snapshot | None) -> bool:
        """Whether the filter, or the order, has not looked at all jobs."""
        if snapshot is None or snapshot.everywhere or not (self._chosen or snapshot.sort):
            return False
        return bool(self._capped(snapshot))

    def _capped(self, snapshot: Snapshot) -> list[str]:
        return [
            state.value
            for state in snapshot.view.states
            if state in self._chosen.states and state in snapshot.tallies and snapshot.tallies[state].capped
        ]

    def action_clear(self) -> None:
        self.put("")
        self.post_message(self.Left())

    @on(Input.Changed, "#filter")
    def _typed(self, event: Input.Changed) -> None:
        try:
            chosen = parse(event.value)
        except FilterError as error:
            self._error = str(error)
            self.show(None)
            return
        self._error = ""
        if chosen != self._chosen:
            self._chosen = chosen
            self.post_message(self.Changed(chosen))
        self.show(None)

    @on(Input.Submitted, "#filter")
    def _submitted(self) -> None:
        if self._error:
            # What is not understood stays to be mended: without it all jobs would look like the answer.
            return
        self.display = bool(self._chosen)
        self.post_message(self.Left())
