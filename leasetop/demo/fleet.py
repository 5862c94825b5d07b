"""The fleet: real processes that work on the queue, and what one can do to them.

Each is a child of this process, in a group of its own behind a guard (guard.py), so that all of them are gone when the
screen is, whatever ended it. Signals go only to children that have not been reaped: never to a number that may be
somebody else's by now. Whether a process is frozen is the kernel's word where there is /proc, and else our own.
"""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import site
import sys
import time
from collections.abc import AsyncIterator, Callable
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
_LOOK_S = 0.1
"""How often `until` looks by itself: what others do to a process comes with no event."""
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
        self._frozen: set[int] = set()
        """What we stopped and did not let go on."""
        self._handles: dict[int, int] = {}
        """Each living process as a file descriptor, where the system has such: no other can come to have it."""
        self._guard: asyncio.subprocess.Process | None = None
        # Two starts at once must not make two guards: whom the lost one watched over, nobody would.
        self._one_guard = asyncio.Lock()
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
        while not is_so(members := self.members):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S), self._changed:
                    await self._changed.wait()
        return members

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
                # It may end by itself at this very moment.
                with contextlib.suppress(FleetError):
                    await self.stop(member)
        await self.until(lambda members: not any(one.role is Role.RACER and one.alive for one in members))

    async def crash(self, member: Member) -> None:
        """SIGKILL: it is gone at once, and its leases run out by themselves."""
        self._signal(member, signal.SIGKILL)

    async def freeze(self, member: Member) -> None:
        """SIGSTOP: it does nothing any more, and does not know it."""
        self._signal(member, signal.SIGSTOP)
        self._frozen.add(member.pid)
        await self._note(member.pid)

    async def thaw(self, member: Member) -> None:
        """SIGCONT: it goes on as if nothing had been."""
        self._signal(member, signal.SIGCONT)
        self._frozen.discard(member.pid)
        await self._note(member.pid)

    async def stop(self, member: Member) -> None:
        """SIGTERM: it finishes or releases what it holds. A frozen one does so once it is thawed."""
        self._signal(member, signal.SIGTERM)
        await self._note(member.pid, state=Condition.STOPPING)

    async def slow(self, member: Member, factor: float) -> None:
        """Stretches every wait of its provider."""
        await self._tell(member, {"slow": factor}, slow=factor)

    async def heartbeat(self, member: Member, on: bool) -> None:
        """Switches its heartbeats off or on."""
        await self._tell(member, {"heartbeat": on}, heartbeat=on)

    async def close(self) -> None:
        """Ends everything that was started here: politely, then by force."""
        living = {pid: process for pid, process in self._processes.items() if process.returncode is None}
        for pid in living:
            self._send(pid, signal.SIGTERM)
            # A frozen process ends only once it runs again.
            self._send(pid, signal.SIGCONT)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(process.wait() for process in living.values())), _POLITE_S)
        for pid, process in living.items():
            if process.returncode is None:
                self._send(pid, signal.SIGKILL)
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
        options, environment = _interpreter()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *options,
                "-m",
                "leasetop.demo.process",
                role.value,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                # A traceback has no place on the screen; what matters comes over the pipe.
                stderr=asyncio.subprocess.DEVNULL,
                process_group=guard.pid,
                env=environment,
            )
        except OSError as error:
            raise FleetError(f"no {role} could be started: {error.strerror}") from error
        member = self._members[process.pid] = Member(process.pid, role)
        self._processes[process.pid] = process
        handle = _handle(process.pid)
        if handle is not None:
            self._handles[process.pid] = handle
        assert process.stdin is not None
        process.stdin.write(json.dumps(told).encode() + b"\n")
        listener = asyncio.create_task(self._listen(process))
        self._listeners.add(listener)
        listener.add_done_callback(self._listeners.discard)
        return member

    async def _guarding(self) -> asyncio.subprocess.Process:
        async with self._one_guard:
            if self._guard is None or self._guard.returncode is not None:
                if any(process.returncode is None for process in self._processes.values()):
                    raise FleetError(
                        "the fleet's guard was killed: quit and start again, so that nothing is left behind"
                    )
                self._guard = await self._new_guard()
            return self._guard

    async def _new_guard(self) -> asyncio.subprocess.Process:
        try:
            guard = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                str(Path(__file__).with_name("guard.py")),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                process_group=0,
            )
        except OSError as error:
            raise FleetError(f"the fleet's guard could not be started: {error.strerror}") from error
        assert guard.stdin is not None and guard.stdout is not None
        try:
            # Only from then on does it ignore what would end it too early.
            if not await guard.stdout.readline():
                raise FleetError(f"the fleet's guard ended at once (exit status {await guard.wait()})")
        except BaseException:
            guard.stdin.close()
            raise
        return guard

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Reads what a process says until its end, and notes how it ended."""
        pid = process.pid
        async for fact in _facts(process):
            await self._heard(pid, fact)
        code = await process.wait()
        self._frozen.discard(pid)
        if pid in self._handles:
            os.close(self._handles.pop(pid))
        member = self._members.get(pid)
        if member is None:
            return
        # Told to stop before it was ready to be told: that is an end as asked for, too.
        as_asked = code == 0 or (member.state is Condition.STOPPING and code == -signal.SIGTERM)
        why = f"killed by {_signal_name(-code)}" if code < 0 else f"exit status {code}"
        said = why if code <= 0 or member.last_event is None else f"{why}: {member.last_event}"
        ended = Condition.EXITED if as_asked else Condition.CRASHED
        await self._note(pid, state=ended, ended_at=time.monotonic(), last_event=said)

    async def _heard(self, pid: int, fact: dict[str, object]) -> None:
        event, said = fact.get("event"), text.safe(fact.get("message"), 300)
        if event == "owner":
            member = self._members[pid]
            begun = Condition.RUNNING if member.state is Condition.STARTING else member.state
            await self._note(pid, owner=str(fact.get("owner")), state=begun)
        elif event not in _WORDS:
            await self._note(pid, last_event=said)

    def _signal(self, member: Member, number: signal.Signals) -> None:
        self._living(member)
        if not self._send(member.pid, number):
            raise FleetError(f"process {member.pid} has ended already")

    def _send(self, pid: int, number: signal.Signals) -> bool:
        """False: it has ended. Not by `Process.send_signal`, which may reap the child and so lose how it ended."""
        handle = self._handles.get(pid)
        try:
            if sys.platform == "linux" and handle is not None:
                signal.pidfd_send_signal(handle, number)
            else:
                os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True

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
        if stopped is None:
            stopped = member.pid in self._frozen
        return replace(member, state=Condition.FROZEN) if stopped else member


def _is_stopped(pid: int) -> bool | None:
    """Whether the kernel has stopped a process; None where there is no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in brackets, may hold anything: the state is the first word after the last bracket.
    return stat.rpartition(")")[2].split()[0] in ("T", "t")


