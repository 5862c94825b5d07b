"""What an act on a set of jobs would do to each, as far as the screen can foresee it. The database decides."""

from collections.abc import Awaitable, Callable

from leasetop import report, text
from leasetop.clock import ServerClock
from leasetop.config import Config
from leasetop.journal import PAST
from leasetop.model import Job, Outcome, Reason, State
from leasetop.queue import Queue
from leasetop.refusals import holding
from leasetop.tui.screens.bulk import Plan

_OVER = {Reason.EXPIRED, Reason.NO_LEASE, Reason.GONE, Reason.AGE}

_MANY = 50
"""Jobs from which on their number has to be typed: a slip of the hand is not to reach so many."""
_RUNS = ("requeue", "release", "run_now")
"""Acts after which a job is run."""

_MAY: dict[str, Callable[[Job], bool]] = {
    "requeue": lambda job: job.state in (State.STUCK, State.FAILED),
    "discard": lambda job: job.state in (State.PENDING, State.SCHEDULED, State.STUCK, State.FAILED),
    "park": lambda job: job.state in (State.PENDING, State.SCHEDULED, State.FAILED) or job.reason in _OVER,
    "run_now": lambda job: job.state is State.SCHEDULED,
    "release": lambda job: job.reason is Reason.PARKED,
}


def plan(name: str, queue: Queue, actor: str, jobs: list[Job], clock: ServerClock, config: Config) -> Plan:
    """The plan of an act on these jobs, as they are now."""
    profile = queue.profile

    def doubt(job: Job) -> str:
        now = clock.now()
        if job.is_live(now):
            return holding(job, now)
        if not _MAY[name](job):
            return f"it is {job.reason or job.state}: not {PAST[name]}"
        if name == "requeue":
            way = profile.way_back(job.state)
            if way is None or way.sql is None:
                return "only its own tool can do that" if way else f"no act for a {job.state} job"
        return ""

    def perform(job: Job, reason: str) -> Awaitable[Outcome]:
        if name == "requeue":
            return queue.requeue(job, actor, reason)
        return queue.act(name, job, actor, reason)

    ways = [profile.way_back(job.state) if name == "requeue" else profile.actions.get(name) for job in jobs]
    effects = dict.fromkeys(way.effect for way in ways if way is not None and way.effect)
    unsure = any(profile.unproven(name, job) for job in jobs)
    able = [job for job in jobs if not doubt(job)]
    caution = ""
    if name in _RUNS:
        caution = report.payment_caution(able, clock.now(), config.idempotency_window)
    elif name == "discard":
        caution = report.discard_caution(able)
    verb = name.replace("_", " ").capitalize()
    effect = "; ".join(effects)
    return Plan(
        verb=verb,
        title=f"{verb} {_these(jobs)}",
        effect=effect[:1].upper() + effect[1:],
        doubt=doubt,
        perform=perform,
        reason_required=config.require_reason,
        typed=str(len(able)) if able and (unsure or len(able) >= _MANY) else None,
        caution=caution,
    )


def _these(jobs: list[Job]) -> str:
    """The jobs of an act, and whose they are, where that is short enough for a title."""
    if len(jobs) == 1:
        return f"job {text.safe(jobs[0].id, 60)}"
    owners = {job.owner for job in jobs if job.state in (State.PROCESSING, State.STUCK)}
    whose = next(iter(owners)) if len(owners) == 1 and all(job.owner for job in jobs) else None
    return text.plural(len(jobs), "job") + (f" of {text.safe(whose, 40)}" if whose else "")


def undo(queue: Queue, actor: str, before: Job) -> Plan:
    """The plan of taking back the requeue of a job that was like `before`."""

    def perform(after: Job, reason: str) -> Awaitable[Outcome]:
        return queue.act(
            *("undo_requeue", after, actor, reason or "undone"),
            status=before.status,
            max_attempts=before.max_attempts,
            since=after.run_after,
        )

    again = "Failed again" if before.state is State.FAILED else "Stuck, since its lease is gone"
    return Plan(
        verb="Undo",
        title=f"Undo the requeue of job {text.safe(before.id, 60)}",
        effect=f"{again}: not run until a person decides",
        doubt=lambda job: "",
        perform=perform,
        reason_required=False,
    )
