"""Why an act changed nothing, in words: the job as it was seen against the job as it is now."""

from datetime import datetime

from leasetop import text
from leasetop.clock import ServerClock
from leasetop.model import Job, State


def requeue(seen: Job, current: Job | None, clock: ServerClock, needs: str | None = None) -> str:
    """Why a requeue changed nothing, given the job as it is now: the most important difference first.

    `needs` is who may do it at all, where others change nothing and are told nothing.
    """
    name = f"job {text.safe(seen.id)}"
    if current is None:
        return f"{name}: it is gone"
    now = clock.at
    if current.state is State.COMPLETED:
        return f"{name}: it is Completed, and what is done is never requeued"
    if current.is_live(now):
        same = current.fence == seen.fence or only_renewed(seen, current)
        taken = "" if same else " (it was claimed since you looked)"
        return f"{name}: {holding(current, now)}{taken}: a live lease is not requeued"
    changes = _differences(seen, current)
    if changes:
        return f"{name}: it is not as you saw it: {', '.join(changes)}; nothing was changed"
    if current.state in (State.PENDING, State.SCHEDULED):
        return f"{name}: it is Pending already"
    if current.state is State.OTHER:
        status = "NULL" if current.status is None else f"'{text.safe(current.status)}'"
        if current.finished_at is not None:
            return f"{name}: its status is {status}, and it has an end: other than the known states, not requeued"
        return f"{name}: its status {status} is other than the known ones: not requeued"
    if current.state is State.CANCELLED:
        return f"{name}: it is Cancelled: not requeued"
    if current.lease_until is not None and current.lease_until >= now:
        left = text.duration(current.lease_until - now)
        return f"{name}: it is {current.state}, but its lease lasts for another {left}: a live lease is not requeued"
    if current.fence != seen.fence:
        return f"{name}: its row was written since you looked, if not where it shows; nothing was changed: look again"
    held = f"this needs {needs}; else" if needs else "perhaps"
    return (
        f"{name}: nothing was changed, and it is as you saw it: {held} row security, a trigger or another condition "
        "holds the act back; leasetop doctor tells of the first"
    )


def act(past: str, seen: Job, current: Job | None, clock: ServerClock) -> str:
    """Why an act changed nothing, given the job as it is now; `past` is what it was to be: parked, discarded."""
    name = f"job {text.safe(seen.id)}"
    if current is None:
        return f"{name}: it is gone"
    if current.is_live(clock.at):
        return f"{name}: {holding(current, clock.at)}: a live job is not {past}"
    changes = _differences(seen, current)
    if changes:
        return f"{name}: it is not as you saw it: {', '.join(changes)}; nothing was changed"
    return f"{name}: it is {current.reason or current.state}: not {past}"


def holding(job: Job, now: datetime) -> str:
    """Who holds a live job and for how long, in words; `job.is_live(now)`."""
    owner = text.safe(job.owner) or "a worker"
    left = job.remaining(now)
    attempt = "" if job.attempts is None else f", attempt {job.attempts}"
    if left is None:
        return f"{owner} is at work on it{attempt}, and nothing says that it is dead"
    return f"{owner} holds its lease for another {text.duration(left)}{attempt}"


def only_renewed(seen: Job, current: Job) -> bool:
    """Whether nothing but the lease has moved: the same attempt of the same owner, which beats."""
    moved = [name for name in _differences(seen, current) if not name.startswith("lease until")]
    return current.fence != seen.fence and current.state is State.PROCESSING and not moved


def _differences(seen: Job, current: Job) -> list[str]:
    pairs = {
        "status": (seen.status, current.status),
        "owner": (seen.owner, current.owner),
        "attempts": (seen.attempts, current.attempts),
        "lease until": (seen.lease_until, current.lease_until),
        "stage": (seen.stage, current.stage),
        "error": (seen.error, current.error),
    }
    return [
        f"{name} was {_said(old)}, is {_said(new)}"
        for name, (old, new) in pairs.items()
        if old != new and not _is_cut(old, new)
    ]


def _said(value: object) -> str:
    return text.instant(value) if isinstance(value, datetime) else text.safe(value, 200) or "none"


def _is_cut(old: object, new: object) -> bool:
    """Whether the one is the beginning of the other: lists have long texts cut."""
    return isinstance(old, str) and isinstance(new, str) and old.endswith("…") and new.startswith(old[:-1])
