"""One act on one or many jobs: exactly the set that was shown, frozen, with a verdict for each before anything is done.

Three phases on one screen: what would be done and to which; the doing, one guarded transaction a job, which can be
stopped between two; and what came of each, the refused ones first with their reasons.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, ProgressBar, Static

from leasetop import report, text
from leasetop.clock import ServerClock
from leasetop.errors import LeasetopError, Unreachable
from leasetop.model import Job, Outcome
from leasetop.tui.widgets.jobs import lease_cell
from leasetop.tui.widgets.rows import Column, Rows


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done."""

    verb: str
    """`Requeue`, `Discard`: for the button."""
    title: str
    """What is done to which jobs."""
    effect: str
    """What becomes of the jobs, in a sentence."""
    doubt: Callable[[Job], str]
    """Why it would be refused for a job as it was seen; empty: it would not."""
    perform: Callable[[Job, str], Awaitable[Outcome]]
    reason_required: bool
    typed: str | None = None
    """What has to be typed, where nothing in the database proves that it is safe."""
    caution: str = ""
    """What to look up before, in a sentence."""


@dataclass(frozen=True, slots=True)
class Line:
    """A job, and what would come or has come of the act."""

    job: Job
    said: str
    look: str


class BulkDialog(ModalScreen[list[Outcome]]):
    """Returns what was done; an empty list: nothing."""

    BINDINGS = [Binding("escape", "cancel", "Cancel")]

    def __init__(self, plan: Plan, jobs: Sequence[Job], clock: ServerClock) -> None:
        super().__init__()
        self._plan, self._clock = plan, clock
        self._lines = [self._foreseen(job) for job in jobs]
        self._outcomes: list[Outcome] = []
        self._doing = self._stopped = self._over = False
        self._unknown = 0

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(id="verdict", markup=False)
            yield Rows[Line](
                [
                    Column("ID", 8, lambda line, _: (text.safe(line.job.id, 60), ""), share=2),
                    Column("STATE", 16, lambda line, _: (report.state_words(line.job), line.job.state.value), rank=2),
                    Column("OWNER", 12, lambda line, _: (text.safe(line.job.owner) or "-", ""), share=1, rank=5),
                    Column("LEASE", 16, lambda line, width: lease_cell(line.job, self._clock, width), rank=6),
                    Column("TRY", 5, lambda line, _: (report.attempts_words(line.job), ""), right=True, rank=1),
                    Column("STAGE", 9, lambda line, _: (text.safe(line.job.stage) or "-", ""), rank=3),
                    Column("AGE", 6, lambda line, _: (self._age(line.job), ""), right=True, rank=4),
                    Column("RESULT", 28, lambda line, _: (line.said, line.look), share=4),
                ],
                id="set",
            )
            yield Static(id="about", markup=False)
            yield ProgressBar(total=max(1, len(self._lines)), show_eta=False, id="progress")
            yield Input(placeholder=self._placeholder, id="reason", compact=True)
            yield Input(placeholder=f"type {self._plan.typed} to go on", id="typed", compact=True)
            with Horizontal(classes="buttons"):
                yield Button(self._plan.verb, variant="warning", id="yes", compact=True)
                yield Button("Cancel", id="no", compact=True)
                yield Static(id="hint", markup=False)

    @property
    def _placeholder(self) -> str:
        return "reason, for the history" + (" (required)" if self._plan.reason_required else "")

    def on_mount(self) -> None:
        dialog = self.query_one(".dialog")
        dialog.border_title = Content(self._plan.title)
        # No taller than it needs to be: what is behind it is to be seen.
        dialog.styles.max_height = min(36, len(self._lines) + 15)
        self.query_one("#progress").display = False
        self.query_one("#typed").display = self._plan.typed is not None and bool(self._able)
        self.query_one("#reason").display = self.query_one("#yes").display = bool(self._able)
        self._show()
        (self.query_one("#reason") if self._able else self.query_one("#no")).focus()

    @property
    def _able(self) -> list[Job]:
        return [line.job for line in self._lines if not line.said]

    def _age(self, job: Job) -> str:
        return "-" if job.created_at is None else text.duration(self._clock.now() - job.created_at)

    def _foreseen(self, job: Job) -> Line:
        doubt = self._plan.doubt(job)
        return Line(job, doubt, "failed" if doubt else "")

    def _show(self) -> None:
        able, number = len(self._able), len(self._lines)
        table = self.query_one("#set", Rows)
        table.show(((line.job.key, line) for line in self._lines), empty="no jobs")
        self._moved()
        if self._over:
            done = sum(outcome.done for outcome in self._outcomes)
            left = number - len(self._outcomes) - self._unknown
            words = f"{done} done, {len(self._outcomes) - done} refused"
            words += f", {self._unknown} not known" if self._unknown else ""
            said = f"{words}, {left} not tried" if left else words
            hint = "esc closes"
        elif self._doing:
            said, hint = f"{len(self._outcomes)} of {number}", "esc stops after this one"
        else:
            refused = f"; {text.count(number - able)} would be refused" if able < number else ""
            said = f"{text.count(able)} of {text.plural(number, 'job')}{refused}. {self._plan.effect}"
            hint = "enter goes on, esc cancels" if able else "esc closes"
        pieces: list[str | tuple[str, str]] = [said]
        if self._plan.caution and able and not self._over:
            pieces.insert(0, (f"{self._plan.caution}\n", "bold $text-warning"))
        self.query_one("#verdict", Static).update(Content.assemble(*pieces))
        self.query_one("#hint", Static).update(hint)

    @on(Rows.Moved, "#set")
    def _moved(self) -> None:
        # A reason may be longer than its column.
        line = self.query_one("#set", Rows).selected
        self.query_one("#about", Static).update(Content(line.said if line is not None else ""))

    def stop(self) -> bool:
        """Stops after the job that it is at; False: it is not at work, or told so already."""
        stopping = self._doing and not self._stopped
        self._stopped = self._stopped or stopping
        return stopping

    def action_cancel(self) -> None:
        if self._doing:
            self._stopped = True
        else:
            self.dismiss(self._outcomes)

    @on(Button.Pressed, "#no")
    def _close(self) -> None:
        self.action_cancel()

    @on(Input.Submitted)
    @on(Button.Pressed, "#yes")
    def _decide(self) -> None:
        reason, typed = self.query_one("#reason", Input), self.query_one("#typed", Input)
        hint = self.query_one("#hint", Static)
        if self._doing or self._over or not self._able:
            return
        if self._plan.reason_required and not reason.value.strip():
            hint.update("a reason is needed")
            reason.focus()
        elif self._plan.typed is not None and typed.value.strip() != self._plan.typed:
            hint.update(f"type {self._plan.typed} to go on")
            typed.focus()
        else:
            self._run_all(reason.value.strip())

    @work(exclusive=True, group="bulk")
    async def _run_all(self, reason: str) -> None:
        self._doing = True
        for name in ("#reason", "#typed", "#yes"):
            self.query_one(name).display = False
        bar = self.query_one("#progress", ProgressBar)
        bar.display = True
        self.query_one("#no").focus()
        for n, line in enumerate(self._lines):
            if self._stopped:
                break
            if line.said:
                # It was shown as one that would be refused: that it may have changed since is no reason to do it.
                self._outcomes.append(Outcome(line.job.key, False, line.said))
                bar.advance(1)
                continue
            try:
                outcome = await self._plan.perform(line.job, reason)
            except Unreachable as error:
                # Whether this one took place is not known; the others are not tried.
                self._unknown = 1
                self._lines[n] = Line(line.job, f"not known: {error}", "failed")
                break
            except LeasetopError as error:
                outcome = Outcome(line.job.key, False, str(error))
            self._outcomes.append(outcome)
            said = text.safe(outcome.words.removeprefix(f"job {text.safe(line.job.id)}: "))
            self._lines[n] = Line(line.job, said, "completed" if outcome.done else "failed")
            bar.advance(1)
            self._show()
        self._doing, self._over = False, True
        bar.display = False
        done = {outcome.key for outcome in self._outcomes if outcome.done}
        self._lines.sort(key=lambda line: line.job.key in done)
        self.query_one("#no", Button).label = "Close"
        self._show()
        self.query_one("#set", Rows).focus()
