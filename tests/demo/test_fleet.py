"""The fleet: real processes and real signals, and nothing left behind whatever ends the screen."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from leasetop.demo import shop
from leasetop.demo.fleet import Condition, Fleet, FleetError, Member, Pace, Role
from tests.waiting import gone, until

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


async def a_worker(fleet: Fleet) -> Member:
    (member,) = await fleet.spawn(1)
    members = await fleet.until(is_now(member, state=Condition.RUNNING))
    return next(one for one in members if one.pid == member.pid)


async def test_a_spawned_worker_is_a_process_with_the_name_of_an_owner(fleet: Fleet) -> None:
    member = await a_worker(fleet)
    assert member.role is Role.WORKER
    assert member.owner is not None
    assert member.owner.split("/")[1] == str(member.pid)
    assert b"leasetop.demo.process" in Path(f"/proc/{member.pid}/cmdline").read_bytes()


async def test_a_crashed_worker_says_by_what(fleet: Fleet) -> None:
    member = await a_worker(fleet)
    await fleet.crash(member)
    await fleet.until(is_now(member, state=Condition.CRASHED, last_event="killed by SIGKILL"))
    with pytest.raises(FleetError, match="has ended already"):
        await fleet.freeze(member)


async def test_a_frozen_worker_is_seen_frozen_and_thaws(fleet: Fleet) -> None:
    member = await a_worker(fleet)
    await fleet.freeze(member)
    assert is_now(member, state=Condition.FROZEN)(fleet.members)
    until(lambda: Path(f"/proc/{member.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    await fleet.thaw(member)
    until(lambda: is_now(member, state=Condition.RUNNING)(fleet.members))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only /proc tells what others did to a process")
async def test_a_worker_that_somebody_else_froze_is_seen_frozen(fleet: Fleet) -> None:
    member = await a_worker(fleet)
    os.kill(member.pid, signal.SIGSTOP)
    until(lambda: is_now(member, state=Condition.FROZEN)(fleet.members))
    os.kill(member.pid, signal.SIGCONT)
    until(lambda: is_now(member, state=Condition.RUNNING)(fleet.members))


async def test_a_stopped_worker_ends_by_itself(fleet: Fleet) -> None:
    member = await a_worker(fleet)
    await fleet.stop(member)
    await fleet.until(is_now(member, state=Condition.EXITED, last_event="exit status 0"))


async def test_a_slow_worker_and_a_mute_one_are_marked(fleet: Fleet) -> None:
    member = await a_worker(fleet)
    await fleet.slow(member, 8.0)
    await fleet.heartbeat(member, False)
    assert is_now(member, slow=8.0, heartbeat=False)(fleet.members)


async def test_a_mute_worker_loses_its_leases(fleet: Fleet, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        await fleet.start_watcher()
        member = await a_worker(fleet)
        await fleet.slow(member, 20.0)
        await fleet.heartbeat(member, False)
        shop.enqueue(connection, 2)
        await fleet.until(lambda members: any("lease lost" in (one.last_event or "") for one in members))
        lost = "SELECT count(*) FROM payment_job_history WHERE event = 'expired' AND owner = %s"
        until(lambda: (connection.execute(lost, [member.owner]).fetchone() or (0,))[0])


async def test_a_worker_that_cannot_work_says_why(dsn: str) -> None:
    fleet = Fleet(make_conninfo(dsn, dbname="nowhere"), pace=PACE)
    (member,) = await fleet.spawn(1)
    members = await fleet.until(is_now(member, state=Condition.CRASHED))
    assert 'database "nowhere" does not exist' in (members[0].last_event or "")
    await fleet.close()


async def test_a_password_is_neither_in_the_arguments_nor_in_the_environment(dsn: str) -> None:
    fleet = Fleet(make_conninfo(dsn, password="geheim"), pace=PACE)
    try:
        member = await a_worker(fleet)
        for what in ("cmdline", "environ"):
            assert b"geheim" not in Path(f"/proc/{member.pid}/{what}").read_bytes()
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
    until(lambda: all(map(gone, pids)))
