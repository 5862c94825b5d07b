"""The sort dialog: one key for each column that the table has."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

_URGENT = "most urgent first"

Choice = tuple[str | None, bool]
"""The column, None for the queue's own order; and whether downwards."""


class SortDialog(ModalScreen[Choice | None]):
    """Choosing the column that sorts already turns it round."""

    BINDINGS = [Binding("escape", "cancel", "Cancel")]

    def __init__(self, columns: Sequence[str], current: Choice) -> None:
        super().__init__()
        self._columns, self._current = columns, current

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -small"):
            options = [Option(_URGENT, id="-"), *(Option(self._words(name), id=name) for name in self._columns)]
            yield OptionList(*options, markup=False, compact=True)

    def on_mount(self) -> None:
        self.query_one(".dialog").border_title = Content("Sort by")
        chosen = self.query_one(OptionList)
        known = list(self._columns)
        chosen.highlighted = 1 + known.index(self._current[0]) if self._current[0] in known else 0

    def _words(self, name: str) -> str:
        if name != self._current[0]:
            return name
        return f"{name} {'▼ (enter: upwards)' if self._current[1] else '▲ (enter: downwards)'}"

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        name = event.option.id
        if name == "-" or name is None:
            self.dismiss((None, False))
        else:
            self.dismiss((name, not self._current[1] if name == self._current[0] else False))

    def action_cancel(self) -> None:
        self.dismiss(None)
