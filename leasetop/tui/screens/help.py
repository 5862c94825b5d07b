"""Help: the keys of the screen it was called from, and what the words mean."""

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from leasetop.tui import acts

_MOVING = (
    ("↑ ↓ k j", "one row up or down"),
    ("pgup pgdn", "one page"),
    ("g G", "first, last row"),
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
        with Vertical(classes="dialog"), VerticalScroll():
            yield Static(self._text(), markup=False)

    def on_mount(self) -> None:
        self.query_one(".dialog").border_title = Content("Help")
        self.query_one(".dialog").border_subtitle = Content("esc closes")
        self.query_one(VerticalScroll).focus()

    def _text(self) -> Content:
        keys = [(act.key, act.help) for act in (*self._acts, *acts.of(acts.On.EVERY))]
        pieces: list[str | tuple[str, str]] = [("KEYS\n", "bold")]
        for key, meaning in (*keys, *_MOVING):
            pieces += [(f"  {key:<12}", "bold $accent"), f"{meaning}\n"]
        pieces.append(("\nWORDS\n", "bold"))
        for word, meaning in _WORDS:
            pieces += [(f"  {word:<17}", "bold"), f"{meaning}\n"]
        return Content.assemble(*pieces)

    def action_close(self) -> None:
        self.dismiss(None)
