"""Help: the keys of the screen it was called from, and what the words mean."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from leasetop.tui import acts
from leasetop.tui.widgets.pane import Pane

_MOVING = (
    ("↑ ↓ k j", "Move", "One row up or down; in the details one line"),
    ("pgup pgdn", "Page", "One page"),
    ("g G", "Ends", "First, last row"),
)

_WORDS = (
    ("pending", "waits to be claimed"),
    ("scheduled", "Pending, but not before its time: back-off or planned"),
    ("processing", "somebody holds the lease; the bar is the time it has left"),
    ("expiring", "the last fifth of a lease without a heartbeat"),
    ("stuck: expired", "Processing, but the lease is over: a sweep or another worker ends it"),
    ("stuck: no lease", "Processing without a lease: nobody will ever sweep or claim it"),
    ("stuck: parked", "swept under the park policy: waits for a person"),
    ("failed", "attempts used up, or failed for good"),
    ("other", "a status that leasetop does not know"),
    ("owner", "one worker process: name/pid/random"),
    ("TRY 2/5", "attempts begun, of how many; an attempt is spent at the claim"),
    ("requeue", "an operator's guarded return of one job to Pending"),
    ("sweep", "ends expired leases; the watcher does so all the time"),
)


class HelpScreen(ModalScreen[None]):
    """Any of its keys closes it."""

    BINDINGS = [Binding("escape,q,question_mark,f1,enter", "close", "Close")]

    def __init__(self, shown: tuple[acts.Act, ...]) -> None:
        super().__init__()
        self._acts = shown

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"), Pane():
            yield Static(self._text(), markup=False)

    def on_mount(self) -> None:
        self.query_one(".dialog").border_title = Content("Help")
        self.query_one(".dialog").border_subtitle = Content("esc closes")
        self.query_one(Pane).focus()

    def _text(self) -> RenderableType:
        tabs = [act for act in self._acts if act.action.startswith("view(")]
        keys = [
            (act.key, act.label, act.help)
            for act in (*self._acts, *acts.of(acts.On.EVERY))
            if act not in tabs and not act.action.startswith("command_palette")
        ]
        if tabs:
            keys.insert(0, ("1 ... 7", "Tabs", ", ".join(act.label for act in tabs)))
        keys.append((":", "Commands", "Every act by its name; ctrl+p as well"))
        known = Table.grid(padding=(0, 1))
        for row in (*keys, *_MOVING):
            known.add_row(*(Text(said, "" if n == 2 else "bold") for n, said in enumerate(row)))
        words = Table.grid(padding=(0, 1))
        for word, meaning in _WORDS:
            words.add_row(Text(word, "bold"), Text(meaning))
        return Group(Text("KEYS", "bold"), Padding(known, (0, 2)), Text("\nWORDS", "bold"), Padding(words, (0, 2)))

    def action_close(self) -> None:
        self.dismiss(None)
