"""The pretend provider: one charge for each key, however often it is asked and whoever is killed on the way."""

import asyncio
import random
import threading
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace

import psycopg
import pytest

from leasetop.demo import psp, shop
from leasetop.demo.fleet import Condition, Fleet, Pace
from leasetop.demo.psp import Provider
from leasetop.leases import ClaimedJob
from tests.waiting import until


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


async def test_a_worker_killed_after_the_capture_has_charged_for_those_who_come_after(dsn: str) -> None:
    pace = Pace(
        ttl=timedelta(seconds=1.5),
        heartbeat=timedelta(seconds=0.3),
        sweep=timedelta(seconds=0.3),
        backoff=timedelta(seconds=0.1),
        concurrency=8,
    )
    fleet = Fleet(dsn, pace=pace)
    with psycopg.connect(dsn, autocommit=True) as connection:
        shop.enqueue(connection, 8)
        await fleet.start_watcher()
        (first,) = await fleet.spawn(1)
        await _running(fleet)
        await fleet.slow(first, 0.5)
        settling = "status = 'Processing' AND stage = 'settle'"
        await _until_some(connection, f"SELECT count(*) >= 3 FROM payment_jobs WHERE {settling}")
        await fleet.crash(first)
        killed = [row[0] for row in connection.execute(f"SELECT id FROM payment_jobs WHERE {settling}".encode())]
        (second,) = await fleet.spawn(1)
        await fleet.slow(second, 0.3)
        await _until_some(
            connection, "SELECT count(*) = 0 FROM payment_jobs WHERE status NOT IN ('Completed', 'Failed')"
        )
        await fleet.close()
        again = connection.execute(
            """SELECT j.attempts, c.attempt, c.asked
                 FROM payment_jobs j JOIN demo_psp_charges c USING (idempotency_key)
                WHERE j.id = ANY (%s) AND j.status = 'Completed'""",
            [killed],
        ).fetchall()
    assert again, "all were declined afterwards: nothing was shown"
    assert all(attempts > charged and charged == 1 and asked > 1 for attempts, charged, asked in again), again


async def test_nobody_is_charged_twice_though_workers_are_killed_all_the_time(dsn: str) -> None:
    pace = Pace(
        ttl=timedelta(seconds=1.5),
        heartbeat=timedelta(seconds=0.3),
        sweep=timedelta(seconds=0.3),
        backoff=timedelta(seconds=0.1),
        concurrency=8,
    )
    fleet = Fleet(dsn, pace=pace)
    with psycopg.connect(dsn, autocommit=True) as connection:
        shop.enqueue(connection, 40)
        connection.execute("UPDATE payment_jobs SET max_attempts = 50")
        await fleet.start_watcher()
        for _ in range(3):
            spawned = await fleet.spawn(2)
            await _running(fleet)
            for member in spawned:
                await fleet.slow(member, 0.5)
            busy = "SELECT count(*) FROM payment_jobs WHERE stage IN ('capture', 'settle') AND status = 'Processing'"
            await _until_some(connection, busy)
            await fleet.crash(spawned[0])
        open_jobs = "SELECT count(*) = 0 FROM payment_jobs WHERE status NOT IN ('Completed', 'Failed')"
        await _until_some(connection, open_jobs)
        await fleet.close()
        uncharged = """SELECT count(*) FROM payment_jobs j LEFT JOIN demo_psp_charges c USING (idempotency_key)
                        WHERE j.status = 'Completed' AND c.idempotency_key IS NULL"""
        assert connection.execute(uncharged).fetchone() == (0,)
        again = connection.execute("SELECT count(*) FROM payment_job_history WHERE event = 'expired'").fetchone()
        assert again is not None
        assert again[0] > 0, "no lease was lost: nothing was shown"


async def _running(fleet: Fleet) -> None:
    async with asyncio.timeout(15):
        await fleet.until(lambda members: all(one.state is Condition.RUNNING for one in members if one.alive))


async def _until_some(connection: psycopg.Connection, query: str) -> None:
    for _ in range(4000):
        row = connection.execute(query.encode()).fetchone()
        if row is not None and row[0]:
            return
        # The fleet's pipes are read by this loop meanwhile.
        await asyncio.sleep(0.01)
    raise AssertionError(f"never: {query}")
