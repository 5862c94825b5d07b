"""The leases that one worker holds, and the thread that keeps them alive.

A worker knows two things of a lease: what the server last said, and a deadline of its own: the moment before
the latest successful claim or heartbeat was SENT, plus the TTL. The deadline only measures elapsed time,
never compares this machine's clock with the server's, and always ends before the lease does. Past it a job is
lost, whatever the network says; so a process that was frozen for an hour knows on waking that nothing is its
own any more.

Heartbeats have a thread and a connection to themselves: neither a handler that sleeps, nor a blocked event
loop, nor a claim that waits can starve them.
"""

import asyncio
import json
import logging
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from datetime import timedelta
from decimal import Decimal
from typing import Any, Protocol

import psycopg

from leasetop import database
from leasetop.session import TROUBLE, Outage, Row, Session, elapsed, fact, is_race, storable

Observer = Callable[[str, int | None], None]

# A row that was locked by somebody else for a moment: long enough for that to pass, short against any lease.
_AGAIN_S = 0.02
_LONGEST_STAGE = 200


class LeaseLost(Exception):
    """The lease of this job has passed on: stop working on it. Raised by `ClaimedJob.reached`."""


class StageRecorder(Protocol):
    """Records stages of claimed jobs: the thread that also renews their leases."""

    def ask(self, job: "ClaimedJob", stage: str) -> Future[bool]:
        """Asks for a stage to be recorded. The answer says whether the lease is still held."""
        ...


class ClaimedJob:
    """A job that this worker has claimed: what its handler gets.

    `stage` is how far the work got, at first as the previous attempt left it.
    """

    __slots__ = (
        "_keeper",
        "_payload",
        "amount",
        "attempt",
        "currency",
        "deadline",
        "id",
        "idempotency_key",
        "kind",
        "lost",
        "max_attempts",
        "owner",
        "settling",
        "stage",
        "started",
    )

    def __init__(self, row: Row, deadline: float, keeper: StageRecorder) -> None:
        self.id: int
        self.attempt: int
        self.max_attempts: int
        self.owner: str
        self.kind: str
        self.idempotency_key: str
        self.amount: Decimal
        self.currency: str
        self.stage: str | None
        # In the order in which claim.sql returns them; the instant of the lease's end is the server's
        # business.
        (
            self.id,
            self.attempt,
            self.max_attempts,
            self.owner,
            _,
            self.kind,
            self.idempotency_key,
            self.amount,
            self.currency,
            self._payload,
            self.stage,
        ) = row
        self._keeper = keeper
        # The worker's own: not for handlers.
        self.deadline = deadline
        self.lost = False
        self.started = False
        self.settling = False

    @property
    def token(self) -> tuple[str, int]:
        """(owner, attempt): what fences every later write."""
        return self.owner, self.attempt

    @property
    def payload(self) -> Any:
        """The payload, decoded anew each time. JSON that Python cannot hold fails here, in the handler."""
        return json.loads(self._payload)

    def held(self) -> bool:
        """Whether the lease is still this worker's, as far as it can tell without asking. Costs nothing."""
        return not self.lost and elapsed() < self.deadline

    def reached(self, stage: str) -> None:
        """Records durably that the work got to `stage`, before going on. Blocks; raises LeaseLost."""
        asked = self._keeper.ask(self, stage)
        while True:
            try:
                held = asked.result(timeout=max(0.0, self.deadline - elapsed()))
                break
            except TimeoutError:
                if not self.held():
                    held = False
                    break
        self._go_on(held)

    async def areached(self, stage: str) -> None:
        """`reached` for async handlers."""
        self._go_on(await asyncio.wrap_future(self._keeper.ask(self, stage)))

    def _go_on(self, held: bool) -> None:
        if not held:
            raise LeaseLost(f"job {self.id}, attempt {self.attempt}: the lease is lost")

    def __repr__(self) -> str:
        return f"<ClaimedJob {self.id} attempt {self.attempt}/{self.max_attempts}>"


class _Asked:
    """A stage to record, and who waits for that."""

    __slots__ = ("stage", "waiting")

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.waiting: list[Future[bool]] = []

    def answer(self, held: bool) -> None:
        for future in self.waiting:
            future.set_result(held)

    def refuse(self, error: Exception) -> None:
        for future in self.waiting:
            future.set_exception(error)


