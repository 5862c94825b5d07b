"""Takes the keys while the database is asked for what a dialog will show, and says so once that takes longer."""

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen
from textual.widgets import Static

_UNNOTICED_S = 0.5


class WaitingScreen(ModalScreen[None]):
    """Over the screen that is asked from. A reason that is typed too early is lost, and is no row of acts."""

    DEFAULT_CSS = """
    WaitingScreen { background: transparent; align: center middle; }
    WaitingScreen Static { display: none; width: auto; height: 3; padding: 1 2; background: $panel; }
    """
    BINDINGS = [Binding("escape", "give_up", "Cancel", show=False)]

    def compose(self) -> ComposeResult:
        yield Static("asking the database ...   esc gives up", markup=False)

    def on_mount(self) -> None:
        self.set_timer(_UNNOTICED_S, self._show)

    def _show(self) -> None:
        self.query_one(Static).display = True

    def action_give_up(self) -> None:
        """Ends the worker that asks, and with it the act that was to come; nothing was written yet."""
        self.app.workers.cancel_group(self.app.screen_stack[-2], "act")
