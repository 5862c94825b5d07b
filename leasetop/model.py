"""What leasetop talks about: jobs, leases, attempts, owners, and one snapshot of them all.

Frozen values, no I/O, no SQL, no widgets. Instants are aware datetimes on the server's clock; `datetime.max` and
`datetime.min` (UTC) stand for PostgreSQL's infinity and for years that Python cannot hold.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from leasetop.clock import ServerClock
from leasetop.paging import Place

if TYPE_CHECKING:
    from leasetop.filter import Filter

Key = tuple[str, ...]
"""A key as the database writes it: one text for each column of the key."""


def written(key: Key) -> str:
    """A key as one text: its parts with a slash between, and `\\/` for a slash in one. No two are written alike."""
    if len(key) == 1:
        return key[0]
    return "/".join(part.replace("\\", "\\\\").replace("/", "\\/") for part in key)


def parsed(written_key: str, columns: int) -> Key | None:
    """The key of so many columns that `written` writes like that; None where there is none."""
    if columns == 1:
        return (written_key,)
    parts = [""]
    for escaped, between, plain in _SIGN.findall(written_key):
        if between:
            parts.append("")
        else:
            parts[-1] += escaped or plain
    key = tuple(parts)
    return key if len(key) == columns and written(key) == written_key else None


_SIGN = re.compile(r"\\(.)|(/)|(.)", re.DOTALL)
NEVER = datetime.max.replace(tzinfo=UTC)
ALWAYS = datetime.min.replace(tzinfo=UTC)


class State(StrEnum):
    """A shown state (not the stored status: a stuck job may be stored as Processing)."""

    STUCK = "stuck"
    PROCESSING = "processing"
    PENDING = "pending"
    SCHEDULED = "scheduled"
    FAILED = "failed"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    OTHER = "other"


class Reason(StrEnum):
    """Why a job is stuck."""

    EXPIRED = "expired"
    NO_LEASE = "no lease"
    GONE = "owner gone"
    """Its owner's own row is gone: pruned, or never there."""
    AGE = "by age"
    """Nothing but its age says that its owner is dead."""
    PARKED = "parked"


class Evidence(StrEnum):
    """What proves that a lease is dead."""

    LEASE = "lease"
    HEARTBEAT = "heartbeat"
    SESSION = "session"
    AGE = "age"


class View(StrEnum):
    """A tab of the jobs table."""

    ACTIVE = "Active"
    PENDING = "Pending"
    PROCESSING = "Processing"
    STUCK = "Stuck"
    FAILED = "Failed"
    COMPLETED = "Completed"
    ALL = "All"

    @property
    def states(self) -> tuple[State, ...]:
        """The states that this tab shows, the most urgent first."""
        return _VIEWS[self]


_VIEWS = {
    View.ACTIVE: (State.STUCK, State.OTHER, State.PROCESSING, State.PENDING, State.SCHEDULED),
    View.PENDING: (State.PENDING, State.SCHEDULED),
    View.PROCESSING: (State.PROCESSING,),
    View.STUCK: (State.STUCK,),
    View.FAILED: (State.FAILED,),
    View.COMPLETED: (State.COMPLETED,),
    View.ALL: tuple(State),
}


class Policy(StrEnum):
    """What worker, watcher and sweep do with an expired lease."""

    REQUEUE = "requeue"
    """Pending again after a back-off, Failed when the attempts are used up; a worker may take over by itself."""
    PARK = "park"
    """Stuck until a person decides: the outcome of the lost attempt is unknown."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait before another attempt: `base` doubled for each attempt, at most `cap`, with full jitter (in SQL)."""

    base: timedelta = timedelta(seconds=2)
    cap: timedelta = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Job:
    """A row of the jobs table as it was read. What the table does not keep is None."""

    key: Key
    state: State
    reason: Reason | None
    status: str | None
    """The stored status, in the table's own words."""
    fence: str
    """All that a guarded write compares, as one text: status, owner, attempt, lease."""
    owner: str | None = None
    lease_until: datetime | None = None
    lease_ttl: timedelta | None = None
    claimed_at: datetime | None = None
    heartbeats: int | None = None
    stage: str | None = None
    queue: str | None = None
    kind: str | None = None
    priority: int | None = None
    attempts: int | None = None
    max_attempts: int | None = None
    created_at: datetime | None = None
    run_after: datetime | None = None
    finished_at: datetime | None = None
    error: str | None = None
    idempotency_key: str | None = None
    amount: str | None = None
    place: Place | None = field(default=None, compare=False, repr=False)
    """Where it stood in the list that it was read with."""

    @property
    def id(self) -> str:
        """The key as one text."""
        return written(self.key)

    def remaining(self, now: datetime) -> timedelta | None:
        """Time left of the lease (negative: over since), None where there is no lease."""
        return None if self.lease_until is None else self.lease_until - now

    def is_live(self, now: datetime) -> bool:
        """Whether somebody holds this job right now, as far as anything tells."""
        return self.state is State.PROCESSING and (self.lease_until is None or self.lease_until >= now)


