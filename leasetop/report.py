"""What the commands print: a snapshot, a job or a sweep, as text for a person or as JSON for a program."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from rich.cells import cell_len

from leasetop import text
from leasetop.model import ALWAYS, NEVER, Job, Reason, Snapshot, State, Swept, written
from leasetop.profile import Profile


def status_json(snapshot: Snapshot) -> dict[str, Any]:
    """One object: `states` maps each shown state to a count, null where this table cannot tell."""
    return {
        "at": snapshot.now.isoformat(),
        "server": {
            "version": snapshot.server.version,
            "database": snapshot.server.database,
            "host": snapshot.server.host,
            "standby": snapshot.server.standby,
        },
        "queue": snapshot.queue,
        "states": {str(state): snapshot.tallies[state].count if state in snapshot.tallies else None for state in State},
        "capped": [str(state) for state, tally in snapshot.tallies.items() if tally.capped],
        "stuck": {str(reason): tally.count for reason, tally in snapshot.reasons.items()},
        "oldest_pending_s": _seconds_since(
            snapshot.tallies[State.PENDING].oldest if State.PENDING in snapshot.tallies else None,
            snapshot.now,
        ),
        "owners": _held(snapshot),
        "owners_capped": snapshot.owners_capped or snapshot.owner_count > len(snapshot.owners),
        "watchers": None
        if snapshot.watchers is None
        else [
            {
                "name": watcher.name,
                "policy": watcher.policy,
                "last_sweep_s": _seconds_since(watcher.seen_at, snapshot.now),
                "late": watcher.is_late(snapshot.now),
            }
            for watcher in snapshot.watchers
        ],
        "completed_per_minute": None
        if snapshot.throughput is None
        else round(snapshot.throughput.per_minute(snapshot.now), 1),
    }


def queue_json(profile: Profile, snapshot: Snapshot) -> str:
    """A queue of a database, for `leasetop queues`: one object a line."""
    known = {
        "queue": profile.title,
        "profile": profile.id,
        "label": profile.label,
        "tested": list(profile.tested),
        "evidence": str(profile.evidence),
        "completion_fenced": profile.completion_fenced,
        "acts": sorted(profile.actions),
    }
    return json.dumps(known | {"states": status_json(snapshot)["states"], "notes": list(profile.notes)})


def queue_text(profile: Profile, snapshot: Snapshot) -> str:
    """The same for a person: a line, and what to know about it indented below."""
    counts = ", ".join(
        f"{text.count(tally.count, tally.capped)} {state}" for state, tally in snapshot.tallies.items() if tally.count
    )
    fenced = "completion fenced" if profile.completion_fenced else "a late finisher can still complete"
    lines = [
        f"{text.safe(profile.title)}  [{profile.label}]  {counts or 'empty'}",
        f"    evidence: {profile.evidence}; {fenced}; acts: {', '.join(sorted(profile.actions)) or 'none'}",
    ]
    if profile.tested:
        lines.append(f"    tested with {', '.join(profile.tested)}")
    return "\n".join([*lines, *(f"    {text.safe(note)}" for note in profile.notes)])


def _held(snapshot: Snapshot) -> dict[str, int]:
    held: dict[str, int] = {}
    for owner in snapshot.owners:
        if owner.name is not None:
            # Names that are alike as far as they are shown are one here.
            held[owner.name] = held.get(owner.name, 0) + owner.held
    return held


def status_text(snapshot: Snapshot) -> str:
    """One screenful."""
    server, now = snapshot.server, snapshot.now
    role = "standby" if server.standby else "primary"
    lines = [
        f"{text.safe(server.title)}  PostgreSQL {server.version} {role}  "
        f"{text.safe(snapshot.queue)}  {text.instant(now)}",
        f"watcher     {watcher_words(snapshot)}",
        "",
    ]
    for state in State:
        tally = snapshot.tallies.get(state)
        if tally is None:
            lines.append(f"{state:<11} {'not kept':>9}")
            continue
        lines.append(f"{state:<11} {text.count(tally.count, tally.capped):>9}   {_note(snapshot, state)}".rstrip())
    if snapshot.throughput is not None:
        lines += ["", f"completed   {snapshot.throughput.per_minute(now):>9.0f} a minute"]
    if snapshot.owners:
        shown = snapshot.owners[:12]
        lines += ["", f"{'OWNER':<40} {'HELD':>5} {'EXPIRED':>7}  NEXT EXPIRY"]
        for owner in shown:
            ends = "-" if owner.next_expiry is None else lease_words(owner.next_expiry, now)
            lines.append(
                f"{text.fit(text.safe(owner.name) or '(none)', 40)} {owner.held:>5} {owner.expired:>7}  {ends}"
            )
        if snapshot.owner_count > len(shown):
            lines.append(f"... and {text.plural(snapshot.owner_count - len(shown), 'owner')} more")
    return "\n".join(lines)


def watcher_words(snapshot: Snapshot) -> str:
    """Is anybody sweeping? From the watchers' own heartbeats; where there are none, from the oldest expired lease."""
    expired = snapshot.reasons.get(Reason.EXPIRED)
    overdue = (
        f", oldest expired lease {text.duration(snapshot.now - expired.oldest)} ago"
        if expired is not None and expired.count and expired.oldest
        else ""
    )
    if snapshot.watchers is None:
        return f"unknown{overdue}"
    if not snapshot.watchers:
        return f"none{overdue}"
    newest = max(snapshot.watchers, key=lambda watcher: watcher.seen_at)
    ago = text.duration(snapshot.now - newest.seen_at)
    return f"late, last sweep {ago} ago{overdue}" if newest.is_late(snapshot.now) else f"ok {ago} ago"


