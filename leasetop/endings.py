"""How a worker's jobs end: completed, failed, refused because the lease was over, or given back.

Ends are gathered, so that all jobs that finished together are completed in one statement. An end that cannot
be recorded now (the row is locked, the server is away) waits and is tried again, but never past its lease:
the deadline is looked at before every write. Waits are float seconds on the clock of `session.elapsed`.
"""

import logging
from datetime import timedelta

import psycopg

from leasetop.leases import ClaimedJob, Keeper, Observer
from leasetop.session import TROUBLE, Outage, Row, Session, elapsed, fact, is_race, storable, words
from leasetop.text import safe

# A claim that raced for a row and lost keeps it locked until its own end: a moment. Then doubled, up to the
# longest.
_BUSY_S, _LONGEST_BUSY_S = 0.002, 0.25
_LONGEST_ERROR = 8000


class PermanentFailure(Exception):
    """Raised by a handler: this job is Failed at once, since trying again cannot help."""


class Endings:
    """Records how jobs ended, on the main loop's connection. For one thread."""

    def __init__(
        self,
        session: Session,
        keeper: Keeper,
        outage: Outage,
        *,
        backoff: timedelta,
        backoff_cap: timedelta,
        log: logging.Logger,
        observer: Observer,
    ) -> None:
        self._session, self._keeper, self._outage = session, keeper, outage
        self._backoff = {"backoff": backoff, "backoff_cap": backoff_cap}
        self._log, self._observer = log, observer
        self._done: list[ClaimedJob] = []
        self._failed: list[tuple[ClaimedJob, BaseException]] = []
        self._fresh = False
        self._retry_at = self._blocked_until = 0.0
        self._busy = 0

    @property
    def waiting(self) -> int:
        """How many ends are not recorded yet."""
        return len(self._done) + len(self._failed)

    @property
    def next_at(self) -> float:
        """When `write` has something to do."""
        if not self.waiting:
            return float("inf")
        return max(self._blocked_until, 0.0 if self._fresh else self._retry_at)

    def add(self, job: ClaimedJob, error: BaseException | None) -> None:
        """A handler has returned, or raised."""
        if error is None:
            self._done.append(job)
        else:
            self._failed.append((job, error))
        self._fresh = True

    def write(self) -> None:
        """Records all ends that wait, and keeps those that could not be recorded now."""
        self._fresh = False
        if self._failed:
            failed, self._failed = self._failed, []
            self._failed = [(job, error) for job, error in failed if not self._fail(job, error)]
        now = elapsed()
        done, self._done = self._done, []
        current = []
        for job in done:
            if job.lost or now >= job.deadline:
                self._late(job)
            else:
                current.append(job)
        if current:
            self._done = self._complete(current)
        self._busy = min(self._busy + 1, 10) if self.waiting else 0
        self._retry_at = elapsed() + min(_LONGEST_BUSY_S, _BUSY_S * 2**self._busy)

    def lapsed(self, job: ClaimedJob) -> None:
        """The lease was over before there was an end to record."""
        self._keeper.lose(job, "its time is over")

    def release(self, jobs: list[ClaimedJob]) -> list[ClaimedJob]:
        """Gives jobs back undone; returns those that have to wait."""
        try:
            rows = self._session.execute("release", _tokens(jobs) | {"reason": "the worker was stopped"})
        except TROUBLE as error:
            self._trouble(error)
            return jobs
        ids = {row[0] for row in rows}
        for job in jobs:
            event, what = ("released", "released") if job.id in ids else ("lost", "was no longer ours to release")
            self.say(logging.INFO, event, f"job {job.id}, attempt {job.attempt}: {what}", job)
            self._observer(event, job.id)
        return []

    def say(self, level: int, event: str, text: str, job: ClaimedJob, **more: object) -> None:
        """One fact about one job."""
        fact(self._log, level, event, text, job=job.id, attempt=job.attempt, owner=job.owner, **more)

    def _trouble(self, error: BaseException) -> None:
        if not is_race(error):
            self._blocked_until = elapsed() + self._outage.failed(error)

    def _complete(self, jobs: list[ClaimedJob]) -> list[ClaimedJob]:
        """Completes jobs in one statement; returns those that have to wait."""
        for job in jobs:
            # Until the answer is here, a heartbeat that finds nothing of ours may have met our own
            # completion.
            job.settling = True
        try:
            rows = self._session.execute("complete", _tokens(jobs))
        except TROUBLE as error:
            if len(jobs) > 1 and not is_race(error) and not self._session.lost:
                # One job's trigger or constraint must not keep the others from being completed.
                return [job for one in jobs for job in self._complete([one])]
            self._trouble(error)
            return jobs
        self._outage.worked()
        outcomes = {(id_, attempt): outcome for id_, attempt, outcome in rows}
        return [job for job in jobs if not self._completed(job, outcomes[job.id, job.attempt])]

    def _completed(self, job: ClaimedJob, outcome: str) -> bool:
        if outcome == "busy":
            job.settling = False
            return False
        self._keeper.drop(job)
        if outcome == "refused":
            text = f"completion refused: job {job.id}, attempt {job.attempt}: the lease had passed on"
            self.say(logging.WARNING, "refused", text, job)
        self._observer(outcome, job.id)
        return True

    def _late(self, job: ClaimedJob) -> None:
        """The work is done, the lease is over: the row is left alone, and the history says what happened."""
        self.lapsed(job)
        text = f"late completion refused: job {job.id}, attempt {job.attempt}: the work ended after the lease"
        self.say(logging.WARNING, "late", text, job)
        token: dict[str, object] = {
            "id": job.id,
            "attempt": job.attempt,
            "owner": job.owner,
            "stage": job.stage,
        }
        try:
            try:
                self._session.execute("late", token)
            except TROUBLE:
                # The connection may not have outlived the pause: the second try has a new one.
                self._session.execute("late", token)
        except TROUBLE as error:
            self.say(logging.ERROR, "unrecorded", f"{text}; not in the history: {words(error)}", job)
        self._observer("late", job.id)

    def _fail(self, job: ClaimedJob, error: BaseException) -> bool:
        """Records a failed attempt; False: not now."""
        if not job.held():
            self.lapsed(job)
            return True
        job.settling = True
        text = error_text(error)
        try:
            rows = self._fail_as(job, error, text)
        except TROUBLE as trouble:
            self._trouble(trouble)
            return False
        self._outage.worked()
        if not rows:
            self._keeper.lose(job, "its failure is recorded already, or cannot be any more")
            return True
        self._keeper.drop(job)
        what = "will be tried again" if rows[0][1] == "Pending" else "Failed"
        line = f"job {job.id}, attempt {job.attempt}/{job.max_attempts} failed, {what}: {safe(text, 300)}"
        self.say(logging.WARNING, "failed", line, job, error=text)
        self._log.debug("job %s: where it failed", job.id, exc_info=error)
        self._observer("failed", job.id)
        return True

    def _fail_as(self, job: ClaimedJob, error: BaseException, text: str) -> list[Row]:
        parameters: dict[str, object] = {
            "id": job.id,
            "attempt": job.attempt,
            "owner": job.owner,
            "stage": None,
            "error": text,
            "retry": not isinstance(error, PermanentFailure),
        }
        try:
            return self._session.execute("fail", parameters | self._backoff)
        except psycopg.DataError:
            # The database's own encoding is smaller than Unicode (SQLSTATE 22P05).
            plain = text.encode("ascii", "backslashreplace").decode()
            return self._session.execute("fail", parameters | self._backoff | {"error": plain})


def error_text(error: BaseException) -> str:
    """`Type: message`, such that recording it cannot itself fail."""
    try:
        message = str(error)
    except Exception:
        message = "(its message cannot be read)"
    return storable(f"{type(error).__name__}: {message}" if message else type(error).__name__, _LONGEST_ERROR)


def _tokens(jobs: list[ClaimedJob]) -> dict[str, object]:
    # Stages are written when they are reached, never here. Array literals, since numbers need no quoting: to
    # dump lists costs psycopg more time than all the rest that is done here for a job.
    return {
        "owner": jobs[0].owner,
        "ids": f"{{{','.join([str(job.id) for job in jobs])}}}",
        "attempts": f"{{{','.join([str(job.attempt) for job in jobs])}}}",
        "stages": f"{{{','.join(['NULL'] * len(jobs))}}}",
    }