@dataclass(frozen=True, slots=True)
class Event:
    """One row of a job's history: the end of an attempt, an operator's act, or a warning."""

    event: str
    attempt: int | None
    owner: str | None
    stage: str | None
    error: str | None
    started_at: datetime | None
    ended_at: datetime
    actor: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Payload:
    """What a job is to be done with, as text."""

    text: str
    """At most so much of it as a person reads."""
    length: int
    """Of the whole, in characters."""


@dataclass(frozen=True, slots=True)
class Detail:
    """Everything about one job, read on demand. `job` is None when it is gone."""

    job: Job | None
    history: tuple[Event, ...] | None
    """Newest first, bounded; None where the table keeps no history."""
    clock: ServerClock
    journaled: bool = False
    """Whether acts go to the journal's table in the database, and not to a file."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The leases of one owner."""

    name: str | None
    held: int
    """Jobs in Processing with this owner, live and expired."""
    expired: int
    oldest_claim: datetime | None
    next_expiry: datetime | None


@dataclass(frozen=True, slots=True)
class Watcher:
    """A watcher process, by its own heartbeat row."""

    name: str
    policy: str
    interval: timedelta
    seen_at: datetime
    swept: int

    def is_late(self, now: datetime) -> bool:
        """Whether it missed its sweep by more than half an interval and five seconds.

        A row is data: one that was seen in the future, or means to sweep less than once a day, is late as well.
        """
        patience = max(timedelta(), min(self.interval, timedelta(days=1))) * 1.5 + timedelta(seconds=5)
        return not timedelta(minutes=-1) < now - self.seen_at <= patience


@dataclass(frozen=True, slots=True)
class Tally:
    """How many jobs are in a state, up to a cap, and since when."""

    count: int = 0
    capped: bool = False
    oldest: datetime | None = None
    newest: datetime | None = None

    def __add__(self, other: "Tally") -> "Tally":
        olds = [moment for moment in (self.oldest, other.oldest) if moment]
        news = [moment for moment in (self.newest, other.newest) if moment]
        return Tally(
            self.count + other.count,
            self.capped or other.capped,
            min(olds, default=None),
            max(news, default=None),
        )


@dataclass(frozen=True, slots=True)
class Throughput:
    """Completed jobs for each bucket of time, oldest first; only what a bounded look at the newest history shows."""

    bucket: timedelta
    completed: Mapping[datetime, int]
    since: datetime
    """Nothing is known of before: either the window began here, or the bounded look ended here."""

    def merged(self, earlier: "Throughput | None", window: timedelta) -> "Throughput":
        """Adds what an earlier snapshot knew of the time before `since`."""
        if earlier is None:
            return self
        newest = max(self.completed, default=self.since)
        kept = {
            at: number
            for at, number in earlier.completed.items()
            if at < self.since and at > newest - window and at not in self.completed
        }
        return Throughput(self.bucket, kept | dict(self.completed), min(self.since, earlier.since))

    def per_minute(self, now: datetime) -> float:
        """Completed jobs a minute, over the last minute or as much of it as is known."""
        start = max(now - timedelta(minutes=1), self.since)
        span = max((now - start).total_seconds(), self.bucket.total_seconds())
        return 60 * sum(number for at, number in self.completed.items() if at >= start - self.bucket / 2) / span


