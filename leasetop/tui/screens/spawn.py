"""The spawn dialog: how many demo workers; on a database that is not the demo's only after its name is typed."""

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from leasetop import text

MOST = 20


class SpawnDialog(ModalScreen[int | None]):
    """`strange` is the title of a database that is not the demo's; None for the demo's own."""

    BINDINGS = [Binding("escape", "cancel", "Cancel")]

    def __init__(self, strange: str | None) -> None:
        super().__init__()
        self._strange = strange

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -small"):
            yield Static(self._words(), markup=False)
            yield Input("2", type="integer", placeholder=f"how many, 1 to {MOST}", id="number", compact=True)
            if self._strange is not None:
                yield Input(placeholder=f"type {text.safe(self._strange)} to go on", id="typed", compact=True)
            yield Static("enter starts them, esc cancels", id="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(".dialog").border_title = Content("Spawn demo workers")
        self.query_one("#number").focus()

    def _words(self) -> Content:
        if self._strange is None:
            return Content("Real processes that claim jobs and pay them at the pretend provider.")
        return Content.assemble(
            (f"{text.safe(self._strange)} is not the demo's database. ", "bold $text-error"),
            "Demo workers would claim its jobs and complete them without any money being moved.",
        )

    @on(Input.Submitted)
    def _decide(self) -> None:
        hint = self.query_one("#hint", Static)
        given = self.query_one("#number", Input).value.strip()
        if not given.isdecimal() or not 1 <= int(given) <= MOST:
            hint.update(f"a number from 1 to {MOST}")
            self.query_one("#number").focus()
        elif self._strange is not None and self.query_one("#typed", Input).value.strip() != self._strange:
            hint.update("type the database's name as it is written above")
            self.query_one("#typed").focus()
        else:
            self.dismiss(int(given))

    def action_cancel(self) -> None:
        self.dismiss(None)
