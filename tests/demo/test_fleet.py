"""The fleet: real processes and real signals, and nothing left behind whatever ends the screen."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from leasetop.demo import fleet as module
from leasetop.demo import shop
from leasetop.demo.fleet import Condition, Fleet, FleetError, Member, Pace, Role
from tests.waiting import gone, until

with_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only /proc tells it")

# A machine may be busy; what never comes about takes this long to say so.
_PATIENCE_S = 60.0

PACE = Pace(
    ttl=timedelta(seconds=2),
    heartbeat=timedelta(seconds=0.4),
    sweep=timedelta(seconds=0.5),
    backoff=timedelta(seconds=0.1),
    drain=timedelta(seconds=1),
    rate=20,
    concurrency=2,
)


@pytest.fixture
async def fleet(dsn: str) -> AsyncIterator[Fleet]:
    made = Fleet(dsn, pace=PACE)
    yield made
    await made.close()


def is_now(member: Member, **wanted: object) -> Callable[[tuple[Member, ...]], bool]:
    """For `Fleet.until`: that process is as wanted."""
    return lambda members: any(
        one.pid == member.pid and all(getattr(one, name) == value for name, value in wanted.items()) for one in members
    )


async def seen(fleet: Fleet, member: Member, **wanted: object) -> Member:
    """That process, once it is as wanted."""
    async with asyncio.timeout(_PATIENCE_S):
        members = await fleet.until(is_now(member, **wanted))
    return next(one for one in members if one.pid == member.pid)


async def a_worker(fleet: Fleet) -> Member:
    (member,) = await fleet.spawn(1)
    return await seen(fleet, member, state=Condition.RUNNING)


async def test_a_spawned_worker_is_a_process_with_the_name_of_an_owner(fleet: Fleet) -> None:
    member = await a_worker(fleet)
    assert member.role is Role.WORKER
    assert member.owner is not None
    assert member.owner.split("/")[1] == str(member.pid)
    assert not gone(member.pid)


async def test_a_crashed_worker_says_by_what(fleet: Fleet) -> None:
    member = await a_worker(fleet)
    await fleet.crash(member)
    crashed = await seen(fleet, member, state=Condition.CRASHED, last_event="killed by SIGKILL")
    assert not crashed.alive
    assert gone(member.pid)


async def test_nothing_is_done_to_a_process_that_has_ended(fleet: Fleet) -> None:
    (member,) = await fleet.spawn(1)
    await fleet.crash(member)
    ended = await seen(fleet, member, state=Condition.CRASHED)
    acts: list[Callable[[], Awaitable[None]]] = [
        lambda: fleet.crash(member),
        lambda: fleet.freeze(member),
        lambda: fleet.thaw(member),
        lambda: fleet.stop(member),
        lambda: fleet.slow(member, 2.0),
        lambda: fleet.heartbeat(member, False),
    ]
    for act in acts:
        with pytest.raises(FleetError, match=f"process {member.pid} has ended already"):
            await act()
    assert fleet.members == (ended,)


async def test_a_frozen_worker_is_seen_frozen_and_thaws(fleet: Fleet) -> None:
    member = await a_worker(fleet)
    await fleet.freeze(member)
    await seen(fleet, member, state=Condition.FROZEN)
    await fleet.thaw(member)
    await seen(fleet, member, state=Condition.RUNNING)


@with_proc
async def test_a_worker_that_somebody_else_froze_is_seen_frozen(fleet: Fleet) -> None:
    member = await a_worker(fleet)
    os.kill(member.pid, signal.SIGSTOP)
    await seen(fleet, member, state=Condition.FROZEN)
    os.kill(member.pid, signal.SIGCONT)
    await seen(fleet, member, state=Condition.RUNNING)


async def test_without_proc_a_worker_is_frozen_by_our_own_word(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasetop.demo.fleet._is_stopped", lambda pid: None)
    member = await a_worker(fleet)
    await fleet.freeze(member)
    assert is_now(member, state=Condition.FROZEN)(fleet.members)
    await fleet.thaw(member)
    assert is_now(member, state=Condition.RUNNING)(fleet.members)


async def test_a_stopped_worker_ends_by_itself(fleet: Fleet) -> None:
    member = await a_worker(fleet)
    await fleet.stop(member)
    await seen(fleet, member, state=Condition.EXITED, last_event="exit status 0")


async def test_a_worker_stopped_before_it_was_ready_has_not_crashed(fleet: Fleet) -> None:
    (member,) = await fleet.spawn(1)
    await fleet.stop(member)
    await seen(fleet, member, state=Condition.EXITED)


async def test_a_stopping_worker_is_still_stopping_after_a_freeze(fleet: Fleet, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        member = await a_worker(fleet)
        await fleet.slow(member, 60.0)
        shop.enqueue(connection, 1)
        held = "SELECT count(*) FROM payment_jobs WHERE status = 'Processing'"
        until(lambda: (connection.execute(held).fetchone() or (0,))[0], _PATIENCE_S)
    await fleet.stop(member)
    await fleet.freeze(member)
    await seen(fleet, member, state=Condition.FROZEN)
    await fleet.thaw(member)
    await seen(fleet, member, state=Condition.STOPPING)
    await seen(fleet, member, state=Condition.EXITED)


async def test_a_slow_worker_and_a_mute_one_are_marked(fleet: Fleet) -> None:
    member = await a_worker(fleet)
    await fleet.slow(member, 8.0)
    await fleet.heartbeat(member, False)
    assert is_now(member, slow=8.0, heartbeat=False)(fleet.members)
    await fleet.slow(member, 1.0)
    await fleet.heartbeat(member, True)
    assert is_now(member, slow=1.0, heartbeat=True)(fleet.members)


async def test_a_mute_worker_loses_its_leases(fleet: Fleet, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        await fleet.start_watcher()
        member = await a_worker(fleet)
        await fleet.slow(member, 20.0)
        await fleet.heartbeat(member, False)
        shop.enqueue(connection, 2)
        async with asyncio.timeout(_PATIENCE_S):
            await fleet.until(lambda members: any("lease lost" in (one.last_event or "") for one in members))
        lost = "SELECT count(*) FROM payment_job_history WHERE event = 'expired' AND owner = %s"
        until(lambda: (connection.execute(lost, [member.owner]).fetchone() or (0,))[0], _PATIENCE_S)


async def test_a_worker_that_cannot_work_says_why(dsn: str) -> None:
    fleet = Fleet(make_conninfo(dsn, dbname="nowhere"), pace=PACE)
    (member,) = await fleet.spawn(1)
    crashed = await seen(fleet, member, state=Condition.CRASHED)
    assert 'database "nowhere" does not exist' in (crashed.last_event or "")
    await fleet.close()


async def test_what_lies_in_the_working_directory_is_not_imported(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    await a_worker(fleet)


def test_an_installed_leasetop_is_not_put_before_the_standard_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    here = Path(module.__file__).parents[2]
    monkeypatch.setattr("site.getsitepackages", lambda: [])
    assert module._interpreter()[1]["PYTHONPATH"] == str(here)
    monkeypatch.setattr("site.getsitepackages", lambda: [str(here)])
    assert "PYTHONPATH" not in module._interpreter()[1]


async def test_a_line_that_is_no_fact_does_not_deafen_the_fleet() -> None:
    said = """print('3'); print('{"cut": '); print('x' * 200_000); print('{"event": "back"}')"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", said, stdout=asyncio.subprocess.PIPE)
    assert [fact async for fact in module._facts(process)] == [{"event": "back"}]
    await process.wait()


