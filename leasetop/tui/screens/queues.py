"""The chooser: the queues of this database, what they are, how far that is proven, and what is in them."""

from dataclasses import dataclass

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from leasetop import text
from leasetop.database import Database
from leasetop.errors import LeasetopError
from leasetop.finding import Survey
from leasetop.model import Snapshot, State
from leasetop.profile import Profile
from leasetop.queue import Queue
from leasetop.tui.widgets.rows import Column, Rows


@dataclass(frozen=True, slots=True)
class Line:
    """A queue, with its figures once they are there."""

    profile: Profile
    snapshot: Snapshot | None = None
    error: str = ""

    def count(self, *states: State) -> str:
        """Jobs in these states."""
        if self.snapshot is None:
            return "..." if not self.error else "-"
        kept = [self.snapshot.tallies[state] for state in states if state in self.snapshot.tallies]
        return text.count(sum(one.count for one in kept), any(one.capped for one in kept)) if kept else "not kept"


class QueuesScreen(ModalScreen[Profile | None]):
    """Returns the profile that was chosen; None: none was. `current` is the title of the one that is shown."""

    BINDINGS = [
        Binding("escape", "cancel", "Cancel"),
        Binding("enter", "choose", "Choose"),
    ]

    def __init__(self, database: Database, found: Survey, current: str) -> None:
        super().__init__()
        self._database, self._found, self._current = database, found, current
        self._lines = {profile.title: Line(profile) for profile in found.profiles}

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(id="verdict", markup=False)
            yield Rows[Line](
                [
                    Column("QUEUE", 20, lambda line, _: (text.safe(line.profile.title), ""), share=3),
                    Column("PROFILE", 15, lambda line, _: (line.profile.label, _look(line)), share=1),
                    Column("EVIDENCE", 9, lambda line, _: (str(line.profile.evidence), ""), rank=2),
                    Column("PENDING", 8, lambda line, _: (line.count(State.PENDING), ""), right=True),
                    Column("RUNNING", 8, lambda line, _: (line.count(State.PROCESSING), ""), right=True, rank=1),
                    Column("STUCK", 8, _stuck, right=True),
                    Column("FAILED", 8, lambda line, _: (line.count(State.FAILED), ""), right=True),
                ],
                empty="No queue is here that leasetop knows.",
                id="queues",
            )
            yield Static(id="about", markup=False)
            yield Static("enter shows it, esc goes back", id="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(".dialog").border_title = Content("Queues of this database")
        table = self.query_one("#queues", Rows)
        self._show()
        table.put_cursor(self._current)
        table.focus()
        words = text.plural(len(self._lines), "queue")
        self.query_one("#verdict", Static).update("\n".join([words, *map(text.safe, self._found.troubles)]))
        self._count()

    def _show(self) -> None:
        self.query_one("#queues", Rows).show((title, line) for title, line in self._lines.items())

    @work
    async def _count(self) -> None:
        for title, line in list(self._lines.items()):
            try:
                snapshot = await Queue(self._database, line.profile).snapshot(limit=1)
                self._lines[title] = Line(line.profile, snapshot)
            except LeasetopError as error:
                self._lines[title] = Line(line.profile, error=str(error))
            self._show()
        self._explain()

    @on(Rows.Moved, "#queues")
    def _explain(self) -> None:
        line = self.query_one("#queues", Rows).selected
        if line is None:
            return
        profile = line.profile
        fenced = "completion is fenced" if profile.completion_fenced else "a late finisher can still complete a job"
        said = [f"evidence: {profile.evidence}; {fenced}; acts: {', '.join(sorted(profile.actions)) or 'none'}"]
        if profile.tested:
            said.append(f"tested with {', '.join(profile.tested)}")
        self.query_one("#about", Static).update("\n".join(map(text.safe, [*said, *profile.notes, line.error])).strip())

    def action_cancel(self) -> None:
        self.dismiss(None)

    @on(Rows.Chosen, "#queues")
    def action_choose(self) -> None:
        line = self.query_one("#queues", Rows).selected
        if line is not None:
            self.dismiss(line.profile)


def _look(line: Line) -> str:
    return {"verified-live": "processing", "read-only": "pending"}.get(line.profile.label, "expiring")


def _stuck(line: Line, _: int) -> tuple[str, str]:
    stuck = line.snapshot.tallies.get(State.STUCK) if line.snapshot else None
    return line.count(State.STUCK), "stuck" if stuck and stuck.count else ""
