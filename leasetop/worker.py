"""The worker: claims jobs, runs a handler on each, and records how it ended, under the protocol of `sql/`.

Synchronous: one connection and one loop for claims and ends (endings.py), a thread with a connection of its
own for heartbeats (leases.py), and handlers wherever they suit (runners.py). A job is written to only while
its lease is held, which is looked at before every single write; whatever the database says or does not say,
the loop goes on.
"""

import asyncio
import inspect
import logging
import os
import random
import secrets
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeGuard

import psycopg

from leasetop import database
from leasetop.endings import Endings, PermanentFailure
from leasetop.leases import ClaimedJob, Keeper, LeaseLost, Observer
from leasetop.model import Policy
from leasetop.runners import Inline, Interrupted, Result, Runner, Tasks, Threads
from leasetop.session import TROUBLE, Outage, Session, SettingsError, elapsed, fact, is_race, require_positive
from leasetop.text import safe

__all__ = [
    "ClaimedJob",
    "LeaseLost",
    "PermanentFailure",
    "Settings",
    "SettingsError",
    "Worker",
    "owner_name",
]

Handler = Callable[[ClaimedJob], object] | Callable[[ClaimedJob], Awaitable[object]]

LOG = logging.getLogger("leasetop.worker")

_LONGEST_OUTAGE_S = 5.0
# A claim that met a lock or a serialization failure lost the race: it looks again after at most this.
_RACE_S = 0.01
# How often a handler in the main thread is woken, while the worker stops, to see whether its time is over.
_NUDGE_S = 0.25
# How long the last writes may take altogether, once the worker is over.
_FAREWELL_S = 3.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How a worker works. Raises SettingsError for what cannot be."""

    name: str = "worker"
    """First part of the owner's name."""
    concurrency: int = 1
    """How many handlers run at once. With 1, a plain handler runs in the thread that called `run`."""
    batch: int = 1
    """The most jobs of one claim. They wait their turn only with concurrency 1 and a plain handler."""
    ttl: timedelta = timedelta(seconds=60)
    heartbeat: timedelta | None = None
    """None: a third of the TTL."""
    policy: Policy = Policy.REQUEUE
    takeover: bool = True
    """Under `requeue`: take over expired leases; False leaves them to the watcher. Never under `park`."""
    backoff: timedelta = timedelta(seconds=2)
    backoff_cap: timedelta = timedelta(minutes=5)
    poll: timedelta = timedelta(seconds=0.5)
    """How often to look for jobs when there were none; with jitter."""
    drain: timedelta = timedelta(seconds=30)
    """How long running jobs may take to finish once the worker is told to stop."""
    pooled: bool = False
    """A transaction pooler is in between: no prepared statements, no session settings."""

    def __post_init__(self) -> None:
        require_positive(
            ttl=self.ttl,
            heartbeat=self.beat,
            backoff=self.backoff,
            backoff_cap=self.backoff_cap,
            poll=self.poll,
        )
        if self.beat * 2 > self.ttl:
            raise SettingsError(f"heartbeat ({self.beat}) must be at most half of ttl ({self.ttl}): one may fail")
        if self.drain < timedelta(0):
            raise SettingsError("drain must not be negative")
        for field, value, most in (("concurrency", self.concurrency, 1000), ("batch", self.batch, 1000)):
            if not 1 <= value <= most:
                raise SettingsError(f"{field} must be from 1 to {most}, not {value}")
        if not self.name or len(self.name) > 100 or "/" in self.name or safe(self.name) != self.name:
            raise SettingsError(f"name must be 1 to 100 visible characters without a slash, not '{safe(self.name)}'")

    @property
    def beat(self) -> timedelta:
        """The heartbeat, given or derived."""
        return self.ttl / 3 if self.heartbeat is None else self.heartbeat


def owner_name(prefix: str) -> str:
    """`prefix/pid/random`: unique for each start of a process, so that no token is ever used by two."""
    return f"{prefix}/{os.getpid()}/{secrets.token_hex(4)}"