async def test_the_shop_goes_on_after_its_connection_was_cut(fleet: Fleet, dsn: str) -> None:
    member = await fleet.start_shop()
    with psycopg.connect(dsn, autocommit=True) as connection:
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasetop shop'"
        until(lambda: connection.execute(cut).fetchone(), _PATIENCE_S)
        await seen(fleet, member, last_event="enqueues again")


async def test_a_shop_that_cannot_enqueue_says_why(dsn: str) -> None:
    fleet = Fleet(make_conninfo(dsn, options="-c default_transaction_read_only=on"), pace=PACE)
    try:
        await fleet.start_shop()
        async with asyncio.timeout(_PATIENCE_S):
            await fleet.until(lambda members: "this connection is read-only" in (members[0].last_event or ""))
    finally:
        await fleet.close()


def test_the_shop_waits_while_nobody_works(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shop, "_MOST_WAITING", 3)
    with psycopg.connect(dsn, autocommit=True) as connection:
        shop.enqueue(connection, 2)
        assert shop.Shop(dsn, 1.0)._has_room(connection)
        shop.enqueue(connection, 1)
        assert not shop.Shop(dsn, 1.0)._has_room(connection)


@with_proc
async def test_a_password_is_neither_in_the_arguments_nor_in_the_environment(dsn: str) -> None:
    fleet = Fleet(make_conninfo(dsn, password="geheim"), pace=PACE)
    try:
        await asyncio.gather(fleet.start_watcher(), fleet.start_shop(), fleet.spawn(1))
        async with asyncio.timeout(_PATIENCE_S):
            members = await fleet.until(lambda all_of: all(one.state is Condition.RUNNING for one in all_of))
        assert fleet._guard is not None
        for pid in (fleet._guard.pid, *(member.pid for member in members)):
            # Both are empty once a process has ended, and would show nothing.
            assert b"demo" in Path(f"/proc/{pid}/cmdline").read_bytes()
            for what in ("cmdline", "environ"):
                assert b"geheim" not in Path(f"/proc/{pid}/{what}").read_bytes()
    finally:
        await fleet.close()


