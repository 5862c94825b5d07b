"""A pane of text that scrolls by the keys of the tables: arrows and pages, and those of vi."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll


class Pane(VerticalScroll):
    """Keys go to it while it has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "Down", show=False),
        Binding("k", "scroll_up", "Up", show=False),
        Binding("g", "scroll_home", "First", show=False),
        Binding("G", "scroll_end", "Last", show=False),
        Binding("ctrl+d,ctrl+f", "page_down", "Page down", show=False),
        Binding("ctrl+u,ctrl+b", "page_up", "Page up", show=False),
    ]
