"""The jobs table: its columns, and how a job's cells are said."""

from leasetop import report, text
from leasetop.clock import ServerClock
from leasetop.model import Job, Reason, State, View
from leasetop.profile import Profile
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
    if job.reason is Reason.GONE:
        return "owner gone", "stuck"
    remaining = job.remaining(now)
    if remaining is None and job.claimed_at is not None and job.state in (State.PROCESSING, State.STUCK):
        # No lease is kept: how long it has been held is all that there is to see.
        return f"held {text.duration(now - job.claimed_at)}", job.state.value
    if remaining is None or job.state not in (State.PROCESSING, State.STUCK):
        return "-", ""
    span = text.duration(remaining)
    if remaining.total_seconds() < 0:
        # The snapshot may say processing still: the lease ran out since, and the next refresh will say so.
        return f"expired {span}", "stuck"
    if not job.lease_ttl:
        return f"{span} left", "processing"
    part = remaining / job.lease_ttl
    said = f"{span:>5} "
    said += text.bar(part, max(0, min(12, width - len(said))))
    return said, "expiring" if part < _EXPIRING else "processing"


class Jobs(Rows[Job]):
    """The table; `clock` is what its countdowns and ages are measured by."""

    def __init__(self, profile: Profile, id: str | None = None) -> None:
        self.clock: ServerClock | None = None
        self._profile, self._view = profile, View.ACTIVE
        super().__init__(self._chosen(profile), empty="", id=id)

    def show_queue(self, profile: Profile) -> None:
        """Another queue from now on: the columns that it has."""
        self.clock, self._profile = None, profile
        self.take_columns(self._chosen(profile))

    def show_view(self, view: View) -> None:
        """Another tab from now on: without the lease where no job has one, which leaves room for the error."""
        if _has_leases(view) != _has_leases(self._view):
            self._view = view
            self.take_columns(self._chosen(self._profile))
        self._view = view

    def _chosen(self, profile: Profile) -> list[Column[Job]]:
        """What the queue does not keep has no column."""
        # Where nobody holds a job, why it failed is what is looked for, and who had it goes first.
        at_rest = not _has_leases(self._view)
        columns: dict[str, Column[Job]] = {
            "queue": Column("QUEUE", 8, lambda job, _: (text.safe(job.queue) or "-", ""), rank=2, sort="queue"),
            "kind": Column("KIND", 8, lambda job, _: (text.safe(job.kind) or "-", ""), rank=3, share=2, sort="kind"),
            "amount": Column(
                "AMOUNT", 12, lambda job, _: (text.safe(job.amount) or "-", ""), rank=4, right=True, sort="amount"
            ),
            "stage": Column("STAGE", 9, lambda job, _: (text.safe(job.stage) or "-", ""), rank=1, sort="stage"),
            "owner": Column(
                *("OWNER", 14, lambda job, _: (text.safe(job.owner) or "-", "")),
                share=3,
                rank=5 if at_rest else 0,
                sort="owner",
            ),
        }
        first: list[Column[Job]] = [
            Column("ID", 6, lambda job, _: (text.safe(job.id, 60), ""), share=1 if profile.is_home else 2, sort="id"),
            Column(
                *("STATE", 10, lambda job, width: (_state(job, width), job.state.value)),
                tells_ghost=True,
                sort="state",
            ),
        ]
        last: dict[str, Column[Job]] = {
            "attempts": Column(
                "TRY", 4, lambda job, _: (report.attempts_words(job), _try_look(job)), right=True, sort="try"
            ),
            "created_at": Column("AGE", 6, self._age, right=True, ticks=True, sort="age"),
            "error": Column(
                "ERROR", 30 if at_rest else 5, lambda job, _: (text.safe(job.error) or "-", ""), share=5, sort="error"
            ),
        }
        lease: Column[Job] = Column(
            "LEASE", 16, lambda job, width: lease_cell(job, self._now, width), ticks=True, sort="lease"
        )
        return [
            *first,
            *(column for field, column in columns.items() if profile.has(field)),
            *([] if at_rest else [lease]),
            *(column for field, column in last.items() if profile.has(field)),
        ]

    @property
    def _now(self) -> ServerClock:
        assert self.clock is not None, "a job is shown with the clock of its snapshot"
        return self.clock

    def _age(self, job: Job, _: int) -> Cell:
        return ("-" if job.created_at is None else text.duration(self._now.now() - job.created_at), "")


def _has_leases(view: View) -> bool:
    return bool({State.PROCESSING, State.STUCK, State.OTHER}.intersection(view.states))


def _state(job: Job, width: int) -> str:
    words = report.state_words(job)
    return words if len(words) <= width else words.split(":")[0]


def _try_look(job: Job) -> str:
    used_up = job.attempts is not None and job.max_attempts is not None and job.attempts >= job.max_attempts
    return "stuck" if used_up and job.state is not State.COMPLETED else ""
