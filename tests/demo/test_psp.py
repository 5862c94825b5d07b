"""The pretend provider: one charge for each key, however often it is asked and whoever is killed on the way."""

import random
from datetime import timedelta
from types import SimpleNamespace

import psycopg
import pytest

from leasetop.demo import psp, shop
from leasetop.demo.fleet import Condition, Fleet, Pace
from leasetop.demo.psp import Provider


@pytest.fixture
def provider(dsn: str) -> Provider:
    made = Provider(dsn)
    made.prepare()
    made.slowness = 0.0
    return made


def test_the_same_key_is_charged_once_and_then_answered_from_the_book(provider: Provider, dsn: str) -> None:
    for attempt in (1, 2, 3):
        provider._charge(
            SimpleNamespace(id=7, attempt=attempt, owner="w", idempotency_key="k", amount=5, currency="EUR")  # type: ignore[arg-type]
        )
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT count(*), min(attempt), min(asked) FROM demo_psp_charges").fetchone()
    assert row == (1, 1, 3)
    provider._line().close()


def test_a_lost_lease_before_the_capture_moves_no_money(provider: Provider, dsn: str) -> None:
    def reached(stage: str) -> None:
        if stage == "capture":
            raise psp.LeaseLost

    random.seed(1)
    with pytest.raises(psp.LeaseLost):
        provider.pay(SimpleNamespace(id=7, reached=reached))  # type: ignore[arg-type]
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM demo_psp_charges").fetchone() == (0,)


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
            await fleet.until(
                lambda members, pids=[one.pid for one in spawned]: all(
                    one.state is Condition.RUNNING for one in members if one.pid in pids
                )
            )
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


async def _until_some(connection: psycopg.Connection, query: str) -> None:
    import asyncio

    for _ in range(4000):
        row = connection.execute(query.encode()).fetchone()
        if row is not None and row[0]:
            return
        # The fleet's pipes are read by this loop meanwhile.
        await asyncio.sleep(0.01)
    raise AssertionError(f"never: {query}")
