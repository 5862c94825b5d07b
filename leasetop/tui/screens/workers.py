"""Leases by owner, and beside them the demo's live worker processes: spawn, crash, freeze, thaw, stop, slow, mute.

An owner is known from its leases; a process from the fleet. The two are joined by the owner's name, so that the screen
shows a crashed process next to the leases that it left behind.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from textual import on, work
from textual.app import ComposeResult
from textual.widgets import Footer, Static

from leasetop import report, text
from leasetop.clock import ServerClock
from leasetop.demo.fleet import Fleet, Member, Role
from leasetop.filter import exactly, parse
from leasetop.model import Owner, Reason, Snapshot, Tally, Trends, View
from leasetop.tui import acts, plans
from leasetop.tui.screens.board import Board
from leasetop.tui.screens.bulk import BulkDialog
from leasetop.tui.screens.spawn import SpawnDialog
from leasetop.tui.widgets.header import Header, Link
from leasetop.tui.widgets.rows import Cell, Column, Rows

_SLOW = 8.0
_SIGNALS = ("crash", "freeze", "thaw", "stop", "slow", "heartbeat")
_MOST = 5_000
"""Jobs of one owner in one act, at most."""


@dataclass(frozen=True, slots=True)
class Line:
    """An owner with its leases, a process, or both."""

    name: str
    owner: Owner | None
    member: Member | None


class WorkersScreen(Board):
    """Owners and processes."""

    ACTS = acts.of(acts.On.WORKERS)
    BINDINGS = [*(act.binding() for act in ACTS)]

    def __init__(self) -> None:
        super().__init__()
        self._clock: ServerClock | None = None
        self._lost_by: Mapping[str, int] | None = None

    def compose(self) -> ComposeResult:
        yield Header()
        yield Static(id="summary", markup=False)
        yield Rows[Line](
            [
                Column("OWNER", 18, lambda line, _: (text.safe(line.name), ""), share=3),
                Column("PID", 7, _pid, right=True, rank=4),
                Column("PROCESS", 9, _process),
                Column("HELD", 4, lambda line, _: (str(line.owner.held) if line.owner else "0", ""), right=True),
                Column("EXPIRED", 7, _expired, right=True),
                Column("LOST 1H", 7, self._lost, right=True, rank=2),
                Column("NEXT EXPIRY", 19, self._next, ticks=True),
                Column("OLDEST", 7, self._oldest, right=True, rank=3, ticks=True),
                Column("LAST EVENT", 4, _event, share=4, rank=1),
            ],
            empty="No leases are held.",
            id="owners",
        )
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one(Rows).focus()
        self.looked()

    def show(self, snapshot: Snapshot | None, link: Link) -> None:
        super().show(snapshot, link)
        if snapshot is None:
            return
        self._clock = snapshot.clock
        lines = _lines(snapshot.owners, self.top.fleet)
        self.query_one(Rows).show((line.name, line) for line in lines)
        self.query_one("#summary", Static).update(_summary(snapshot), layout=False)

        if self.top.queue.profile.trends is not None:
            self.top.look_if_due()

    def looked(self) -> None:
        self._lost_by = _lost(self.top.lookout.latest)
        self.query_one(Rows).refresh()

    def _lost(self, line: Line, _: int) -> Cell:
        """Attempts that ended by an expired lease in the last hour."""
        owner = line.owner.name if line.owner else line.member.owner if line.member else None
        if self._lost_by is None or owner is None:
            return "-", ""
        lost = self._lost_by.get(owner, 0)
        return text.count(lost), "stuck" if lost else ""

    def refresh_times(self) -> None:
        super().refresh_times()
        self.query_one(Rows).refresh_times()

    def _next(self, line: Line, _: int) -> Cell:
        if line.owner is None or line.owner.next_expiry is None or self._clock is None:
            return "-", ""
        now = self._clock.now()
        return report.lease_words(
            line.owner.next_expiry, now
        ), "stuck" if line.owner.next_expiry < now else "processing"

    def _oldest(self, line: Line, _: int) -> Cell:
        if line.owner is None or line.owner.oldest_claim is None or self._clock is None:
            return "-", ""
        return text.duration(self._clock.now() - line.owner.oldest_claim), ""

    def _owner(self) -> str | None:
        line = self.query_one(Rows).selected
        if line is None or line.owner is None or line.owner.name is None:
            self.top.say("no owner of leases under the cursor")
            return None
        return str(line.owner.name)

    @on(Rows.Chosen, "#owners")
    def action_jobs(self) -> None:
        name = self._owner()
        if name is not None:
            self.top.pop_screen()
            self.top.show_jobs(exactly("owner", name), View.ACTIVE)

    @work(exclusive=True, group="act")
    async def action_requeue_expired(self) -> None:
        name = self._owner()
        if name is None or not self.top.may_act("requeue"):
            return
        async with self.top.acting():
            queue, clock = self.top.queue, self.top.server_clock
            async with self.top.asking():
                stuck = await queue.snapshot(View.STUCK, limit=_MOST, chosen=parse(exactly("owner", name)))
            # Two owners may be alike as far as they are shown.
            jobs = [job for job in stuck.jobs if job.owner == name]
            if not jobs:
                self.top.say(f"{text.safe(name)} holds no expired lease")
                return
            if len(stuck.jobs) >= _MOST:
                self.top.say(f"these are the first {text.count(_MOST)}: there are more")
            plan = plans.plan("requeue", queue, self.top.actor, jobs, clock, self.top.config)
            outcomes = await self.top.push_screen_wait(BulkDialog(plan, jobs, clock))
            by_key = {job.key: job for job in jobs}
            self.top.note_requeued([(by_key[outcome.key], outcome) for outcome in outcomes])

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What signals a process is no act where no process is ours."""
        strange = action == "spawn" and not self.top.queue.profile.is_home
        return not (strange or (action in _SIGNALS and self.top.fleet is None))

    def action_back(self) -> None:
        self.top.pop_screen()

    @work(exclusive=True, group="act")
    async def action_spawn(self) -> None:
        if not self.top.may_act("spawn"):
            return
        async with self.top.acting():
            strange = None if self.top.demo_database is not None else self.top.database_title
            number = await self.top.push_screen_wait(SpawnDialog(strange))
            if number:
                spawned = await self.top.open_fleet().spawn(number)
                self.top.say(f"{text.plural(len(spawned), 'demo worker')} started")

    def action_crash(self) -> None:
        self._signal("SIGKILL sent", lambda fleet, member: fleet.crash(member))

    def action_freeze(self) -> None:
        self._signal("SIGSTOP sent", lambda fleet, member: fleet.freeze(member))

    def action_thaw(self) -> None:
        self._signal("SIGCONT sent", lambda fleet, member: fleet.thaw(member))

    def action_stop(self) -> None:
        self._signal("SIGTERM sent", lambda fleet, member: fleet.stop(member))

    def action_slow(self) -> None:
        self._signal("speed changed", lambda fleet, member: fleet.slow(member, 1.0 if member.slow > 1 else _SLOW))

    def action_heartbeat(self) -> None:
        self._signal("heartbeat switched", lambda fleet, member: fleet.heartbeat(member, not member.heartbeat))

    def action_race(self) -> None:
        self.top.open_race()

    @work(group="act")
    async def _signal(self, said: str, act: Callable[[Fleet, Member], Awaitable[object] | None]) -> None:
        line: Line | None = self.query_one(Rows).selected
        fleet = self.top.fleet
        if line is None or line.member is None or fleet is None:
            name = "nothing" if line is None else text.safe(line.name)
            self.top.say(f"{name} is no process of this screen: it can only be watched", failed=True)
            return
        async with self.top.acting():
            result = act(fleet, line.member)
            if result is not None:
                await result
            self.top.say(f"{said}: {text.safe(line.name)}")


