"""Sweeping: ending expired leases, once (`sweep`) or every so often (`Watcher`).

A sweep is one bounded statement, `sql/sweep.sql`, repeated until it finds less than it may take, each time in
a transaction of its own. It waits for no lock and never touches a live lease, so any number of watchers may
run at once. After each sweep a watcher says in a row of its own that it is alive, which is what the screens
show.
"""

import logging
import os
import queue
import random
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

import psycopg

from leasetop import database, statements
from leasetop.model import Backoff, Policy, Swept
from leasetop.session import TROUBLE, Outage, Session, SettingsError, elapsed, fact, is_race, require_positive
from leasetop.text import safe

LOG = logging.getLogger("leasetop.watcher")

# A sweep that lost a race against others that often in a row has met something else than bad luck.
_MOST_RACES = 20
# Long enough for 500 rows on a busy server, short enough to notice that it hangs.
_PATIENCE = timedelta(seconds=30)
_LOCK = timedelta(seconds=2)


def sweep(
    connection: psycopg.Connection,
    policy: Policy,
    actor: str,
    *,
    batch: int = 500,
    tokens: Sequence[tuple[int, int]] | None = None,
    backoff: Backoff | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Swept]:
    """Ends all leases that are over, or only those of `tokens` (id, attempt), as a preview showed them.

    The connection is in autocommit mode, so that each batch is a transaction of its own; what was swept
    before an error stays swept. `stop` is asked between batches. Raises psycopg's errors.
    """
    backoff = backoff or Backoff()
    parameters = {
        "policy": str(policy),
        "actor": actor,
        "batch": batch,
        "ids": None if tokens is None else [id_ for id_, _ in tokens],
        "attempts": None if tokens is None else [attempt for _, attempt in tokens],
        "backoff": backoff.base,
        "backoff_cap": backoff.cap,
    }
    found: list[Swept] = []
    while True:
        rows = _swept(connection, parameters)
        found += rows
        if len(rows) < batch or stop():
            return found


def _swept(connection: psycopg.Connection, parameters: dict[str, object]) -> list[Swept]:
    for race in range(_MOST_RACES):
        try:
            rows = connection.execute(statements.load("sweep"), parameters).fetchall()
            break
        except psycopg.Error as error:
            if not is_race(error) or race == _MOST_RACES - 1:
                raise
            time.sleep(random.uniform(0.0, 0.02 * (race + 1)))
    return [Swept((str(id_),), status, attempts, most, owner) for id_, status, attempts, most, owner in rows]


class Watcher:
    """Sweeps the home table of `dsn` every `interval` until stopped; lives through restarts of the server.

    `observer(event, number)` hears: swept (how many), outage, stopped.
    """

    def __init__(
        self,
        dsn: str | None,
        *,
        interval: timedelta = timedelta(seconds=30),
        policy: Policy = Policy.REQUEUE,
        name: str | None = None,
        batch: int = 500,
        backoff: Backoff | None = None,
        pooled: bool = False,
        log: logging.Logger = LOG,
        observer: Callable[[str, int], None] | None = None,
    ) -> None:
        require_positive(interval=interval)
        if not 1 <= batch <= 10_000:
            raise SettingsError(f"batch must be from 1 to 10000, not {batch}")
        self.name = name or f"watcher/{os.getpid()}/{secrets.token_hex(4)}"
        if safe(self.name) != self.name or len(self.name) > 200:
            raise SettingsError(f"name must be 1 to 200 visible characters, not '{safe(self.name)}'")
        self._interval, self._policy, self._batch = interval, policy, batch
        self._backoff = backoff or Backoff()
        require_positive(backoff=self._backoff.base, backoff_cap=self._backoff.cap)
        self._log = log
        self._observer = observer or (lambda event, number: None)
        self._session = Session(dsn, "leasetop watcher", patience=_PATIENCE, lock=_LOCK, pooled=pooled)
        interval_s = interval.total_seconds()
        self._outage = Outage(log, "sweeping", min(1.0, interval_s), interval_s)
        # A SimpleQueue: its put is safe in a signal handler, an Event's set is not.
        self._letters: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._stopped = self._proven = False

    def stop(self) -> None:
        """Ends after the batch that runs now. From any thread or signal handler."""
        self._stopped = True
        self._letters.put(None)

    def run(self) -> None:
        """Sweeps until stopped. Raises LeasetopError where the first sweep shows that it cannot work at all."""
        self._session.connection()
        text = f"watching as {self.name}, every {self._interval.total_seconds():g} s, policy {self._policy}"
        self._say(logging.INFO, "started", text, policy=str(self._policy))
        try:
            while not self._stopped:
                self._pause(self._round())
        finally:
            self._take_leave()

    def _round(self) -> float:
        """One sweep; returns how many seconds to wait before the next."""
        began = elapsed()
        try:
            self._sweep()
        except TROUBLE as error:
            if isinstance(error, psycopg.Error) and not self._proven and not self._session.lost:
                raise database.in_words(error) from error
            wait = self._outage.failed(error)
            self._observer("outage", 0)
            return wait
        self._proven = True
        self._outage.worked()
        return max(0.0, self._interval.total_seconds() - (elapsed() - began))

    def _sweep(self) -> None:
        swept = sweep(
            self._session.connection(),
            self._policy,
            self.name,
            batch=self._batch,
            backoff=self._backoff,
            stop=lambda: self._stopped,
        )
        for job in swept:
            text = f"swept job {job.key[0]}, attempt {job.attempts}/{job.max_attempts}: now {job.status}"
            self._say(logging.WARNING, "swept", text, job=int(job.key[0]), attempt=job.attempts, owner=job.owner)
        if not swept:
            self._say(logging.DEBUG, "nothing", "nothing to sweep")
        self._session.execute(
            "watcher_heartbeat",
            {
                "name": self.name,
                "policy": str(self._policy),
                "interval": self._interval,
                "swept": len(swept),
            },
        )
        self._observer("swept", len(swept))

    def _pause(self, seconds: float) -> None:
        with suppress(queue.Empty):
            self._letters.get(timeout=seconds)

    def _take_leave(self) -> None:
        """Its row goes with it; where that fails, the row's age tells the same a little later."""
        with suppress(*TROUBLE):
            self._session.execute("watcher_stop", {"name": self.name})
        self._session.close()
        self._say(logging.INFO, "stopped", f"{self.name} has stopped")
        self._observer("stopped", 0)

    def _say(self, level: int, event: str, text: str, **more: object) -> None:
        fact(self._log, level, event, text, watcher=self.name, **more)
