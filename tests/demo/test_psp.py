"""The pretend provider: one charge for each key, however often it is asked and whoever is killed on the way."""

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from leasetop.demo import psp, shop
from leasetop.demo.fleet import Condition, Fleet, Pace
from leasetop.demo.psp import Provider
from leasetop.leases import ClaimedJob
from tests.demo.chances import set_chances
from tests.waiting import until

PACE = Pace(
    ttl=timedelta(seconds=1.5),
    heartbeat=timedelta(seconds=0.3),
    sweep=timedelta(seconds=0.3),
    backoff=timedelta(seconds=0.1),
    concurrency=8,
)
ALL_COMPLETED = "SELECT count(*) = 0 FROM payment_jobs WHERE status <> 'Completed'"
# Completed without a charge, or a charge without a job.
UNPAID = """
    SELECT j.id, c.job_id FROM payment_jobs j FULL JOIN demo_psp_charges c USING (idempotency_key)
     WHERE j.id IS DISTINCT FROM c.job_id OR (j.amount, j.currency) IS DISTINCT FROM (c.amount, c.currency)
"""
_PATIENCE_S = 60.0


@pytest.fixture
def provider(dsn: str) -> Iterator[Provider]:
    made = Provider(dsn)
    made.prepare()
    made.slowness = 0.0
    yield made
    if made._book is not None:
        made._book.close()


def a_job(attempt: int) -> ClaimedJob:
    return SimpleNamespace(  # type: ignore[return-value]
        id=7, attempt=attempt, owner="w", idempotency_key="k", amount=5, currency="EUR"
    )


def test_the_same_key_is_charged_once_and_then_answered_from_the_book(provider: Provider, dsn: str) -> None:
    for attempt in (1, 2, 3):
        provider._charge(a_job(attempt))
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT count(*), min(attempt), min(asked) FROM demo_psp_charges").fetchone()
    assert row == (1, 1, 3)


def test_all_handlers_of_a_process_share_one_connection(provider: Provider, dsn: str) -> None:
    threads = [threading.Thread(target=provider._charge, args=[a_job(attempt)]) for attempt in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ask = """SELECT (SELECT asked FROM demo_psp_charges), count(*) FROM pg_stat_activity
              WHERE datname = current_database() AND application_name = 'leasetop psp'"""
    with psycopg.connect(dsn, autocommit=True) as connection:
        # The connection of `prepare` is closed on our side; the server notices a moment later.
        until(lambda: connection.execute(ask).fetchone() == (3, 1))


def test_a_provider_that_is_away_is_worth_another_attempt(provider: Provider, dsn: str) -> None:
    provider._charge(a_job(1))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = 'leasetop psp'"""
        )
    with pytest.raises(psp.ProviderTimeout, match="the provider is away"):
        provider._charge(a_job(2))
    provider._charge(a_job(3))


def test_a_lost_lease_before_the_capture_moves_no_money(provider: Provider, dsn: str) -> None:
    def reached(stage: str) -> None:
        if stage == "capture":
            raise psp.LeaseLost

    random.seed(1)
    with pytest.raises(psp.LeaseLost):
        provider.pay(SimpleNamespace(id=7, reached=reached))  # type: ignore[arg-type]
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM demo_psp_charges").fetchone() == (0,)


async def test_a_worker_killed_after_the_capture_has_charged_for_those_who_come_after(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_chances(tmp_path, monkeypatch)
    fleet = Fleet(dsn, pace=PACE)
    with psycopg.connect(dsn, autocommit=True) as connection:
        try:
            shop.enqueue(connection, 8)
            await fleet.start_watcher()
            (first,) = await fleet.spawn(1)
            await _running(fleet)
            settling = "status = 'Processing' AND stage = 'settle'"
            await _until_so(connection, f"SELECT count(*) >= 3 FROM payment_jobs WHERE {settling}")
            await fleet.crash(first)
            await fleet.until(lambda members: not any(one.alive for one in members if one.pid == first.pid))
            killed = [row[0] for row in connection.execute(f"SELECT id FROM payment_jobs WHERE {settling}".encode())]
            assert killed, "it had completed them all: nothing was shown"
            (second,) = await fleet.spawn(1)
            await fleet.slow(second, 0.3)
            await _until_so(connection, ALL_COMPLETED)
        finally:
            await fleet.close()
        again = connection.execute(
            """SELECT j.attempts, c.attempt, c.asked
                 FROM payment_jobs j JOIN demo_psp_charges c USING (idempotency_key)
                WHERE j.id = ANY (%s)""",
            [killed],
        ).fetchall()
        assert connection.execute(UNPAID).fetchall() == []
    assert len(again) == len(killed)
    assert all(attempts > charged and charged == 1 and asked > 1 for attempts, charged, asked in again), again


async def test_nobody_is_charged_twice_though_workers_are_killed_all_the_time(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_chances(tmp_path, monkeypatch, timed_out=0.2)
    fleet, killed = Fleet(dsn, pace=PACE), set[str]()
    with psycopg.connect(dsn, autocommit=True) as connection:
        try:
            shop.enqueue(connection, 40)
            connection.execute("UPDATE payment_jobs SET max_attempts = 50")
            await fleet.start_watcher()
            await fleet.spawn(4)
            await _running(fleet)
            for _ in range(3):
                killed.add(await _kill_the_busiest(fleet, connection, killed))
                await fleet.spawn(1)
            # What comes now shows nothing more when it takes longer.
            for member in fleet.members:
                if member.alive and member.owner not in killed:
                    await fleet.slow(member, 0.3)
            await _until_so(connection, ALL_COMPLETED)
        finally:
            await fleet.close()
        assert connection.execute(UNPAID).fetchall() == []
        charges = connection.execute("SELECT count(*), count(DISTINCT idempotency_key) FROM demo_psp_charges")
        assert charges.fetchone() == (40, 40)
        lost = connection.execute("SELECT DISTINCT owner FROM payment_job_history WHERE event = 'expired'")
        assert killed <= {owner for (owner,) in lost}
        asked_again = connection.execute("SELECT count(*) FROM demo_psp_charges WHERE asked > 1").fetchone()
        assert asked_again is not None
        assert asked_again[0] > 0, "nothing was asked for twice: nothing was shown"


async def _running(fleet: Fleet) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        await fleet.until(lambda members: all(one.state is Condition.RUNNING for one in members if one.alive))


async def _kill_the_busiest(fleet: Fleet, connection: psycopg.Connection, killed: set[str]) -> str:
    """Kills the worker with the most payments that are captured and not told so yet, and says whose it was."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        living = {one.owner: one for one in fleet.members if one.alive and one.owner and one.owner not in killed}
        busiest = connection.execute(
            """SELECT lease_owner FROM payment_jobs
                WHERE status = 'Processing' AND stage = 'settle' AND lease_owner = ANY (%s)
                GROUP BY lease_owner ORDER BY count(*) DESC LIMIT 1""",
            [list(living)],
        ).fetchone()
        if busiest is not None:
            await fleet.crash(living[busiest[0]])
            return str(busiest[0])
        await asyncio.sleep(0.01)
    raise AssertionError("no worker was ever busy")


async def _until_so(connection: psycopg.Connection, query: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        row = connection.execute(query.encode()).fetchone()
        if row is not None and row[0]:
            return
        # The fleet's pipes are read by this loop meanwhile.
        await asyncio.sleep(0.01)
    raise AssertionError(f"never: {query}")