def _lost(trends: Trends | None) -> Mapping[str, int] | None:
    """Owner -> attempts lost; None where nobody knows."""
    return None if trends is None else {noisy.owner: noisy.expired for noisy in trends.noisy}


def _lines(owners: tuple[Owner, ...], fleet: Fleet | None) -> list[Line]:
    by_name = {owner.name or "(no owner)": owner for owner in owners}
    members = {} if fleet is None else {member.owner or f"pid {member.pid}": member for member in fleet.members}
    # The fleet keeps its order (a row does not jump when its leases change): workers, then owners from elsewhere,
    # then what is no worker.
    mine = [Line(name, by_name.get(name), member) for name, member in members.items()]
    others = [Line(name, owner, None) for name, owner in by_name.items() if name not in members]
    workers = [line for line in mine if line.member and line.member.role is Role.WORKER]
    return workers + others + [line for line in mine if line not in workers]


def _pid(line: Line, _: int) -> Cell:
    return (str(line.member.pid) if line.member else "-", "")


def _process(line: Line, _: int) -> Cell:
    if line.member is None:
        return "elsewhere", "cancelled"
    state = str(line.member.state)
    if state == "running":
        marks = [word for word, on in (("slow", line.member.slow > 1), ("mute", not line.member.heartbeat)) if on]
        return ("+".join(marks), "expiring") if marks else (state, "processing")
    return state, "stuck" if state in ("frozen", "crashed") else "cancelled"


def _expired(line: Line, _: int) -> Cell:
    expired = line.owner.expired if line.owner else 0
    return (str(expired), "stuck" if expired else "")


def _event(line: Line, _: int) -> Cell:
    return (text.safe(line.member.last_event) or "-" if line.member else "-", "")


def _summary(snapshot: Snapshot) -> str:
    owners = text.plural(snapshot.owner_count, "owner")
    over = snapshot.reasons.get(Reason.EXPIRED, Tally()).count + snapshot.reasons.get(Reason.NO_LEASE, Tally()).count
    more = "+" if snapshot.owners_capped else ""
    leases = f"{text.plural(snapshot.lease_count, 'lease')}{more}, {over} over"
    return f" {owners}{more} with {leases}   watcher {report.watcher_words(snapshot)}"
