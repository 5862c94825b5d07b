"""The export dialog: where to write what is shown."""

from datetime import datetime
from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from leasetop import text


class ExportDialog(ModalScreen[Path | None]):
    """Returns the file. `what` is said in the title, and is the first part of the name that is proposed."""

    BINDINGS = [Binding("escape", "cancel", "Cancel")]

    def __init__(self, what: str, at: datetime, beyond: str = "") -> None:
        super().__init__()
        self._what, self._at, self._beyond = what, at, beyond

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -small"):
            yield Input(value=f"leasetop-{self._what}-{self._at:%Y%m%dT%H%M%SZ}.csv", compact=True)
            if self._beyond:
                beyond = self._beyond.removeprefix("; ")
                yield Static(beyond[:1].upper() + beyond[1:], id="beyond", markup=False)
            yield Static(".csv or .json; enter writes it, esc cancels", id="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(".dialog").border_title = Content(f"Export the {self._what} that are shown")
        self.query_one(Input).focus()

    @on(Input.Submitted)
    def _decide(self, event: Input.Submitted) -> None:
        given = event.value.strip()
        try:
            self.dismiss(Path(given).expanduser() if given else None)
        except RuntimeError:
            self.query_one("#hint", Static).update(
                f"whose home is that? {text.safe(given.split('/')[0], 40)} is no user here"
            )

    def action_cancel(self) -> None:
        self.dismiss(None)
