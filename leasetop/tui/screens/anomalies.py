"""Anomalies: rows that should not be there, what they mean, and the way to them."""

from dataclasses import dataclass
from datetime import datetime

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from leasetop import text
from leasetop.anomalies import Findings, Late
from leasetop.clock import ServerClock
from leasetop.filter import exactly
from leasetop.tui.widgets.rows import Column, Rows


@dataclass(frozen=True, slots=True)
class Line:
    """A kind of row with how many there are, or one late completion."""

    name: str
    count: int
    means: str
    line: str


class AnomaliesScreen(ModalScreen[str | None]):
    """Returns the filter line that shows the rows."""

    BINDINGS = [Binding("escape", "cancel", "Close"), Binding("enter", "choose", "Show")]

    def __init__(self, found: Findings, clock: ServerClock) -> None:
        super().__init__()
        self._lines = [Line(one.name, number, one.means, one.line) for one, number in found.counts.items()]
        now = clock.now()
        self._lines += [
            Line(f"late: job {late.job}", 1, _told(late, now), exactly("id", late.job)) for late in found.late
        ]

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Rows[Line](
                [
                    Column("WHAT", 24, lambda line, _: (text.safe(line.name), "stuck"), share=1),
                    Column("JOBS", 8, lambda line, _: (text.count(line.count), ""), right=True),
                ],
                empty="Nothing is out of order.",
                id="anomalies",
            )
            yield Static(id="about", markup=False)
            yield Static("enter shows the jobs, esc closes" if self._lines else "esc closes", id="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(".dialog").border_title = Content("Anomalies")
        table = self.query_one("#anomalies", Rows)
        table.show((n, line) for n, line in enumerate(self._lines))
        table.focus()

    @on(Rows.Moved, "#anomalies")
    def _moved(self) -> None:
        line = self.query_one("#anomalies", Rows).selected
        self.query_one("#about", Static).update(Content(line.means if line is not None else ""))

    def action_cancel(self) -> None:
        self.dismiss(None)

    @on(Rows.Chosen, "#anomalies")
    def action_choose(self) -> None:
        line = self.query_one("#anomalies", Rows).selected
        self.dismiss(line.line if line is not None else None)


def _told(late: Late, now: datetime) -> str:
    who = text.safe(late.owner) or "A worker"
    return (
        f"{who} completed attempt {late.attempt} {text.duration(now - late.at)} ago, after its lease had passed on: "
        "refused here, but the payment may have been made twice outside. Look it up at the provider."
    )