async def test_closing_ends_frozen_processes_too(dsn: str) -> None:
    fleet = Fleet(dsn, pace=PACE)
    frozen, other = await a_worker(fleet), await a_worker(fleet)
    await fleet.start_shop()
    await fleet.freeze(frozen)
    pids = [member.pid for member in fleet.members]
    assert other.pid in pids
    await fleet.close()
    assert all(map(gone, pids))


async def test_without_its_guard_nothing_more_is_started(fleet: Fleet) -> None:
    await a_worker(fleet)
    assert fleet._guard is not None
    fleet._guard.kill()
    await fleet._guard.wait()
    with pytest.raises(FleetError, match="guard was killed"):
        await fleet.spawn(1)


async def test_without_its_guard_closing_ends_them_all_the_same(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLITE_S", 0.3)
    fleet = Fleet(dsn, pace=replace(PACE, drain=timedelta(seconds=60)))
    member = await a_worker(fleet)
    await fleet.slow(member, 60.0)
    with psycopg.connect(dsn, autocommit=True) as connection:
        shop.enqueue(connection, 1)
        held = "SELECT count(*) FROM payment_jobs WHERE status = 'Processing'"
        until(lambda: (connection.execute(held).fetchone() or (0,))[0], _PATIENCE_S)
    assert fleet._guard is not None
    fleet._guard.kill()
    async with asyncio.timeout(_PATIENCE_S):
        await fleet.close()
    assert gone(member.pid)


async def test_starts_at_the_same_time_have_the_same_guard(fleet: Fleet) -> None:
    await asyncio.gather(fleet.start_watcher(), fleet.start_shop(), fleet.spawn(1))
    assert fleet._guard is not None
    assert {os.getpgid(member.pid) for member in fleet.members} == {fleet._guard.pid}


_SCREEN = """
import asyncio, sys
from leasetop.demo.fleet import Condition, Fleet
async def main():
    fleet = Fleet(sys.argv[1])
    await fleet.start_watcher()
    await fleet.start_shop()
    frozen, _ = await fleet.spawn(2)
    await fleet.until(lambda members: all(one.state is Condition.RUNNING for one in members))
    await fleet.freeze(frozen)
    print(fleet._guard.pid, *(member.pid for member in fleet.members), flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_all_are_gone_when_the_screen_is_killed_frozen_ones_too(dsn: str, number: signal.Signals) -> None:
    screen = subprocess.Popen([sys.executable, "-c", _SCREEN, dsn], stdout=subprocess.PIPE, text=True)
    assert screen.stdout is not None
    pids = [int(word) for word in screen.stdout.readline().split()]
    screen.stdout.close()
    assert len(pids) == 5
    screen.send_signal(number)
    screen.wait()
    until(lambda: all(map(gone, pids)), _PATIENCE_S)