class Worker:
    """Works on the home table of `dsn` until stopped.

    The handler gets one ClaimedJob a call. Returning completes the job; PermanentFailure fails it for good;
    any other exception fails the attempt. An async handler runs on an event loop of the worker's; it is
    cancelled when its lease is lost.

    `observer(event, job id)` hears: claimed, heartbeat, completed, refused, late, failed, lost, released,
    left (to expire), idle, stopped. It is called in the worker's threads, and must be quick.
    """

    def __init__(
        self,
        dsn: str | None,
        handler: Handler,
        settings: Settings | None = None,
        *,
        log: logging.Logger = LOG,
        observer: Observer | None = None,
    ) -> None:
        self.settings = settings = settings or Settings()
        self.owner = owner_name(settings.name)
        self.heartbeats_on = True
        """Off: nothing is renewed, and leases run out under the handlers. For demonstrations."""
        self._log = log
        self._observer = observer or _nobody
        self._session = self._new_session(dsn, "leasetop worker")
        self._keeper = Keeper(
            self._new_session(dsn, "leasetop heartbeats"),
            self.owner,
            ttl=settings.ttl,
            heartbeat=settings.beat,
            revive=settings.policy is Policy.REQUEUE,
            log=log,
            beating=lambda: self.heartbeats_on,
            on_lost=lambda job: self._runner.abort(job),
            observer=self._observer,
        )
        self._outage = Outage(log, "the database", 0.1, _LONGEST_OUTAGE_S)
        self._endings = Endings(
            self._session,
            self._keeper,
            self._outage,
            backoff=settings.backoff,
            backoff_cap=settings.backoff_cap,
            log=log,
            observer=self._observer,
        )
        self._runner = self._new_runner(handler)
        self._claims: dict[str, object] = {
            "owner": self.owner,
            "takeover": settings.takeover and settings.policy is Policy.REQUEUE,
            "ttl": f"{settings.ttl.total_seconds()} s",
        }
        self._proven = False
        self._claim_at = 0.0
        self._stops = 0
        self._drain_until = float("inf")
        self._nudging = False
        self._ended = False

    def _new_session(self, dsn: str | None, application: str) -> Session:
        ttl = self.settings.ttl
        # An answer after the lease is of no use; and one row that somebody keeps locked must not hold up the
        # rest.
        lock = min(ttl / 10, timedelta(seconds=2))
        return Session(dsn, application, patience=ttl, lock=lock, pooled=self.settings.pooled)

    def _new_runner(self, handler: Handler) -> Runner:
        if _is_async(handler):
            return Tasks(handler, self.settings.concurrency, self._endings.lapsed)
        if self.settings.concurrency == 1:
            return Inline(handler, self.settings.batch)
        return Threads(handler, self.settings.concurrency)

    # Stopping.

    def stop(self) -> None:
        """No more claims; running jobs have `drain` to finish. Again: at once. From any thread or signal."""
        self._stops += 1
        if self._stops == 1:
            self._drain_until = elapsed() + self.settings.drain.total_seconds()
        self._runner.halt()

    def stop_on_signals(self) -> None:
        """SIGTERM and SIGINT stop this worker, a second one at once. For a worker in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: self._on_signal())
        if isinstance(self._runner, Inline):
            signal.signal(signal.SIGURG, lambda number, frame: self._cut_off())
            nudges, wakes = socket.socketpair()
            wakes.setblocking(False)
            signal.set_wakeup_fd(wakes.detach(), warn_on_full_buffer=False)
            self._nudging, main = True, threading.get_ident()
            threading.Thread(target=self._nudge, args=[main, nudges], name="leasetop-signals", daemon=True).start()

    def _on_signal(self) -> None:
        self.stop()
        self._cut_off()

    def _cut_off(self) -> None:
        if isinstance(self._runner, Inline) and (self._stops > 1 or elapsed() >= self._drain_until):
            self._runner.interrupt()

    def _nudge(self, main: int, nudges: socket.socket) -> None:
        """Wakes the main thread, which may be asleep in a handler, until it has ended: at the latest after `drain`.

        A signal that arrives just before that sleep begins, or that the kernel gave to another thread, wakes nobody,
        and Python does not look at it before the handler returns. SIGURG, since it does nothing where nobody asked.
        """
        # The bytes are the numbers of all signals that arrive; no bytes: the worker has ended without one.
        while (numbers := nudges.recv(64)) and not {signal.SIGTERM, signal.SIGINT} & set(numbers):
            pass
        while not self._ended:
            signal.pthread_kill(main, signal.SIGURG)
            left = self._drain_until - elapsed()
            time.sleep(min(_NUDGE_S, left) if left > 0 else _NUDGE_S)

    @property
    def _over(self) -> bool:
        if not self._stops:
            return False
        pending = self._runner.busy or self._endings.waiting
        return not pending or self._stops > 1 or elapsed() >= self._drain_until

    # The loop.

    def run(self) -> None:
        """Works until stopped. Raises LeasetopError where connection or first claim say that it cannot."""
        self._session.connection()
        self._keeper.connect()
        fact(self._log, logging.INFO, "started", f"working as {self.owner}", owner=self.owner)
        self._keeper.start()
        try:
            while not self._over:
                if self._keeper.crashed is not None:
                    raise RuntimeError("the thread of the heartbeats has ended") from self._keeper.crashed
                self._runner.start(self._claim())
                self._settle(self._runner.finished(self._patience()))
        finally:
            self._wind_down()

    def _room(self) -> int:
        """How many jobs to claim now: none while ends pile up that cannot be recorded."""
        room = min(self._runner.free, self.settings.batch)
        return 0 if self._stops or self._endings.waiting > self.settings.concurrency + room else room

    def _claim(self) -> list[ClaimedJob]:
        room, sent = self._room(), elapsed()
        if not room or sent < self._claim_at:
            return []
        try:
            rows = self._session.execute("claim", self._claims | {"batch": room})
        except TROUBLE as error:
            self._claim_at = elapsed() + self._unclaimed(error)
            return []
        self._proven = True
        self._outage.worked()
        if len(rows) < room:
            self._claim_at = elapsed() + self.settings.poll.total_seconds() * random.uniform(0.5, 1.5)
        deadline = sent + self.settings.ttl.total_seconds()
        jobs = [ClaimedJob(row, deadline, self._keeper) for row in rows]
        self._hold(jobs)
        if not jobs and not self._runner.busy:
            self._observer("idle", None)
        return jobs

    def _hold(self, jobs: list[ClaimedJob]) -> None:
        held = self._keeper.held
        for job in jobs:
            if job.id in held:
                self._keeper.lose(held[job.id], "expired, and claimed anew by this worker itself")
            held[job.id] = job
            self._observer("claimed", job.id)
        if jobs:
            self._log.debug("claimed %d", len(jobs), extra={"event": "claimed", "jobs": len(jobs)})

    def _unclaimed(self, error: BaseException) -> float:
        """Seconds to wait after a claim that failed."""
        if is_race(error):
            return random.uniform(0.0, _RACE_S)
        if not self._proven and isinstance(error, psycopg.Error) and not self._session.lost:
            raise database.in_words(error) from error
        return self._outage.failed(error)

    def _patience(self) -> float:
        """How long to wait for results before there is something else to do."""
        now = elapsed()
        wake = min(now + 1.0, self._drain_until, self._endings.next_at)
        if self._room():
            wake = min(wake, self._claim_at)
        return max(0.0, wake - now)

    def _settle(self, results: list[Result]) -> None:
        for job, error in results:
            if isinstance(error, LeaseLost):
                self._endings.lapsed(job)
            elif not (self._stops and isinstance(error, Interrupted | asyncio.CancelledError)):
                self._endings.add(job, error)
        if elapsed() >= self._endings.next_at:
            self._endings.write()

    # The end.

    def _wind_down(self) -> None:
        self._stops += 1  # for an exception that got here without stop(): what is cut off now has not failed
        try:
            self._runner.close()
            self._settle(self._runner.finished(0.0))
            self._bid_farewell()
        finally:
            self._ended = True
            if self._nudging:
                os.close(signal.set_wakeup_fd(-1))
            self._keeper.stop()
            self._keeper.join(1.0)
            self._session.close()
            fact(self._log, logging.INFO, "stopped", f"{self.owner} has stopped", owner=self.owner)
            self._observer("stopped", None)

    def _bid_farewell(self) -> None:
        """Records what has ended, gives the rest back. Not for long: leases expire by themselves."""
        until = elapsed() + _FAREWELL_S
        while self._endings.waiting and elapsed() < until:
            self._runner.finished(max(0.0, min(self._endings.next_at, until) - elapsed()))
            self._endings.write()
        back = self._unfinished()
        while back := [job for job in back if elapsed() < min(job.deadline, until)]:
            back = self._endings.release(back)
            if back:
                self._runner.finished(0.1)

    def _unfinished(self) -> list[ClaimedJob]:
        """The jobs to give back. Under `park`, one that was begun is left: nobody knows how far it got."""
        back = []
        for job in list(self._keeper.held.values()):
            if job.settling or not job.held():
                continue
            job.lost = True  # its handler may still run: it is told, and nothing more is written for it
            self._keeper.drop(job)
            if job.started and self.settings.policy is Policy.PARK:
                text = f"job {job.id}, attempt {job.attempt}: begun, and so left to expire and be parked"
                self._endings.say(logging.WARNING, "left", text, job)
                self._observer("left", job.id)
            else:
                back.append(job)
        return back


def _is_async(handler: Handler) -> TypeGuard[Callable[[ClaimedJob], Awaitable[object]]]:
    # An object with an async __call__ is an async handler, too; functools.partial is seen through.
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


def _nobody(event: str, job: int | None) -> None:
    pass
