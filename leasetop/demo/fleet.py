"""The fleet: real processes that work on the queue, and what one can do to them.

Each is a child of this process, in a group of its own behind a guard (guard.py), so that all of them are gone when the
screen is, whatever ended it. Signals go only to children that have not been reaped: never to a number that may be
somebody else's by now.
"""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from leasetop import text
from leasetop.demo.race import Lane
from leasetop.errors import LeasetopError
from leasetop.model import Policy

_REMEMBER_S = 60.0
"""How long an ended process is still shown."""
_POLITE_S = 3.0
"""How long `close` waits for a polite end."""
_WORDS = {"owner", "started", "claimed"}


class FleetError(LeasetopError):
    """A process that cannot be started or reached, in words."""


class Role(StrEnum):
    """What a process does."""

    WORKER = "worker"
    WATCHER = "watcher"
    SHOP = "shop"
    RACER = "racer"


class Condition(StrEnum):
    """How a process is."""

    STARTING = "starting"
    RUNNING = "running"
    FROZEN = "frozen"
    STOPPING = "stopping"
    CRASHED = "crashed"
    EXITED = "exited"


@dataclass(frozen=True, slots=True)
class Member:
    """One process, as it is now."""

    pid: int
    role: Role
    state: Condition = Condition.STARTING
    owner: str | None = None
    """Its name in the table, once it has said so."""
    slow: float = 1.0
    heartbeat: bool = True
    last_event: str | None = None
    ended_at: float | None = None
    """On the monotonic clock of this process; None while it lives."""

    @property
    def alive(self) -> bool:
        return self.ended_at is None


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the demo lives: short enough to watch a lease run out."""

    ttl: timedelta = timedelta(seconds=15)
    heartbeat: timedelta = timedelta(seconds=4)
    sweep: timedelta = timedelta(seconds=10)
    backoff: timedelta = timedelta(seconds=1)
    drain: timedelta = timedelta(seconds=10)
    rate: float = 1.5
    """Payments a second."""
    concurrency: int = 3


class Fleet:
    """All processes that this screen started on the database of `dsn`."""

    def __init__(self, dsn: str, *, policy: Policy = Policy.REQUEUE, pace: Pace | None = None) -> None:
        self._dsn, self._policy, self._pace = dsn, policy, pace or Pace()
        self._members: dict[int, Member] = {}
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._listeners: set[asyncio.Task[None]] = set()
        self._guard: asyncio.subprocess.Process | None = None
        self._changed = asyncio.Condition()

    @property
    def members(self) -> tuple[Member, ...]:
        """Every process, in the order of their start; ended ones for a minute more."""
        now = time.monotonic()
        self._members = {
            pid: member
            for pid, member in self._members.items()
            if member.ended_at is None or now - member.ended_at < _REMEMBER_S
        }
        return tuple(map(self._as_it_is, self._members.values()))

    async def until(self, is_so: Callable[[tuple[Member, ...]], bool]) -> tuple[Member, ...]:
        """Waits until the members are as asked; for tests and for closing."""
        async with self._changed:
            await self._changed.wait_for(lambda: is_so(self.members))
        return self.members

    async def start_watcher(self) -> Member:
        """A watcher process. Raises FleetError."""
        return await self._start(Role.WATCHER, {"interval_s": self._pace.sweep.total_seconds()})

    async def start_shop(self) -> Member:
        """A process that enqueues payments. Raises FleetError."""
        return await self._start(Role.SHOP, {"rate": self._pace.rate})

    async def spawn(self, number: int) -> list[Member]:
        """So many worker processes. Raises FleetError."""
        pace = self._pace
        config = {
            "ttl_s": pace.ttl.total_seconds(),
            "heartbeat_s": pace.heartbeat.total_seconds(),
            "drain_s": pace.drain.total_seconds(),
            "concurrency": pace.concurrency,
        }
        return [
            await self._start(Role.WORKER, config | {"name": f"demo-{secrets.token_hex(2)}"}) for _ in range(number)
        ]

    async def start_racers(self, each: int) -> None:
        """So many processes for each lane of the race (race.py). Raises FleetError."""
        for lane in [lane for lane in Lane for _ in range(each)]:
            await self._start(Role.RACER, {"lane": lane.value})

    async def stop_racers(self) -> None:
        """Ends a race that is still under way, and waits for it."""
        for member in self.members:
            if member.role is Role.RACER and member.alive:
                await self.stop(member)
        await self.until(lambda members: not any(one.role is Role.RACER and one.alive for one in members))

    async def crash(self, member: Member) -> None:
        """SIGKILL: it is gone at once, and its leases run out by themselves."""
        await self._signal(member, signal.SIGKILL)

    async def freeze(self, member: Member) -> None:
        """SIGSTOP: it does nothing any more, and does not know it."""
        await self._signal(member, signal.SIGSTOP, state=Condition.FROZEN)

    async def thaw(self, member: Member) -> None:
        """SIGCONT: it goes on as if nothing had been."""
        await self._signal(member, signal.SIGCONT, state=Condition.RUNNING)

    async def stop(self, member: Member) -> None:
        """SIGTERM: it finishes or releases what it holds."""
        await self._signal(member, signal.SIGTERM, state=Condition.STOPPING)

    async def slow(self, member: Member, factor: float) -> None:
        """Stretches every wait of its provider."""
        await self._tell(member, {"slow": factor}, slow=factor)

    async def heartbeat(self, member: Member, on: bool) -> None:
        """Switches its heartbeats off or on."""
        await self._tell(member, {"heartbeat": on}, heartbeat=on)

    async def close(self) -> None:
        """Ends everything that was started here: politely, then by force."""
        for pid, process in self._processes.items():
            if self._members[pid].alive if pid in self._members else process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
                    # A frozen process ends only once it runs again.
                    process.send_signal(signal.SIGCONT)
        ends = [process.wait() for process in self._processes.values()]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*ends), _POLITE_S)
        if self._guard is not None:
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            await self._guard.wait()
            self._guard = None
        await asyncio.gather(*self._listeners)
        for process in self._processes.values():
            if process.stdin is not None:
                process.stdin.close()

    async def _start(self, role: Role, config: dict[str, object]) -> Member:
        guard = await self._guarding()
        told = config | {
            "dsn": self._dsn,
            "policy": self._policy.value,
            "backoff_s": self._pace.backoff.total_seconds(),
        }
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "leasetop.demo.process",
                role.value,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                # A traceback has no place on the screen; what matters comes over the pipe.
                stderr=asyncio.subprocess.DEVNULL,
                process_group=guard.pid,
                env=_environment(),
            )
        except OSError as error:
            raise FleetError(f"no {role} could be started: {error.strerror}") from error
        member = self._members[process.pid] = Member(process.pid, role)
        self._processes[process.pid] = process
        assert process.stdin is not None
        process.stdin.write(json.dumps(told).encode() + b"\n")
        listener = asyncio.create_task(self._listen(process))
        self._listeners.add(listener)
        listener.add_done_callback(self._listeners.discard)
        return member

    async def _guarding(self) -> asyncio.subprocess.Process:
        if self._guard is None or self._guard.returncode is not None:
            if any(member.alive for member in self._members.values()):
                raise FleetError("the fleet's guard was killed: quit and start again, so that nothing is left behind")
            self._guard = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                str(Path(__file__).with_name("guard.py")),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                process_group=0,
            )
            assert self._guard.stdout is not None
            # Only now does it ignore what would end it too early.
            await self._guard.stdout.readline()
        return self._guard

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Reads what a process says until its end, and notes how it ended."""
        assert process.stdout is not None
        while line := await process.stdout.readline():
            with contextlib.suppress(ValueError):
                await self._heard(process.pid, json.loads(line))
        code = await process.wait()
        ended = Condition.CRASHED if code else Condition.EXITED
        why = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        last = self._members[process.pid].last_event if process.pid in self._members else None
        said = why if code <= 0 or last is None else f"{why}: {last}"
        await self._note(process.pid, state=ended, ended_at=time.monotonic(), last_event=said)

    async def _heard(self, pid: int, fact: dict[str, object]) -> None:
        event, said = fact.get("event"), text.safe(fact.get("message"), 300)
        if event == "owner":
            await self._note(pid, owner=str(fact.get("owner")), state=Condition.RUNNING)
        elif event not in _WORDS:
            await self._note(pid, last_event=said)

    async def _signal(self, member: Member, number: signal.Signals, **noted: object) -> None:
        self._living(member).send_signal(number)
        await self._note(member.pid, **noted)

    async def _tell(self, member: Member, command: dict[str, object], **noted: object) -> None:
        process = self._living(member)
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(command).encode() + b"\n")
            # Not drained: a frozen process does not read, and the screen must not wait for it.
        except OSError as error:
            raise FleetError(f"pid {member.pid} does not listen: {error.strerror}") from error
        await self._note(member.pid, **noted)

    def _living(self, member: Member) -> asyncio.subprocess.Process:
        process = self._processes.get(member.pid)
        if process is None or process.returncode is not None or not self._members[member.pid].alive:
            raise FleetError(f"process {member.pid} has ended already")
        return process

    async def _note(self, pid: int, **changes: object) -> None:
        if pid in self._members:
            self._members[pid] = replace(self._members[pid], **changes)  # type: ignore[arg-type]
        async with self._changed:
            self._changed.notify_all()

    def _as_it_is(self, member: Member) -> Member:
        """What was done to it from elsewhere (kill -STOP) counts as well, where the system can tell."""
        if not member.alive:
            return member
        stopped = _is_stopped(member.pid)
        if stopped and member.state is not Condition.FROZEN:
            return replace(member, state=Condition.FROZEN)
        if stopped is False and member.state is Condition.FROZEN:
            return replace(member, state=Condition.RUNNING)
        return member


def _is_stopped(pid: int) -> bool | None:
    """Whether the kernel has stopped a process; None where there is no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in brackets, may hold anything: the state is the first word after the last bracket.
    return stat.rpartition(")")[2].split()[0] in ("T", "t")


def _environment() -> dict[str, str]:
    """As ours, and such that a child finds this very leasetop, in a checkout as in an installation."""
    here = str(Path(__file__).parents[2])
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{path}" if path else here}
