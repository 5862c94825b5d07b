"""A world that stands still: fixed snapshots on a stopped clock, and a queue that hands them out."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from leasetop.anomalies import Findings
from leasetop.clock import ServerClock
from leasetop.errors import LeasetopError
from leasetop.filter import Filter
from leasetop.journal import PAST, Entry, Site
from leasetop.model import (
    NEVER,
    Detail,
    Event,
    Job,
    Key,
    Minute,
    Noisy,
    Outcome,
    Owner,
    Payload,
    Poison,
    Policy,
    Reason,
    Server,
    Snapshot,
    State,
    Swept,
    Tally,
    Throughput,
    Trends,
    View,
    Watcher,
)
from leasetop.paging import Place
from leasetop.profile import shipped

NOW = datetime(2026, 12, 1, 3, 0, tzinfo=UTC)
MONOTONIC = 1000.0


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


def job(number: int, state: State, reason: Reason | None = None, **more: object) -> Job:
    stored = {State.PENDING: "Pending", State.SCHEDULED: "Pending", State.STUCK: "Processing"}
    fields: dict[str, object] = {
        "status": stored.get(state, str(state).capitalize()),
        "fence": f"({state},{number})",
        "kind": "charge",
        "attempts": 0,
        "max_attempts": 5,
        "created_at": ago(seconds=7 * number),
        "idempotency_key": f"order-{number}",
        "amount": f"{number}.50 EUR",
    } | more
    return Job(key=(str(number),), state=state, reason=reason, **fields)  # type: ignore[arg-type]


def held(number: int, left_s: float, owner: str = "pay-7f9c/4122/9d1e", **more: object) -> Job:
    expired = left_s < 0
    fields: dict[str, object] = {
        "owner": owner,
        "lease_until": NOW + timedelta(seconds=left_s),
        "lease_ttl": timedelta(seconds=60),
        "claimed_at": ago(seconds=70),
        "attempts": 1,
        "stage": "authorize",
        "heartbeats": 3,
    } | more
    state, reason = (State.STUCK, Reason.EXPIRED) if expired else (State.PROCESSING, None)
    return job(number, state, reason, **fields)


JOBS = (
    held(
        8841,
        -133,
        owner="pay-7f9c/4121/03aa",
        attempts=2,
        stage="capture",
        error="lease expired in attempt 1",
    ),
    job(8842, State.STUCK, Reason.NO_LEASE, attempts=1, owner="pay-0000/1/ffff"),
    job(
        8843,
        State.STUCK,
        Reason.PARKED,
        attempts=5,
        status="Stuck",
        error="[/red] [@click=app.quit]press me[/] \x1b[2J",
    ),
    held(8850, 41),
    held(8851, 6),
    held(8852, 0, lease_until=NEVER, lease_ttl=None),
    job(8853, State.PENDING),
    job(8854, State.PENDING, kind="支払い", idempotency_key="注文-1"),
    job(8855, State.SCHEDULED, run_after=NOW + timedelta(seconds=95), attempts=1, error="PSP timed out"),
    job(8860, State.FAILED, attempts=5, error="CardDeclined: do not honor", finished_at=ago(minutes=2)),
    job(8861, State.COMPLETED, attempts=1, finished_at=ago(seconds=3)),
    job(8862, State.CANCELLED, finished_at=ago(hours=3)),
    job(8863, State.OTHER, status="frozen"),
)

HISTORY = (
    Event("late completion refused", 1, "pay-7f9c/4100/aa00", "settle", None, None, ago(minutes=4), None,
          "the lease had passed on; check whether the payment was made twice"),
    Event("expired", 1, "pay-7f9c/4100/aa00", "capture", None, ago(minutes=9), ago(minutes=5),
          "watcher/9/bb", "swept: will be tried again"),
    Event("requeued", 0, None, None, None, None, ago(minutes=20), "ops@box", "bank is back"),
)  # fmt: skip


def clock() -> ServerClock:
    return ServerClock(NOW, MONOTONIC)


def snapshot(view: View = View.ACTIVE, jobs: tuple[Job, ...] = JOBS) -> Snapshot:
    tallies = {}
    for state in State:
        found = [one for one in jobs if one.state is state]
        tallies[state] = Tally(len(found), False, ago(minutes=9) if found else None, ago(minutes=2) if found else None)
    bucket = timedelta(seconds=10)
    return Snapshot(
        server=Server("18.4", "payments", "ops", "db1", standby=False),
        clock=clock(),
        queue="payment_jobs",
        view=view,
        jobs=tuple(one for state in view.states for one in jobs if one.state is state),
        tallies=tallies,
        reasons={
            reason: Tally(sum(one.reason is reason for one in jobs), False, ago(minutes=9), ago(minutes=9))
            for reason in Reason
        },
        owners=(
            Owner("pay-7f9c/4121/03aa", 1, 1, ago(minutes=3), ago(seconds=133)),
            Owner("pay-7f9c/4122/9d1e", 3, 0, ago(seconds=70), NOW + timedelta(seconds=6)),
        ),
        watchers=(Watcher("watcher/9/bb", "requeue", timedelta(seconds=30), ago(seconds=12), 3),),
        throughput=Throughput(bucket, {NOW - bucket * n: n % 7 for n in range(1, 30)}, ago(minutes=5)),
        took=timedelta(milliseconds=4),
        owner_count=2,
        live_owner_count=1,
        lease_count=4,
    )


def trends() -> Trends:
    """An hour with a crash in it, ten minutes ago."""
    return Trends(
        clock=clock(),
        minutes=tuple(
            Minute(
                at=ago(minutes=n),
                completed=0 if 6 < n < 11 else 300 + 37 * n % 120,
                failed=n % 4 + (9 if n in (7, 8) else 0),
                expired={9: 14, 8: 6, 7: 1, 33: 1}.get(n, 0),
            )
            for n in range(60, 0, -1)
        ),
        known_since=None,
        look=200_000,
        poison=(
            Poison(("8841",), 4, "pay-7f9c/4121/03aa", ago(minutes=9)),
            Poison(("8099",), 2, "[/red] [@click=app.quit]press me[/] \x1b[2J", ago(hours=3)),
        ),
        noisy=(
            Noisy("pay-7f9c/4121/03aa", 14, 2, 4110),
            Noisy("支払い-7f9c/4122/9d1e", 0, 31, 4025),
        ),
        cost=timedelta(milliseconds=40),
    )


class StillQueue:
    """Answers as a queue does, from `jobs`; `error` makes it unreachable; `acts` remembers what was asked."""

    def __init__(self, jobs: tuple[Job, ...] = JOBS) -> None:
        self.jobs = jobs
        self.error: LeasetopError | None = None
        self.skew = timedelta()
        self.standby = False
        self.findings = Findings({}, ())
        self.capped = False
        """Whether there are more jobs Pending than are counted."""
        self.slow: LeasetopError | None = None
        """What it says when it is to look through everything."""
        self.acts: list[tuple[object, ...]] = []
        self.looked = trends()

    async def snapshot(
        self,
        view: View = View.ACTIVE,
        limit: int = 500,
        chosen: Filter | None = None,
        sort: str | None = None,
        descending: bool = False,
        after: Place | None = None,
        everywhere: bool = False,
    ) -> Snapshot:
        if everywhere and self.slow is not None:
            raise self.slow
        if self.error is not None:
            raise self.error
        begin = 0 if after is None else int(after.values[0] or 0) + 1
        jobs = [replace(one, place=Place(0, (str(n),))) for n, one in enumerate(self.jobs)]
        made = snapshot(view, tuple(jobs[begin : begin + limit]))
        server = replace(made.server, standby=self.standby)
        if self.capped:
            made = replace(made, tallies={**made.tallies, State.PENDING: Tally(10_000, True)})
        return replace(
            made,
            server=server,
            skew=self.skew,
            chosen=chosen,
            sort=sort,
            descending=descending,
            limit=limit,
            after=after,
            everywhere=everywhere,
        )

    async def detail(self, key: Key) -> Detail:
        if self.error is not None:
            raise self.error
        return Detail(next((one for one in self.jobs if one.key == key), None), HISTORY, clock())

    async def expired(self, limit: int = 500) -> tuple[Job, ...]:
        return tuple(one for one in self.jobs if one.reason is Reason.EXPIRED)

    async def requeue(self, seen: Job, actor: str, reason: str, force: bool = False) -> Outcome:
        self.acts.append(("requeue", seen.id, actor, reason, force))
        return Outcome(seen.key, True, f"job {seen.id}: requeued")

    async def sweep(
        self, policy: Policy, actor: str, seen: tuple[Job, ...], backoff: object = None
    ) -> tuple[Swept, ...]:
        self.acts.append(("sweep", policy, [one.id for one in seen]))
        return tuple(Swept(one.key, "Pending", 1, 5, one.owner) for one in seen)

    async def act(self, name: str, seen: Job, actor: str, reason: str, **more: object) -> Outcome:
        self.acts.append((name, seen.id, actor, reason))
        return Outcome(seen.key, True, f"job {seen.id}: {PAST[name]}", seen)

    async def anomalies(self) -> Findings:
        return self.findings

    async def find_jobs(self, ids: Sequence[str]) -> dict[str, Job | None]:
        return {one: next((job for job in self.jobs if job.id == one), None) for one in ids}

    async def read_jobs(self, keys: Sequence[Key]) -> dict[Key, Job | None]:
        return {key: next((job for job in self.jobs if job.key == key), None) for key in keys}

    async def payload(self, key: Key) -> Payload | None:
        return Payload('{"order": 7, "amount": 12.30, "card_number": "4111111111111111"}', 61)

    async def read_journal(self, limit: int = 500) -> tuple[Entry, ...]:
        site = Site("payments", "db1:5432", None)
        seen = {"status": "Processing", "owner": "pay-7f9c/4121/03aa", "attempts": 2}
        return (
            Entry(ago(minutes=3), "ops@box", site, "payment_jobs", "requeue", ("8841",), "pod [b]died[/b]", seen,
                  True, "attempt 2, stage capture"),
            Entry(ago(hours=3), "eve@box", site, "payment_jobs", "discard", ("8850",), "duplicate", seen,
                  False, "job 8850: pay-7f9c/4122/9d1e holds its lease for another 41s"),
        )  # fmt: skip

    async def trends(self) -> Trends:
        if self.error is not None:
            raise self.error
        return self.looked

    profile = shipped()[0]
    database = None

    def can(self, action: str) -> bool:
        return True

    def change(self, number: int, **fields: object) -> None:
        """One job is different from now on; `gone=True` takes it away."""
        if fields.pop("gone", False):
            self.jobs = tuple(one for one in self.jobs if one.id != str(number))
        self.jobs = tuple(replace(one, **fields) if one.id == str(number) else one for one in self.jobs)  # type: ignore[arg-type]
