"""Nothing to see: takes the keys while the database is asked for what a dialog will show."""

from textual.screen import ModalScreen


class WaitingScreen(ModalScreen[None]):
    """Over the screen that is asked from. A reason that is typed too early is lost, and is no row of acts."""

    DEFAULT_CSS = "WaitingScreen { background: transparent; }"