class Keeper(threading.Thread):
    """Holds the register of this worker's leases, and renews them all in one statement every `heartbeat`.

    `on_lost` is called once for each lost job, from whichever thread found out. `beating` is asked before
    each round: where it says no, nothing is renewed (stages are still recorded), and the leases run out.
    """

    def __init__(
        self,
        session: Session,
        owner: str,
        *,
        ttl: timedelta,
        heartbeat: timedelta,
        revive: bool,
        log: logging.Logger,
        beating: Callable[[], bool],
        on_lost: Callable[[ClaimedJob], None],
        observer: Observer,
    ) -> None:
        super().__init__(name="leasetop-heartbeats", daemon=True)
        self.held: dict[int, ClaimedJob] = {}
        self.crashed: BaseException | None = None
        self._session, self._owner, self._ttl, self._revive = session, owner, ttl, revive
        self._heartbeat_s = heartbeat.total_seconds()
        self._log, self._beating, self._on_lost, self._observer = log, beating, on_lost, observer
        self._outage = Outage(log, "heartbeats", 0.1, min(1.0, self._heartbeat_s / 2))
        self._letters: queue.SimpleQueue[tuple[ClaimedJob, str, Future[bool]] | None] = queue.SimpleQueue()
        self._asked: dict[ClaimedJob, _Asked] = {}
        self._again: set[ClaimedJob] = set()
        self._beat_at = elapsed() + self._heartbeat_s
        self._retry_at = 0.0
        self._stopped = False
        self._losing = threading.Lock()

    # Called from other threads.

    def connect(self) -> None:
        """Before the thread starts: raises Unreachable where there is no second connection to be had."""
        self._session.connection()

    def drop(self, job: ClaimedJob) -> None:
        """The job has ended: its lease is no longer kept."""
        if self.held.get(job.id) is job:
            del self.held[job.id]

    def lose(self, job: ClaimedJob, why: str) -> None:
        """The lease is lost. Says so once; nothing is written for this job from here on."""
        with self._losing:
            if job.lost:
                return
            job.lost = True
        self.drop(job)
        text = f"lease lost: job {job.id}, attempt {job.attempt}: {why}"
        fact(self._log, logging.WARNING, "lost", text, job=job.id, attempt=job.attempt, owner=job.owner)
        self._on_lost(job)
        self._letters.put(None)
        self._observer("lost", job.id)

    def ask(self, job: ClaimedJob, stage: str) -> Future[bool]:
        """Asks for a stage to be recorded. The answer says whether the lease is still held."""
        future: Future[bool] = Future()
        # From here on it cannot be cancelled, only abandoned: setting its result never fails.
        future.set_running_or_notify_cancel()
        if job.held():
            self._letters.put((job, storable(stage, _LONGEST_STAGE), future))
        else:
            self.lose(job, "its time is over")
            future.set_result(False)
        return future

    def stop(self) -> None:
        """Ends the thread after the statement that runs now, if one does."""
        self._stopped = True
        self._letters.put(None)

    # Called in the thread.

    def run(self) -> None:
        """The thread: until `stop`."""
        try:
            while not self._stopped:
                self._read_letters()
                self._give_up_lapsed()
                self._renew()
        except BaseException as error:
            self.crashed = error
        finally:
            for asked in self._asked.values():
                asked.answer(False)
            self._session.close()

    def _read_letters(self) -> None:
        wake = min([self._beat_at, *(job.deadline for job in list(self.held.values()) if not job.settling)])
        if self._asked or self._again:
            wake = min(wake, self._retry_at)
        try:
            letter = self._letters.get(timeout=min(3600.0, max(0.0, wake - elapsed())))
            while True:
                if letter is not None:
                    job, stage, future = letter
                    asked = self._asked.setdefault(job, _Asked(stage))
                    asked.stage = stage
                    asked.waiting.append(future)
                letter = self._letters.get_nowait()
        except queue.Empty:
            pass

    def _give_up_lapsed(self) -> None:
        now = elapsed()
        for job in list(self.held.values()):
            # A job whose completion is under way is the main loop's: it looks at the deadline itself.
            if now >= job.deadline and not job.settling:
                self.lose(job, "its time is over and no heartbeat came through")
        for job in [job for job in self._asked if self.held.get(job.id) is not job]:
            self._asked.pop(job).answer(False)

    def _renew(self) -> None:
        now = elapsed()
        if now < self._retry_at:
            return
        due = self._again | self._asked.keys()
        if now >= self._beat_at:
            self._beat_at = now + self._heartbeat_s
            due |= set(list(self.held.values()))
        if not self._beating():
            due &= self._asked.keys()
        due = {job for job in due if self.held.get(job.id) is job and now < job.deadline}
        self._again = set()
        if due:
            self._send(due)

    def _send(self, due: Iterable[ClaimedJob]) -> None:
        jobs = sorted(due, key=lambda job: job.id)
        asked = {job: self._asked[job] for job in jobs if job in self._asked}
        sent = elapsed()
        try:
            rows = self._session.execute("heartbeat", self._parameters(jobs, asked))
        except TROUBLE as error:
            self._again.update(jobs)
            if isinstance(error, psycopg.DataError) and asked:
                # A stage that this database's encoding cannot hold must not cost the others their lease.
                for job, one in asked.items():
                    self._asked.pop(job)
                    one.refuse(database.in_words(error))
            else:
                self._retry_at = sent + (_AGAIN_S if is_race(error) else self._outage.failed(error))
            return
        self._outage.worked()
        by_id = {job.id: job for job in jobs}
        for id_, _, renewed, held in rows:
            self._answered(by_id[id_], asked, sent, renewed, held)
        self._observer("heartbeat", None)

    def _parameters(self, jobs: list[ClaimedJob], asked: dict[ClaimedJob, _Asked]) -> dict[str, object]:
        return {
            "ids": [job.id for job in jobs],
            "attempts": [job.attempt for job in jobs],
            "stages": [asked[job].stage if job in asked else None for job in jobs],
            "owner": self._owner,
            "ttl": self._ttl,
            "revive": self._revive,
        }

    def _answered(
        self, job: ClaimedJob, asked: dict[ClaimedJob, _Asked], sent: float, renewed: bool, held: bool
    ) -> None:
        if renewed:
            job.deadline = max(job.deadline, sent + self._ttl.total_seconds())
            if job in asked:
                job.stage = asked[job].stage
                self._asked.pop(job).answer(True)
        elif held:
            self._again.add(job)
            self._retry_at = elapsed() + _AGAIN_S
        elif self.held.get(job.id) is job and not job.settling:
            # Where a completion is under way, this may be its success: the main loop's answer decides.
            self.lose(job, "swept, requeued or taken over by somebody else")
            if job in asked:
                self._asked.pop(job).answer(False)