def _handle(pid: int) -> int | None:
    """A file descriptor that means this very process, even when its number is given to another; None: no such here."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return os.pidfd_open(pid)
    return None


async def _facts(process: asyncio.subprocess.Process) -> AsyncIterator[dict[str, object]]:
    """What a process says, until it ends. A line that is no fact (cut, since its pipe was full) is passed over."""
    assert process.stdout is not None
    while True:
        try:
            line = await process.stdout.readline()
            fact = json.loads(line) if line else None
        except ValueError:
            continue
        if not line:
            return
        if isinstance(fact, dict):
            yield fact


def _signal_name(number: int) -> str:
    # Most of the real-time signals have no name.
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _interpreter() -> tuple[list[str], dict[str, str]]:
    """Options and environment with which a child finds this very leasetop, whatever lies in the working directory."""
    environment = dict(os.environ)
    here = Path(__file__).resolve().parents[2]
    installed = {Path(folder).resolve() for folder in (*site.getsitepackages(), site.getusersitepackages())}
    if here not in installed:
        path = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{here}{os.pathsep}{path}" if path else str(here)
    elif sys.flags.isolated:
        return ["-I"], environment
    # Only in a checkout is there a need for PYTHONPATH: it comes before the standard library, and the other packages
    # of an installation must not.
    return ["-P"], environment