def lease_words(until: datetime, now: datetime) -> str:
    """`41s left`, or `expired 2m13s ago`."""
    if until >= now:
        return f"{text.duration(until - now)} left"
    return f"expired {text.duration(now - until)} ago"


def job_json(job: Job, now: datetime) -> dict[str, Any]:
    """One job as an object with stable names; times in seconds on the server's clock."""
    remaining = job.remaining(now)
    endless = job.lease_until == NEVER
    return {
        "id": job.id,
        "state": str(job.state),
        "reason": None if job.reason is None else str(job.reason),
        "status": job.status,
        "owner": job.owner,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "lease_remaining_s": None if remaining is None or endless else round(remaining.total_seconds(), 3),
        "lease_endless": endless,
        "stage": job.stage,
        "kind": job.kind,
        "lease_until": _iso(job.lease_until),
        "claimed_at": _iso(job.claimed_at),
        "created_at": _iso(job.created_at),
        "finished_at": _iso(job.finished_at),
        "as_of": now.isoformat(),
        "age_s": _seconds_since(job.created_at, now),
        "idempotency_key": job.idempotency_key,
        "amount": job.amount,
        "error": job.error,
    }


def jobs_text(jobs: Iterable[Job], now: datetime, width: int | None = None) -> str:
    """A table of jobs, ids in full; with a width its lines are cut to that."""
    jobs = list(jobs)
    ids = max([12, *(cell_len(text.safe(job.id)) for job in jobs)])
    lines = [f"{'ID':<{ids}} {'STATE':<16} {'STAGE':<10} {'OWNER':<28} {'LEASE':<18} {'TRY':<6} {'AGE':<8} ERROR"]
    for job in jobs:
        cells = (
            text.fit(text.safe(job.id), ids),
            text.fit(state_words(job), 16),
            text.fit(text.safe(job.stage) or "-", 10),
            text.fit(text.safe(job.owner) or "-", 28),
            text.fit(_lease_cell(job, now), 18),
            text.fit(attempts_words(job), 6),
            text.fit("-" if job.created_at is None else text.duration(now - job.created_at), 8),
            text.safe(job.error, 80) or "-",
        )
        lines.append(" ".join(cells).rstrip())
    return "\n".join(line if width is None else text.fit(line, width).rstrip() for line in lines)


