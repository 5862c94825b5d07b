"""Everything about one job: its lease, every attempt, every act of an operator."""

from datetime import datetime, timedelta

from textual.content import Content
from textual.widgets import Static

from leasetop import journal, report, text
from leasetop.clock import ServerClock
from leasetop.model import Detail, Event, Job, Reason, State
from leasetop.tui.widgets.pane import Pane

Pieces = list[str | tuple[str, str]]

_NEAR = timedelta(hours=12)
_LOOKS = {
    "completed": "$state-processing",
    "failed": "$state-failed",
    "expired": "$state-stuck",
    "revoked": "$state-stuck",
    "late completion refused": "$state-expiring",
    **dict.fromkeys(
        ("requeued", "discarded", "parked", "run now", "released by an operator", "requeue undone"), "bold $accent"
    ),
}


class DetailPane(Pane):
    """Shows one job; keeps its scroll position while the same job is shown again."""

    def compose(self):  # type: ignore[no-untyped-def]
        self._body = Static(markup=False)
        yield self._body

    local = False
    """Absolute times are this machine's, not UTC."""

    def show(self, detail: Detail, name: str, ghost: str = "", payload: str = "") -> None:
        """`name` is the id that was asked for: the job may be gone. `ghost` says what became of its row, and `payload`
        is shown below its fields."""
        self.border_title = Content(f"job {text.safe(name, 60)}")
        if detail.job is None:
            pieces: Pieces = [("This job is gone from the table.\n", "bold $state-stuck")]
        else:
            pieces = job_pieces(detail.job, detail.clock, self.local)
            if payload:
                pieces += [("\nPAYLOAD\n", "bold"), text.safe_lines(payload, 40_000), "\n"]
            if ghost:
                pieces.insert(0, (f"{ghost}\n\n", "italic"))
        self._body.update(Content.assemble(*pieces, "\n", *history_pieces(detail, self.local)))

    def fail(self, words: str) -> None:
        """No answer: what is shown stays, dimmed; where nothing is, why."""
        if not str(self._body.content):
            self._body.update(Content(words))

    def say(self, words: str) -> None:
        """Instead of a job: why there is none."""
        self.border_title = None
        self._body.update(Content(words))


def job_pieces(job: Job, clock: ServerClock, local: bool = False) -> Pieces:
    """The job's own fields, a line each."""
    now = clock.now()
    pieces: Pieces = []

    def line(label: str, said: str, look: str = "") -> None:
        pieces.extend([(f"{label:<12}", "$text-muted"), (said, look), "\n"])

    line("state", report.state_words(job), f"bold $state-{job.state}")
    line("lease", lease_line(job, clock, local), f"$state-{job.state}" if job.lease_until else "")
    line("owner", text.safe(job.owner) or "-")
    if job.claimed_at is not None:
        beats = "" if job.heartbeats is None else f", {job.heartbeats} heartbeats since"
        line("claimed", f"{text.duration(now - job.claimed_at)} ago{beats}")
    line("attempts", report.attempts_words(job))
    line("stage", text.safe(job.stage) or "-")
    what = " ".join(filter(None, (text.safe(job.kind), text.safe(job.amount))))
    if what:
        line("what", what)
    if job.queue is not None:
        line("queue", text.safe(job.queue))
    if job.priority is not None:
        line("priority", str(job.priority))
    if job.idempotency_key is not None:
        line("key", text.safe(job.idempotency_key))
    if job.created_at is not None:
        line("created", f"{text.duration(now - job.created_at)} ago, {text.instant(job.created_at, local)}")
    if job.state is State.SCHEDULED and job.run_after is not None:
        line("runs in", text.duration(job.run_after - now))
    if job.finished_at is not None:
        line("finished", f"{text.duration(now - job.finished_at)} ago, {text.instant(job.finished_at, local)}")
    if job.error is not None:
        line("error", text.safe_lines(job.error), "$state-failed")
    return pieces


def lease_line(job: Job, clock: ServerClock, local: bool = False) -> str:
    """The lease in words."""
    if job.lease_until is None:
        return "none: nobody will ever sweep or claim it" if job.reason == "no lease" else "-"
    if job.state not in (State.PROCESSING, State.STUCK):
        return f"a lease left on a {job.status} row is not a lease"
    return f"{report.lease_words(job.lease_until, clock.now())}, until {text.instant(job.lease_until, local)}"


def history_pieces(detail: Detail, local: bool = False) -> Pieces:
    """The history as a timeline, newest first."""
    if detail.history is None:
        place = "the table leasetop_journal" if detail.journaled else text.safe(journal.file())
        return [
            ("No history is kept by this table. ", "italic"),
            (f"What is done from here is in {place}.\n", "$text-muted"),
        ]
    pieces: Pieces = [("HISTORY\n", "bold")]
    job = detail.job
    if job is not None and job.claimed_at is not None and job.state in (State.PROCESSING, State.STUCK):
        running = text.duration(detail.clock.now() - job.claimed_at)
        over = ", its lease is over" if job.reason in (Reason.EXPIRED, Reason.AGE) else ""
        pieces += [(f"#{job.attempts} ", "bold"), ("open", f"$state-{job.state}"), f"  for {running} so far{over}"]
        pieces += [
            f"  {text.safe(job.owner)}" if job.owner else "",
            f"  stage {text.safe(job.stage) or '-'}\n",
        ]
    for event in detail.history:
        pieces += event_pieces(event, detail.clock, local)
    if len(pieces) == 1:
        pieces.append(("nothing yet\n", "$text-muted"))
    return pieces


def _time(moment: datetime, now: datetime, local: bool) -> str:
    """Without its day, where that is this one's or the night's."""
    said = text.instant(moment, local)
    return said if now - moment > _NEAR else said.partition(" ")[2] or said


def event_pieces(event: Event, clock: ServerClock, local: bool = False) -> Pieces:
    """One event: a line with what, when and who, and lines with the error and the reason where there are any."""
    lasted = "" if event.started_at is None else f" after {text.duration(event.ended_at - event.started_at)}"
    ago = text.duration(max(clock.now() - event.ended_at, timedelta()))
    pieces: Pieces = [
        ("" if event.attempt is None else f"#{event.attempt} ", "bold"),
        (text.safe(event.event), _LOOKS.get(event.event, "")),
        f"{lasted}  {ago} ago  {_time(event.ended_at, clock.now(), local)}",
    ]
    if event.owner:
        pieces.append(f"  {text.safe(event.owner)}")
    if event.stage:
        pieces.append(f"  stage {text.safe(event.stage)}")
    pieces.append("\n")
    if event.error:
        pieces += ["   ", (text.safe(event.error, 2000), "$state-failed"), "\n"]
    if event.actor or event.reason:
        by = f"by {text.safe(event.actor)}" if event.actor else ""
        why = text.safe(event.reason, 2000)
        pieces += ["   ", (": ".join(filter(None, (by, why))), "$text-muted"), "\n"]
    return pieces
