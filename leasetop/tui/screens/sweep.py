"""The sweep dialog: exactly which expired leases would be ended, and what would become of the jobs."""

from dataclasses import dataclass
from datetime import timedelta

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from leasetop import report, statements, text
from leasetop.clock import ServerClock
from leasetop.model import Job, Policy
from leasetop.profile import Profile
from leasetop.reads import PAGE
from leasetop.tui.widgets.rows import Column, Rows


@dataclass(frozen=True, slots=True)
class Sweep:
    """End exactly these leases, where they are still expired."""

    jobs: tuple[Job, ...]
    policy: Policy


class SweepDialog(ModalScreen[Sweep | None]):
    """The preview, frozen when it was opened."""

    BINDINGS = [
        Binding("escape", "cancel", "Cancel"),
        Binding("tab", "policy", "Requeue or park", priority=True),
        Binding("y", "apply", "Sweep"),
    ]

    def __init__(
        self, jobs: tuple[Job, ...], policy: Policy, clock: ServerClock, profile: Profile, window: timedelta
    ) -> None:
        super().__init__()
        self._jobs, self._clock, self._action = jobs, clock, profile.actions["sweep"]
        self._caution = report.payment_caution(jobs, clock.now(), window)
        self._unproven = next(filter(None, (profile.unproven("sweep", job) for job in jobs)), None)
        self._typed = str(len(jobs)) if self._unproven else None
        self._policy = policy if self._may_park else Policy.REQUEUE

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(id="verdict", markup=False)
            yield Rows[Job](
                [
                    Column("ID", 6, lambda job, _: (text.safe(job.id, 60), ""), share=1),
                    Column("OWNER", 16, lambda job, _: (text.safe(job.owner) or "-", ""), share=2),
                    Column("LEASE", 16, lambda job, _: (self._expired(job), "stuck")),
                    Column("TRY", 5, lambda job, _: (report.attempts_words(job), ""), right=True),
                    Column("BECOMES", 9, lambda job, _: (self._becomes(job), "")),
                    Column("STAGE", 9, lambda job, _: (text.safe(job.stage) or "-", ""), rank=1),
                ],
                empty="No lease is expired: there is nothing to sweep.",
                id="preview",
            )
            yield Input(placeholder=f"type {self._typed} to go on", id="typed", compact=True)
            with Horizontal(classes="buttons"):
                yield Button("Sweep", variant="warning", id="yes", compact=True)
                yield Button("Cancel", id="no", compact=True)
                yield Static(id="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(".dialog").border_title = Content("Sweep expired leases")
        table = self.query_one("#preview", Rows)
        table.show((job.key, job) for job in self._jobs)
        # No taller than it needs to be: what is behind it is to be seen.
        self.query_one(".dialog").styles.max_height = min(36, max(12, len(self._jobs) + 13))
        self.query_one("#yes").display = bool(self._jobs)
        typed = self.query_one("#typed")
        typed.display = self._typed is not None
        (table if self._typed is None else typed).focus()
        self._explain()

    @property
    def _may_park(self) -> bool:
        return "policy" in statements.parameters(self._action.sql or "")

    def _expired(self, job: Job) -> str:
        return "-" if job.lease_until is None else f"expired {text.duration(self._clock.now() - job.lease_until)}"

    def _becomes(self, job: Job) -> str:
        if self._policy is Policy.PARK:
            return "Stuck"
        left = job.attempts is None or job.max_attempts is None or job.attempts < job.max_attempts
        return "Pending" if left else "Failed"

    def _explain(self) -> None:
        what = text.plural(len(self._jobs), "expired lease")
        if len(self._jobs) >= PAGE:
            what = f"the first {what}; sweep again for more"
        then = self._action.effect or (
            "requeue: Pending after a back-off, Failed where the attempts are used up"
            if self._policy is Policy.REQUEUE
            else "park: Stuck, not run again until a person decides"
        )
        pieces: list[str | tuple[str, str]] = [(what, "bold"), f"  {then}"]
        if self._policy is Policy.REQUEUE and self._caution:
            pieces.append((f"\n{self._caution}", "bold $text-warning"))
        if self._typed is not None:
            pieces.append((f"\nOf each be sure {self._unproven}.", "bold $text-warning"))
        self.query_one("#verdict", Static).update(Content.assemble(*pieces))
        key = "y" if self._typed is None else f"{self._typed} and enter"
        self.query_one("#hint", Static).update(
            f"{key}: these rows only{'; tab: requeue/park' if self._may_park else ''}; esc cancels"
            if self._jobs
            else "esc closes"
        )
        self.query_one("#preview", Rows).refresh()

    def action_policy(self) -> None:
        if self._may_park:
            self._policy = Policy.PARK if self._policy is Policy.REQUEUE else Policy.REQUEUE
        self._explain()

    def action_cancel(self) -> None:
        self.dismiss(None)

    @on(Input.Submitted)
    @on(Button.Pressed, "#yes")
    def action_apply(self) -> None:
        typed = self.query_one("#typed", Input)
        if self._jobs and self._typed is not None and typed.value.strip() != self._typed:
            self.query_one("#hint", Static).update(f"type {self._typed} to go on")
            typed.focus()
        elif self._jobs:
            self.dismiss(Sweep(self._jobs, self._policy))

    @on(Button.Pressed, "#no")
    def _close(self) -> None:
        self.dismiss(None)
