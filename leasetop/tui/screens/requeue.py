"""The requeue dialog: freezes the job it was opened for, shows the evidence, takes a reason.

It returns what the operator decided on what they saw; the guard in the database then compares that with the row.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from leasetop import statements, text
from leasetop.config import Config
from leasetop.errors import LeasetopError
from leasetop.model import Detail, Job, Key, State
from leasetop.profile import Profile
from leasetop.refusals import holding, only_renewed
from leasetop.tui.widgets.detail import Pieces, history_pieces, job_pieces


@dataclass(frozen=True, slots=True)
class Requeue:
    """Requeue exactly this, as it was seen, for this reason; `force` takes a lease that is not over."""

    job: Job
    reason: str
    force: bool


_REFUSED = {
    State.PENDING: "It is Pending already.",
    State.SCHEDULED: "It is Pending already, and waits for its time.",
    State.COMPLETED: "It is Completed. What is done is never requeued.",
    State.CANCELLED: "It is Cancelled.",
    State.OTHER: "Its status is none that is known here.",
}


class RequeueDialog(ModalScreen[Requeue | None]):
    """`job` is as it was read for this dialog; `listed` as the list showed it a moment before."""

    BINDINGS = [
        Binding("escape", "cancel", "Cancel"),
        Binding("ctrl+f", "force", "Force a live lease"),
    ]

    def __init__(
        self,
        detail: Detail,
        job: Job,
        listed: Job,
        profile: Profile,
        config: Config,
        again: Callable[[Key], Awaitable[Detail]],
    ) -> None:
        super().__init__()
        self._again = again
        self._profile, self._config = profile, config
        self._detail = detail
        self._job = job
        self._changed = listed.fence != job.fence and not only_renewed(listed, job)
        self._force = False
        self._way = profile.way_back(job.state)
        self._command = self._way.command(profile.key_of(job.key)) if self._way else None

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(id="verdict", markup=False)
            with VerticalScroll(id="evidence"):
                yield Static(id="told", markup=False)
            yield Input(
                placeholder=f"reason, for the history{' (required)' if self._config.require_reason else ''}",
                id="reason",
                compact=True,
            )
            yield Input(
                placeholder=f"type {text.safe(self._job.id, 40)} to go on",
                id="typed",
                compact=True,
            )
            with Horizontal(classes="buttons"):
                yield Button("Requeue", variant="warning", id="yes", compact=True)
                yield Button("Copy the command", variant="primary", id="copy", compact=True)
                yield Button("Cancel", id="no", compact=True)
                yield Static(id="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(".dialog").border_title = Content(f"Requeue job {text.safe(self._job.id, 60)}")
        self._judge()
        self.set_interval(1.0, self._judge)
        if self._live:
            # Its worker may renew it: what is shown is to be the lease as it is, not as it was.
            self.set_interval(1.0, self._look_again)
        (self.query_one("#reason") if self._allowed else self.query_one("#no")).focus()

    @work(exclusive=True, group="again")
    async def _look_again(self) -> None:
        try:
            detail = await self._again(self._job.key)
        except LeasetopError:
            # The header says that there is no answer; and the act compares with what was seen.
            return
        if detail.job is None:
            return
        seen, now = self._job, detail.job
        renewed = only_renewed(seen, now) or now.fence == seen.fence
        self._changed = self._changed or not renewed
        self._detail, self._job = detail, now
        self._judge()

    @property
    def _live(self) -> bool:
        return self._job.is_live(self._detail.clock.now())

    @property
    def _possible(self) -> bool:
        """Whether there is a statement for a job in its state at all."""
        return self._job.state not in _REFUSED and self._way is not None and self._way.sql is not None

    @property
    def _forcible(self) -> bool:
        return self._live and self._way is not None and "force" in statements.parameters(self._way.sql or "")

    @property
    def _allowed(self) -> bool:
        return self._possible and (self._force or not self._live)

    @property
    def _must_type(self) -> bool:
        return self._live or self._profile.unproven("requeue", self._job) is not None

    def _judge(self) -> None:
        """The verdict, again each second: a lease that was live may be over by now."""
        job, pieces = self._job, list[str | tuple[str, str]]()
        if self._changed:
            pieces.append(("It changed since the list showed it; this is how it is now.\n", "bold $text-warning"))
        if job.state in _REFUSED:
            pieces.append((f"Refused: {_REFUSED[job.state]}", "bold $text-error"))
        elif self._command is not None and self._way is not None:
            pieces += [
                ("Only its own tool can do this right:\n", "bold $text-warning"),
                (f"{text.safe(self._command)}\n", "bold"),
                self._way.effect,
            ]
        elif not self._possible:
            words = f"Refused: the profile of {text.safe(self._profile.title)} has no act for a {job.state} job."
            pieces.append((words, "bold $text-error"))
        elif self._live:
            holder = holding(job, self._detail.clock.now())
            if self._force:
                words = f"FORCED: {holder}. Its payment may be under way: requeued, it can be made twice."
            else:
                advice = " ctrl+f if you know that the owner is dead." if self._forcible else ""
                words = f"Refused: {holder}. A live lease is not requeued.{advice}"
            pieces.append((words, "bold $text-error"))
        else:
            assert self._way is not None
            effect = self._way.effect
            pieces.append(f"{effect[:1].upper()}{effect[1:]}. What you see here is what is compared.")
            unproven = self._profile.unproven("requeue", job)
            if unproven:
                pieces.append((f"\nBe sure {unproven}.", "bold $text-warning"))
            if self._way.needs:
                pieces.append(f"\nIt needs {self._way.needs}.")
        self.query_one("#verdict", Static).update(Content.assemble(*pieces))
        self.query_one("#reason").display = self._allowed
        self.query_one("#typed").display = self._allowed and self._must_type
        self.query_one("#yes").display = self._allowed
        self.query_one("#copy").display = self._command is not None and job.state not in _REFUSED
        self.query_one("#told", Static).update(Content.assemble(*self._evidence()))
        self.query_one("#hint", Static).update("enter requeues, esc cancels" if self._allowed else "esc closes")

    def _evidence(self) -> Pieces:
        job, clock = self._job, self._detail.clock
        pieces: Pieces = []
        if job.state not in _REFUSED:
            # First, so that it is seen on the smallest screen.
            pieces += [("BEFORE YOU DO\n", "bold"), *self._advice(), "\n"]
        return [*pieces, *job_pieces(job, clock), "\n", *history_pieces(self._detail)]

    def _advice(self) -> Pieces:
        job = self._job
        reached = f"stage {text.safe(job.stage)} was reached" if job.stage else "no stage was recorded"
        key = (
            f"look up {text.safe(job.idempotency_key)} at the payment provider"
            if job.idempotency_key
            else "the table has no idempotency key: look the payment up at the provider by other means"
        )
        old = (
            ""
            if job.created_at is None
            else f", the job is {text.duration(self._detail.clock.now() - job.created_at)} old"
        )
        pieces: Pieces = []
        if any(event.event == "late completion refused" for event in self._detail.history or ()):
            pieces.append(
                ("A late completion of it was refused: this payment was perhaps made.\n", "bold $text-warning")
            )
        window = self._config.idempotency_window
        if job.created_at is not None and self._detail.clock.now() - job.created_at > window:
            known = f"the provider knows its key for {text.duration(window)} only"
            pieces.append((f"This payment can be made twice: {known}.\n", "bold $text-warning"))
        pieces.append(f"{reached}{old}: {key}.\n")
        if not self._profile.completion_fenced:
            pieces.append(
                "A late finisher can still complete this job after the requeue: it is watched for an hour from here.\n"
            )
        return pieces

    def action_cancel(self) -> None:
        self.dismiss(None)

    def action_force(self) -> None:
        if self._job.state in _REFUSED or not self._forcible:
            return
        self._force = not self._force
        self._judge()
        (self.query_one("#reason") if self._force else self.query_one("#no")).focus()

    @on(Input.Submitted)
    @on(Button.Pressed, "#yes")
    def _decide(self) -> None:
        if not self._allowed:
            return
        reason, typed = self.query_one("#reason", Input), self.query_one("#typed", Input)
        hint = self.query_one("#hint", Static)
        if self._config.require_reason and not reason.value.strip():
            hint.update("a reason is needed")
            reason.focus()
        elif self._must_type and typed.value.strip() != self._job.id.strip():
            hint.update("type the job's id to go on")
            typed.focus()
        else:
            self.dismiss(Requeue(self._job, reason.value.strip(), force=self._force and self._live))

    @on(Button.Pressed, "#copy")
    def _copy(self) -> None:
        # The command as it is, not as it is shown: it is quoted for a shell.
        self.app.copy_to_clipboard(self._command or "")
        self.query_one("#hint", Static).update("copied, where the terminal allows it (OSC 52)")

    @on(Button.Pressed, "#no")
    def _close(self) -> None:
        self.dismiss(None)
