"""The jump dialog: an id, typed or pasted."""

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static


class JumpDialog(ModalScreen[str | None]):
    """Returns the id as it was given."""

    BINDINGS = [Binding("escape", "cancel", "Cancel")]

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -small"):
            yield Input(placeholder="the id of a job, whatever its state", compact=True)
            yield Static("enter shows it, esc cancels", id="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(".dialog").border_title = Content("Jump to a job")
        self.query_one(Input).focus()

    @on(Input.Submitted)
    def _decide(self, event: Input.Submitted) -> None:
        given = event.value.strip()
        self.dismiss(given or None)

    def action_cancel(self) -> None:
        self.dismiss(None)