@dataclass(frozen=True, slots=True)
class Minute:
    """The attempts that ended in one minute, which began at `at`."""

    at: datetime
    completed: int
    failed: int
    expired: int


@dataclass(frozen=True, slots=True)
class Poison:
    """A job whose latest attempts all ended by expiry: whoever takes it perhaps dies of it."""

    key: Key
    attempts: int
    """How many of them, in a row."""
    owner: str | None
    """Who lost the latest."""
    since: datetime
    """When the first of them ended."""

    @property
    def id(self) -> str:
        """The key as one text."""
        return written(self.key)


@dataclass(frozen=True, slots=True)
class Noisy:
    """An owner whose attempts ended in other ways than by completion, too."""

    owner: str
    expired: int
    failed: int
    completed: int


@dataclass(frozen=True, slots=True)
class Trends:
    """The ends of attempts in the last hour, as a bounded look at the newest history shows them."""

    clock: ServerClock
    minutes: tuple[Minute, ...]
    """Without a gap, the oldest first, the last one ends now; those that the look did not reach are missing."""
    known_since: datetime | None
    """Nothing is known of before, since the look ended there; None: it reached back over the hour."""
    look: int
    """How many ends are looked at, at most."""
    poison: tuple[Poison, ...]
    noisy: tuple[Noisy, ...]
    cost: timedelta = timedelta()
    """What the server worked, by its own clock."""


@dataclass(frozen=True, slots=True)
class Server:
    """The PostgreSQL at the other end."""

    version: str
    database: str
    user: str
    host: str
    standby: bool

    @property
    def title(self) -> str:
        """`database@host`."""
        return f"{self.database}@{self.host}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that one refresh read, in one transaction: its figures agree with each other."""

    server: Server
    clock: ServerClock
    queue: str
    """What the profile calls this queue."""
    view: View
    jobs: tuple[Job, ...]
    """The first jobs of the view, most urgent first; never more than the limit asked for."""
    tallies: Mapping[State, Tally]
    """For every state that this table can tell; a state that it does not keep is missing."""
    reasons: Mapping[Reason, Tally]
    """Stuck by reason."""
    owners: tuple[Owner, ...]
    watchers: tuple[Watcher, ...] | None
    """None where the table has no watchers' rows: unknown, not absent."""
    throughput: Throughput | None
    """None where the table keeps no history."""
    took: timedelta
    """From asking to the last answer."""
    cost: timedelta = timedelta()
    """What of that the server worked, by its own clock."""
    skew: timedelta = timedelta()
    """How far this machine's clock is ahead of the server's. Only told: nothing is ever measured by this clock."""
    chosen: "Filter | None" = None
    sort: str | None = None
    """The column that the jobs are sorted by; None: the most urgent first."""
    descending: bool = False
    limit: int = 0
    """How many jobs were asked for."""
    after: Place | None = None
    """The list begins behind that place; None: at its beginning."""
    everywhere: bool = False
    """Whether the filter looked at all jobs, and not at the first of each state only."""
    has_owners: bool = True
    """Whether this queue records who holds a job."""
    owner_count: int = 0
    """All owners, also those beyond `owners`."""
    live_owner_count: int = 0
    """Owners with a lease that is not over."""
    lease_count: int = 0
    """All leases held, live or expired."""
    owners_capped: bool = False
    """Whether there are more leases than were looked at: the counts are lower bounds."""
    notes: tuple[str, ...] = ()
    """What this table lacks, in words for the operator."""
    evidence: Evidence = Evidence.LEASE
    completion_fenced: bool = True
    """Whether a late finisher is known to be unable to complete a requeued job."""

    @property
    def now(self) -> datetime:
        """The server's time at the reading."""
        return self.clock.at

    def total(self, view: View) -> Tally:
        """The jobs of a view."""
        return sum((self.tallies[state] for state in view.states if state in self.tallies), Tally())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an operator's act on one job, in words."""

    key: Key
    done: bool
    words: str
    after: Job | None = None
    """The job as the act left it, where it was done."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep did to one job."""

    key: Key
    status: str
    attempts: int | None
    max_attempts: int | None
    owner: str | None