def _lease_cell(job: Job, now: datetime) -> str:
    # A lease left on a row that is done is not a lease.
    held = job.state in (State.PROCESSING, State.STUCK)
    return lease_words(job.lease_until, now) if held and job.lease_until is not None else "-"


def payment_caution(jobs: Sequence[Job], now: datetime, window: timedelta) -> str:
    """What there is to fear for payments when these jobs are run again; empty where nothing speaks for it."""
    begun = [job for job in jobs if job.stage]
    old = [job for job in jobs if job.created_at is not None and now - job.created_at > window]
    both = [job for job in old if job.stage]
    if not begun and not old:
        return ""
    told = [f"{text.count(len(begun))} had reached a stage of their payment"] if begun else []
    if old:
        known = f"{text.count(len(old))} older than the {text.duration(window)} for which the provider knows their key"
        told.append(known + (": these can be paid twice" if both else ""))
    return f"Look them up at the payment provider first: {'; '.join(told)}."


def discard_caution(jobs: Sequence[Job]) -> str:
    """What there is to fear for payments when these jobs are never run again; empty where nothing speaks for it."""
    begun = sum(1 for job in jobs if job.stage)
    if not begun:
        return ""
    told = "It had reached a stage" if len(jobs) == 1 else f"{begun} of these had reached a stage"
    return f"{told}: money may have moved, and nobody will look again. Look up at the payment provider first."


def state_words(job: Job) -> str:
    """`stuck: expired`, `processing`, `other: frozen`."""
    if job.reason is not None:
        return f"{job.state}: {job.reason}"
    return f"other: {text.safe(job.status) or 'NULL'}" if job.state is State.OTHER else str(job.state)


def attempts_words(job: Job) -> str:
    """`2/5`, `2` where no maximum is kept, `-` where nothing is."""
    if job.attempts is None:
        return "-"
    return str(job.attempts) if job.max_attempts is None else f"{job.attempts}/{job.max_attempts}"


def swept_json(swept: Swept) -> dict[str, Any]:
    """One swept job."""
    return {
        "id": written(swept.key),
        "status": swept.status,
        "attempts": swept.attempts,
        "max_attempts": swept.max_attempts,
        "owner": swept.owner,
    }


def swept_words(swept: Iterable[Swept]) -> str:
    """`3 expired leases swept: 2 Pending, 1 Failed`."""
    every = list(swept)
    if not every:
        return "no expired lease: nothing was changed"
    by_status = {one.status: sum(other.status == one.status for other in every) for one in every}
    parts = ", ".join(f"{number} {status}" for status, number in sorted(by_status.items()))
    return f"{text.plural(len(every), 'expired lease')} swept: {parts}"


def _note(snapshot: Snapshot, state: State) -> str:
    tally, now = snapshot.tallies[state], snapshot.now
    if not tally.count:
        return ""
    if state is State.STUCK:
        reasons = (f"{known.count} {reason}" for reason, known in snapshot.reasons.items() if known.count)
        oldest = f", oldest {text.duration(now - tally.oldest)}" if tally.oldest else ""
        return ", ".join(reasons) + oldest
    if state is State.PROCESSING and not snapshot.has_owners:
        return "by whom: not kept"
    if state is State.PROCESSING:
        return text.plural(snapshot.live_owner_count, "owner") + ("+" if snapshot.owners_capped else "")
    if state is State.SCHEDULED and tally.oldest:
        return f"next in {text.duration(tally.oldest - now)}"
    if state in (State.FAILED, State.COMPLETED, State.CANCELLED):
        return f"newest {text.duration(now - tally.newest)} ago" if tally.newest else ""
    return f"oldest {text.duration(now - tally.oldest)}" if tally.oldest else ""


def _iso(moment: datetime | None) -> str | None:
    """Infinity is no instant: `lease_endless` says it."""
    return None if moment is None or moment in (ALWAYS, NEVER) else moment.isoformat()


def _seconds_since(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else round((now - moment).total_seconds(), 3)
