"""What the screens that show live data have in common: a header, a footer, and a snapshot that is handed to them."""

from typing import TYPE_CHECKING, cast

from textual.screen import Screen

from leasetop.model import Snapshot
from leasetop.tui.acts import Act
from leasetop.tui.widgets.header import Header, Link

if TYPE_CHECKING:
    from leasetop.tui.app import LeasetopApp


class Board(Screen[None]):
    """A screen of live data. The app calls `show` with each snapshot, and `refresh_times` when only time has passed."""

    ACTS: tuple[Act, ...] = ()

    @property
    def top(self) -> "LeasetopApp":
        """The app, by its own type."""
        return cast("LeasetopApp", self.app)

    @property
    def is_ready(self) -> bool:
        """Whether its widgets are there: a screen counts as mounted a moment before."""
        return self.is_mounted and bool(self.query(Header))

    def on_screen_resume(self) -> None:
        # A snapshot may have come before this screen was there, or while another one covered it.
        self.call_after_refresh(self.top.show_latest)

    def show(self, snapshot: Snapshot | None, link: Link) -> None:
        self.query_one(Header).show(snapshot, link)
        self.set_class(link.stale, "-stale")

    def looked(self) -> None:
        """The history has been asked: the app's lookout knows more, or why not."""

    def refresh_times(self) -> None:
        self.query_one(Header).refresh_times()
