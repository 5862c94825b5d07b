"""The crash lab: processes are killed, frozen, cut off and restarted at random, and the books must still balance.

Real workers and watchers, a server of their own, SIGKILL, SIGSTOP and SIGCONT, terminated backends, and one restart of
the server without a shutdown. The seed is printed; LEASETOP_SEED replays it (the operating system's own timing is not
replayed). The long form is run with `-m long`.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from leasetop import schema
from leasetop.demo.postgres import EmbeddedPostgres
from tests.conftest import SETTINGS
from tests.protocol.lab_worker import TTL

_TABLES = """
    CREATE TABLE calls (job_id bigint, owner text, attempt int, at timestamptz DEFAULT clock_timestamp());
    CREATE TABLE effects (job_id bigint, owner text, attempt int, at timestamptz DEFAULT clock_timestamp());
"""
# What a restart without a shutdown may not lose: here commits must last.
_LASTING = SETTINGS | {"synchronous_commit": "on"}


@pytest.fixture
def lab_server(short_directory: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(short_directory / "lab", _LASTING) as server:
        with psycopg.connect(server.dsn()) as connection:
            schema.apply(connection)
            connection.execute(_TABLES)
        yield server


@dataclass
class Lab:
    """The processes, and what chance does to them."""

    server: EmbeddedPostgres
    chance: random.Random
    workers: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    watchers: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    frozen: dict[int, float] = field(default_factory=dict)
    """When a frozen process is thawed, on the monotonic clock."""
    done: dict[str, int] = field(default_factory=dict)

    def start_worker(self) -> None:
        self.workers.append(self._start("-m", "tests.protocol.lab_worker", self.server.dsn()))

    def start_watcher(self) -> None:
        words = ("-m", "leasetop", "watch", "--interval", "0.3", "--dsn", self.server.dsn())
        self.watchers.append(self._start(*words))

    def _start(self, *words: str) -> "subprocess.Popen[bytes]":
        here = Path(__file__).parents[2]
        return subprocess.Popen([sys.executable, *words], cwd=here, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        victim = self.workers.pop(self.chance.randrange(len(self.workers)))
        self.frozen.pop(victim.pid, None)
        victim.kill()
        victim.wait()
        self.start_worker()

    def freeze(self) -> None:
        victim = self.chance.choice(self.workers)
        if victim.poll() is not None:
            # Started while the server was away, it has said so and ended: another takes its place.
            self.workers.remove(victim)
            self.start_worker()
        elif victim.pid not in self.frozen:
            victim.send_signal(signal.SIGSTOP)
            # Sometimes for less than the lease, mostly for longer.
            self.frozen[victim.pid] = time.monotonic() + TTL.total_seconds() * self.chance.uniform(0.5, 2.5)

    def thaw(self, all_of_them: bool = False) -> None:
        for pid, at in list(self.frozen.items()):
            if all_of_them or time.monotonic() >= at:
                del self.frozen[pid]
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def cut_off(self) -> None:
        with psycopg.connect(self.server.dsn(), autocommit=True) as connection:
            connection.execute(
                """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE application_name LIKE 'leasetop%%' AND random() < %s""",
                [self.chance.uniform(0.1, 0.6)],
            )

    def restart(self) -> None:
        self.server.restart(immediate=True)

    def act(self, name: str) -> None:
        getattr(self, name)()
        self.done[name] = self.done.get(name, 0) + 1

    def end(self) -> None:
        self.thaw(all_of_them=True)
        for process in (*self.workers, *self.watchers):
            process.terminate()
        for process in (*self.workers, *self.watchers):
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def number(server: EmbeddedPostgres, query: str) -> int:
    """The answer of a query, across a restart of the server."""
    deadline = time.monotonic() + 30
    while True:
        with suppress(psycopg.OperationalError), psycopg.connect(server.dsn(), autocommit=True) as connection:
            row = connection.execute(query.encode()).fetchone()
            assert row is not None
            return int(row[0])
        assert time.monotonic() < deadline, "the server does not come back"


def run(server: EmbeddedPostgres, workers: int, jobs: int, pause_s: float) -> None:
    seed = int(os.environ.get("LEASETOP_SEED", random.randrange(10**6)))
    print(f"crash lab: LEASETOP_SEED={seed}")
    lab = Lab(server, random.Random(seed))
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(
            """INSERT INTO payment_jobs (idempotency_key, amount, currency, max_attempts)
               SELECT 'k' || n, 1, 'EUR', 30 FROM generate_series(1, %s) n""",
            [jobs],
        )
    unfinished = "SELECT count(*) FROM payment_jobs WHERE status NOT IN ('Completed', 'Failed')"
    acts = ["kill", "kill", "freeze", "freeze", "cut_off"]
    try:
        for _ in range(workers):
            lab.start_worker()
        lab.start_watcher()
        lab.start_watcher()
        deadline = time.monotonic() + 300
        restarted = False
        while left := number(server, unfinished):
            assert time.monotonic() < deadline, f"{left} jobs are not done; acts: {lab.done}"
            lab.thaw()
            if left < jobs / 2 and not restarted:
                lab.act("restart")
                restarted = True
            elif left > jobs / 20:
                lab.act(lab.chance.choice(acts))
            # The pace of the chaos; nothing is awaited here.
            time.sleep(lab.chance.uniform(0, pause_s))
    finally:
        lab.end()
    print(f"crash lab: {lab.done}")
    assert lab.done["restart"] == 1
    assert lab.done.get("kill", 0) and lab.done.get("freeze", 0)

    ends = "('completed', 'failed', 'released', 'expired', 'revoked')"
    assert number(server, "SELECT count(*) FROM payment_job_history WHERE event = 'expired'") > 0
    balanced = f"""SELECT count(*) FROM payment_jobs j WHERE j.attempts <> (
                     SELECT count(*) FROM payment_job_history h WHERE h.job_id = j.id AND h.event IN {ends})"""
    assert number(server, balanced) == 0, "an attempt has no end"
    twice = f"""SELECT count(*) FROM (SELECT FROM payment_job_history WHERE event IN {ends}
                 GROUP BY job_id, attempt HAVING count(*) > 1) t"""
    assert number(server, twice) == 0, "an attempt has two ends"
    finished = """SELECT count(*) FROM payment_jobs j WHERE j.status = 'Completed' AND 1 <> (
                    SELECT count(*) FROM payment_job_history h WHERE h.job_id = j.id AND h.event = 'completed')"""
    assert number(server, finished) == 0, "a completed job has not exactly one completion"
    stale = f"""SELECT count(*) FROM effects e JOIN payment_job_history h USING (job_id, attempt)
                 WHERE h.event IN {ends} AND (e.owner <> h.owner OR e.at > h.ended_at)"""
    assert number(server, stale) == 0, "an effect was applied under a stale token"
    unpaid = """SELECT count(*) FROM payment_jobs j WHERE j.status = 'Completed'
                   AND NOT EXISTS (SELECT FROM effects e WHERE e.job_id = j.id)"""
    assert number(server, unpaid) == 0, "a completed job has no effect"
    held = "SELECT count(*) FROM payment_jobs WHERE lease_owner IS NOT NULL OR lease_until IS NOT NULL"
    assert number(server, held) == 0, "a finished job has an owner"


def test_the_books_balance_after_a_short_storm(lab_server: EmbeddedPostgres) -> None:
    run(lab_server, workers=4, jobs=300, pause_s=0.25)


@pytest.mark.long
def test_the_books_balance_after_a_long_storm(lab_server: EmbeddedPostgres) -> None:
    run(lab_server, workers=8, jobs=2_000, pause_s=0.4)
