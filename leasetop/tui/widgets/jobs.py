"""The jobs table: its columns, and how a job's cells are said."""

from leasetop import report, text
from leasetop.clock import ServerClock
from leasetop.model import Job, Reason, State
from leasetop.tui.widgets.rows import Cell, Column, Rows

_EXPIRING = 0.2
"""A lease in the last fifth of its time is `expiring`."""


def lease_cell(job: Job, clock: ServerClock, width: int) -> Cell:
    """A live lease counts down with a bar; an ended one says since when; a missing one that nobody sweeps it."""
    now = clock.now()
    if job.reason is Reason.PARKED:
        return "needs a person", "stuck"
    if job.reason is Reason.NO_LEASE:
        return "no lease: stays", "stuck"
    remaining = job.remaining(now)
    if remaining is None or job.state not in (State.PROCESSING, State.STUCK):
        return "-", ""
    span = text.duration(remaining)
    if remaining.total_seconds() < 0:
        # The snapshot may say processing still: the lease ran out since, and the next refresh will say so.
        return f"expired {span}", "stuck"
    if not job.lease_ttl:
        return f"{span} left", "processing"
    part = remaining / job.lease_ttl
    said = f"{span:>5} {text.bar(part, max(0, min(12, width - 6)))}"
    return said, "expiring" if part < _EXPIRING else "processing"


class Jobs(Rows[Job]):
    """The table; `clock` is what its countdowns and ages are measured by."""

    def __init__(self, id: str | None = None) -> None:
        self.clock: ServerClock | None = None
        super().__init__(
            [
                Column("ID", 6, lambda job, _: (text.safe(job.id, 60), ""), share=1),
                Column("STATE", 10, lambda job, width: (_state(job, width), job.state.value)),
                Column("KIND", 8, lambda job, _: (text.safe(job.kind) or "-", ""), rank=3),
                Column("AMOUNT", 12, lambda job, _: (text.safe(job.amount) or "-", ""), rank=4, right=True),
                Column("STAGE", 9, lambda job, _: (text.safe(job.stage) or "-", ""), rank=1),
                Column("OWNER", 14, lambda job, _: (text.safe(job.owner) or "-", ""), share=3),
                Column("LEASE", 16, lambda job, width: lease_cell(job, self._now, width), ticks=True),
                Column("TRY", 4, lambda job, _: (report.attempts_words(job), _try_look(job)), right=True),
                Column("AGE", 6, self._age, right=True, ticks=True),
                Column("ERROR", 5, lambda job, _: (text.safe(job.error) or "-", ""), share=5),
            ],
            empty="",
            id=id,
        )

    @property
    def _now(self) -> ServerClock:
        assert self.clock is not None, "a job is shown with the clock of its snapshot"
        return self.clock

    def _age(self, job: Job, _: int) -> Cell:
        return ("-" if job.created_at is None else text.duration(self._now.now() - job.created_at), "")


def _state(job: Job, width: int) -> str:
    words = report.state_words(job)
    return words if len(words) <= width else words.split(":")[0]


def _try_look(job: Job) -> str:
    used_up = job.attempts is not None and job.max_attempts is not None and job.attempts >= job.max_attempts
    return "stuck" if used_up and job.state is not State.COMPLETED else ""
