"""A pretend payment provider, and the handler that pays with it: authorize, capture, settle.

It answers late, declines, and times out, as providers do; a time-out may come after the money has moved. It takes
idempotency keys: one charge for each, however often it is asked. Its book is a table of the same database, so that one
can see that no customer was charged twice.
"""

import random
import threading
import time

import psycopg

from leasetop import statements
from leasetop.database import connect, in_words
from leasetop.errors import Unreachable
from leasetop.leases import ClaimedJob, LeaseLost
from leasetop.worker import PermanentFailure

# Stage, and its typical seconds.
_STAGES = (("authorize", 0.5), ("capture", 1.2), ("settle", 0.8))
_DECLINED = 0.03
_TIMED_OUT = 0.04
_DECLINES = ("insufficient funds", "do not honor", "card expired", "suspected fraud")


class ProviderTimeout(Exception):
    """No answer; whether the money has moved is unknown. Worth another attempt with the same key."""


class Provider:
    """The provider as one worker process sees it; `slowness` stretches every wait."""

    def __init__(self, dsn: str | None) -> None:
        self.slowness = 1.0
        self._dsn = dsn
        # One connection for all handlers of a process: a fleet of twenty must leave room for the screen and psql.
        self._book: psycopg.Connection | None = None
        self._turn = threading.Lock()

    def prepare(self) -> None:
        """Opens the provider's book where there is none. Raises LeasetopError."""
        try:
            with connect(self._dsn, "leasetop psp") as connection, connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(hashtext('leasetop init'))")
                connection.execute(statements.text("demo").encode())
        except psycopg.Error as error:
            raise in_words(error) from error

    def pay(self, job: ClaimedJob) -> None:
        """The worker's handler."""
        authorize, capture, settle = _STAGES
        self._step(job, *authorize)
        if random.random() < _DECLINED:
            raise PermanentFailure(f"card declined: {random.choice(_DECLINES)}")
        self._step(job, *capture)
        lost_on_the_way = random.random() < _TIMED_OUT
        if lost_on_the_way and random.random() < 0.5:
            raise ProviderTimeout("capture: no answer within 10 s")
        self._charge(job)
        if lost_on_the_way:
            raise ProviderTimeout("capture: the answer was lost on the way")
        try:
            self._step(job, *settle)
        except LeaseLost:
            # The money has moved: there is nothing to abort any more. The worker finds its completion refused, and
            # the history keeps that.
            return

    def _step(self, job: ClaimedJob, stage: str, typical_s: float) -> None:
        job.reached(stage)
        time.sleep(typical_s * random.lognormvariate(0, 0.4) * self.slowness)

    def _charge(self, job: ClaimedJob) -> None:
        asked = {
            "idempotency_key": job.idempotency_key,
            "job_id": job.id,
            "attempt": job.attempt,
            "owner": job.owner,
            "amount": job.amount,
            "currency": job.currency,
        }
        try:
            with self._turn:
                if self._book is None or self._book.closed:
                    self._book = connect(self._dsn, "leasetop psp")
                self._book.execute(statements.load("demo_charge"), asked)
        except (psycopg.OperationalError, Unreachable) as error:
            raise ProviderTimeout("capture: the provider is away") from error
