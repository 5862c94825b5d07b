"""The screen's program: owns the poller, hands snapshots to the screen on top, and carries acts to the queue."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from textual import events, on, work
from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.driver import Driver
from textual.screen import Screen
from textual.theme import Theme
from textual.widgets import Input

from leasetop import export, text
from leasetop.anomalies import Findings
from leasetop.clock import ServerClock
from leasetop.config import Config, Environment, environment_for
from leasetop.database import Database
from leasetop.errors import LeasetopError, Refused, Unreachable
from leasetop.finding import Survey, survey
from leasetop.model import Backoff, Job, Outcome, Policy, Snapshot, View
from leasetop.queue import Queue
from leasetop.tui import acts, looks
from leasetop.tui.late import LateFinishers
from leasetop.tui.lookout import Lookout
from leasetop.tui.messages import Lost, Refreshed
from leasetop.tui.poller import Poller
from leasetop.tui.screens.anomalies import AnomaliesScreen
from leasetop.tui.screens.board import Board
from leasetop.tui.screens.bulk import BulkDialog
from leasetop.tui.screens.export import ExportDialog
from leasetop.tui.screens.help import HelpScreen
from leasetop.tui.screens.jobs import JobsScreen
from leasetop.tui.screens.journal import JournalScreen
from leasetop.tui.screens.queues import QueuesScreen
from leasetop.tui.screens.waiting import WaitingScreen
from leasetop.tui.terminal import Terminal
from leasetop.tui.widgets.header import Link

if TYPE_CHECKING:
    from leasetop.demo.fleet import Fleet

_TICK_S = 1.0
_STALE = timedelta(seconds=5)
_LATE_S = 5.0
_ANOMALIES_S = 30.0


class LeasetopApp(App[None]):
    """`leasetop --dsn ...` and `leasetop demo`.

    `make_fleet` makes the fleet of demo workers when one is first asked for. `demo_database` is given where they are at
    home: spawning then needs no second question, and the race can be run (`race`: at once). `survey` is given where
    there are several queues: which to show is then asked first. `config` is what the operator wants the screen to be
    like; `read_only` why nothing may be written, in words.
    """

    CSS_PATH = "leasetop.tcss"
    TITLE = "leasetop"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS = [
        *(act.binding() for act in acts.of(acts.On.EVERY)),
        # In a dialog, too: who presses this wants out. It copies nothing here.
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(
        self,
        queue: Queue,
        *,
        actor: str,
        interval: timedelta = timedelta(seconds=1),
        policy: Policy = Policy.REQUEUE,
        backoff: Backoff | None = None,
        make_fleet: "Callable[[], Fleet] | None" = None,
        fleet: "Fleet | None" = None,
        demo_database: Database | None = None,
        race: bool = False,
        survey: Survey | None = None,
        config: Config | None = None,
        read_only: str | None = None,
    ) -> None:
        super().__init__(driver_class=Terminal)
        self.queue = queue
        self.actor = actor
        self.config = config or Config()
        self.read_only = read_only
        self.backoff = backoff or Backoff()
        self.fleet = fleet
        self.demo_database = demo_database
        self.snapshot: Snapshot | None = None
        self.poller = Poller(
            queue,
            interval,
            lambda snapshot: self.post_message(Refreshed(snapshot)),
            lambda error: self.post_message(Lost(error)),
        )
        self._policy = policy
        self._make_fleet = make_fleet
        self._terminal: Driver | None = None
        self.late = LateFinishers()
        self.anomalies: Findings | None = None
        self.lookout = Lookout()
        self.undoable: tuple[Job, Job] | None = None
        """The latest requeue, where it was of one job: as it was before, and after."""
        self._race = race
        self._survey = survey
        self._error: LeasetopError | None = None

    def get_default_screen(self) -> Screen[None]:
        return JobsScreen()

    def get_css_variables(self) -> dict[str, str]:
        variables = super().get_css_variables()
        return variables | looks.variables(
            variables, few=self.console.color_system == "standard", dark=self.current_theme.dark
        )

    def on_mount(self) -> None:
        self._terminal = self._driver
        self.theme = looks.theme(self.config.theme, self.available_themes, self.theme)
        if self.config.theme is not None and self.config.theme != self.theme:
            self.say(f"there is no theme {text.safe(self.config.theme)}: see Theme in the commands", failed=True)
        self.theme_changed_signal.subscribe(self, self._remember_theme)
        self.run_worker(self.poller.run(), group="poller", exclusive=True)
        self.set_interval(_TICK_S, self._tick)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            # Leaves by the door, so that the terminal is as it was.
            loop.add_signal_handler(number, self.exit, None, 128 + number)
        if self._race:
            self.open_race()
        if self._survey is not None:
            self.choose_queue()
        self.set_interval(_LATE_S, self._look_for_late_finishers)
        self.set_interval(_ANOMALIES_S, self.look_for_anomalies)

    def _remember_theme(self, theme: Theme) -> None:
        if theme.name == self.config.theme:
            # The settings have it already, and may change their mind.
            return
        try:
            looks.remember(theme.name)
        except OSError as error:
            self.say(f"the theme will not be remembered: {error.strerror}", failed=True)

    @property
    def environment(self) -> Environment | None:
        """What this database is to the operator, by the settings."""
        return environment_for(self.snapshot.server.title, self.config) if self.snapshot else None

    @property
    def database_title(self) -> str:
        """`database@host`, as the header shows it."""
        return self.snapshot.server.title if self.snapshot else "this database"

    @property
    def server_clock(self) -> ServerClock:
        """The server's time, as of the latest snapshot; acts are possible only once there is one."""
        assert self.snapshot is not None
        return self.snapshot.clock

    @property
    def policy(self) -> Policy:
        """What a sweep by the operator does: as the watchers do, where they agree; else as leasetop was told."""
        watching = {watcher.policy for watcher in (self.snapshot.watchers if self.snapshot else None) or ()}
        told = watching.pop() if len(watching) == 1 else self._policy
        return Policy(told) if told in set(Policy) else self._policy

    def may_act(self, act: str) -> bool:
        """Whether acts that rely on the data may be begun now; says why where not."""
        if isinstance(self._error, Unreachable) or self.snapshot is None:
            self.say(f"no {act}: there is no connection to the database", failed=True)
            return False
        if self._error is not None:
            self.say(f"no {act}: the data is old, since the database refuses it: {self._error}", failed=True)
            return False
        if self._link().stale and not self.poller.paused:
            # A paused screen is old because the operator wants it so, and every dialog reads anew.
            self.say(
                f"no {act}: the database has not answered for {text.duration(self.snapshot.clock.age())}", failed=True
            )
            return False
        if self.read_only is not None:
            self.say(f"no {act}: {self.read_only}", failed=True)
            return False
        if self.snapshot.server.standby:
            self.say(f"no {act}: this server is a standby, and takes no writes", failed=True)
            return False
        if not (self.queue.profile.is_home if act == "spawn" else self.queue.can(act)):
            self.say(f"no {act}: the profile of {self.snapshot.queue} has no such act", failed=True)
            return False
        return True

    @asynccontextmanager
    async def acting(self) -> AsyncIterator[None]:
        """Around an act: its errors in words, and an early refresh behind it."""
        try:
            yield
        except Unreachable as error:
            self.say(f"{error} - whether the act took place is not known: look again", failed=True)
        except LeasetopError as error:
            self.say(str(error), failed=True)
        self.poller.wake()

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and event.key == "escape":
            # What was said may cover what is to be read next.
            self.clear_notifications()
        typed = event if isinstance(event, events.Key) and event.is_printable else None
        if typed is not None and typed.is_forwarded and isinstance(self.focused, Input):
            # An input takes all letters. One that comes back while it has the focus was typed in one burst with the key
            # that opened it, as ssh delivers them, and went to the table: it is no key of an act.
            self.focused.post_message(events.Key(typed.key, typed.character))
            return
        await super().on_event(event)

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """Around the question before a dialog: what is typed until it is there reaches no act."""
        waiting = WaitingScreen()
        self.push_screen(waiting)
        try:
            yield
        finally:
            if self.screen is waiting:
                self.pop_screen()

    def say(self, words: str, failed: bool = False) -> None:
        """One line to the operator. Data in it is no markup."""
        self.notify(text.safe(words), severity="error" if failed else "information", timeout=8, markup=False)

    @work(exclusive=True, group="choose")
    async def choose_queue(self) -> None:
        """Asks which queue of this database to show, and shows that."""
        async with self.acting():
            found, self._survey = self._survey or await survey(self.queue.database), None
            chosen = await self.push_screen_wait(QueuesScreen(self.queue.database, found, self.queue.profile.title))
            if chosen is not None and chosen.title != self.queue.profile.title:
                self._show_queue(Queue(self.queue.database, chosen))

    def _show_queue(self, queue: Queue) -> None:
        self.queue, self.snapshot, self.anomalies, self.undoable = queue, None, None, None
        self.late.forget()
        self.lookout.forget()
        self.poller.show(queue)
        for screen in self.screen_stack:
            if isinstance(screen, JobsScreen):
                screen.show_queue()
        self.show_latest()

    def note_requeued(self, acts: Sequence[tuple[Job, Outcome]]) -> None:
        """For undoing, and to hear of late finishers: the jobs as they were, and what became of them."""
        done = [(job, outcome) for job, outcome in acts if outcome.done]
        if done:
            before, outcome = done[-1]
            self.undoable = (before, outcome.after) if len(done) == 1 and outcome.after is not None else None
        if not self.queue.profile.completion_fenced:
            for job, _ in done:
                self.late.watch(job)

    def look_if_due(self) -> None:
        """Asks the history, where the queue has one, for the screens that show it; not too often."""
        lookout = self.lookout
        if self.queue.profile.trends is None and lookout.latest is None and lookout.error is not None:
            return
        if lookout.is_due and not (self.poller.paused and lookout.latest is not None):
            self._look_at_history()

    @work(group="trends")
    async def _look_at_history(self) -> None:
        await self.lookout.look(self.queue)
        for screen in self.screen_stack:
            if isinstance(screen, Board):
                screen.looked()

    @work(exclusive=True, group="late")
    async def _look_for_late_finishers(self) -> None:
        if not self.late.any or self.snapshot is None or self._error is not None:
            return
        try:
            warnings = await self.late.look(self.queue.read_jobs, self.snapshot.clock)
        except LeasetopError:
            # The poller has said so already, and the next look asks again.
            return
        for words in warnings:
            self.notify(words, severity="warning", timeout=60, markup=False)

    @work(exclusive=True, group="anomalies")
    async def look_for_anomalies(self) -> None:
        """Asks again, now and then: it costs more than a refresh."""
        if self.poller.paused or self.snapshot is None or self._error is not None:
            return
        queue = self.queue
        try:
            found = await queue.anomalies()
        except LeasetopError:
            # The poller says what is wrong with the database; and the next look asks again.
            return
        if queue is self.queue:
            self.anomalies = found
            self.show_latest()

    @work(exclusive=True, group="choose")
    async def open_anomalies(self) -> None:
        """What is out of order, as it is now."""
        async with self.acting():
            self.anomalies = await self.queue.anomalies()
            line = await self.push_screen_wait(AnomaliesScreen(self.anomalies, self.server_clock))
            if line is not None:
                self.show_jobs(line, View.ALL)

    def open_workers(self) -> None:
        """The workers screen, over the jobs."""
        # Imported when first needed: the fleet is no part of watching a queue.
        from leasetop.tui.screens.workers import WorkersScreen

        self.push_screen(WorkersScreen())

    def open_journal(self) -> None:
        """What operators did, over the jobs."""
        self.push_screen(JournalScreen())

    @work(exclusive=True, group="export")
    async def export(self, what: str, rows: list[dict[str, object]], beyond: str = "") -> None:
        """Writes rows to a file that the operator names; `beyond` says what is not among them."""
        if not rows or self.snapshot is None:
            self.say(f"no {what} are shown", failed=True)
            return
        path = await self.push_screen_wait(ExportDialog(what, self.snapshot.clock.now(), beyond))
        if path is not None:
            try:
                export.write(path, rows)
            except LeasetopError as error:
                self.say(str(error), failed=True)
            else:
                self.say(f"{text.count(len(rows))} {what} written to {path.absolute()}{beyond}")

    def show_jobs(self, line: str, view: View) -> None:
        """The jobs screen with another filter."""
        for screen in self.screen_stack:
            if isinstance(screen, JobsScreen):
                screen.find(line, view)

    def open_trends(self) -> None:
        """The trends, over the jobs; where the queue keeps no history, words."""
        # Imported when first needed: the plots are no part of watching a queue.
        from leasetop.tui.screens.trends import TrendsScreen

        if self.queue.profile.trends is None:
            self.say(f"no trends: {self.queue.profile.title} keeps no history that its profile tells of", failed=True)
        else:
            self.push_screen(TrendsScreen())

    def open_race(self) -> None:
        """The race, on the demo's database only: it makes a table of its own."""
        from leasetop.tui.screens.race import RaceScreen

        if self.demo_database is None:
            self.say("the race is run on the demo's database only: leasetop demo --race", failed=True)
        else:
            self.push_screen(RaceScreen(self.demo_database, self.open_fleet()))

    def open_fleet(self) -> "Fleet":
        """The demo workers' fleet, made when first asked for. Raises LeasetopError where there can be none."""
        if self.fleet is None:
            if self._make_fleet is None:
                raise LeasetopError("demo workers cannot be started here")
            self.fleet = self._make_fleet()
        return self.fleet

    def action_pause(self) -> None:
        self.poller.paused = not self.poller.paused
        if not self.poller.paused:
            self.poller.wake()
        self.show_latest()

    def action_refresh_now(self) -> None:
        self.poller.wake()

    def action_help(self) -> None:
        self.push_screen(HelpScreen(self._offered(self.screen)))

    def _offered(self, screen: Screen[object]) -> tuple[acts.Act, ...]:
        """The acts of a screen that this queue has."""
        known = screen.ACTS if isinstance(screen, Board) else ()
        return tuple(act for act in known if act.needs is None or self.queue.can(act.needs))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        own = self._offered(screen)
        for act in (*own, *acts.of(acts.On.EVERY)):
            if act.action == "command_palette":
                continue
            target = screen if act in own else self
            yield SystemCommand(f"{act.label} ({act.key})", act.help, _caller(self, act.action, target))
        yield SystemCommand("Theme", "Choose another theme", self.action_change_theme)

    @on(Refreshed)
    def _refreshed(self, message: Refreshed) -> None:
        first = self.snapshot is None
        self.snapshot, self._error = message.snapshot, None
        self.lookout.sample(message.snapshot)
        self.show_latest()
        if first:
            self.look_for_anomalies()

    @on(Lost)
    def _lost(self, message: Lost) -> None:
        if self.poller.everywhere and isinstance(message.error, Refused):
            # Most likely it took too long; the list is to be there again at once.
            self.poller.everywhere = False
            self.poller.wake()
            self.say(f"not looked through all jobs: {message.error}", failed=True)
            return
        if self._error is None:
            self.say(str(message.error), failed=True)
        self._error = message.error
        self.show_latest()

    def show_latest(self) -> None:
        """Hands what is known to the screen on top; a screen asks for it when it is ready."""
        board = self._board()
        if board is not None:
            board.show(self.snapshot, self._link())

    def _tick(self) -> None:
        board = self._board()
        if board is None:
            return
        board.refresh_times()
        link = self._link()
        if link.stale != board.has_class("-stale"):
            board.show(self.snapshot, link)

    def _board(self) -> Board | None:
        # Under a dialog the board goes on showing what happens.
        boards = [screen for screen in self.screen_stack if isinstance(screen, Board) and screen.is_ready]
        return boards[-1] if boards else None

    def _link(self) -> Link:
        late = self.snapshot is not None and self.snapshot.clock.age() > _STALE + 3 * self.poller.pace
        return Link(
            interval_s=self.poller.pace.total_seconds(),
            slowed=self.poller.pace > self.poller.interval,
            paused=self.poller.paused,
            error=None if self._error is None else str(self._error),
            lost=isinstance(self._error, Unreachable),
            stale=late or self._error is not None,
            environment=self.environment,
            read_only=self.read_only is not None,
        )

    async def run_async(self, **more: Any) -> Any:
        """Runs until the operator leaves, or the terminal is gone: then Textual's own end may be cut short."""
        try:
            return await super().run_async(**more)
        finally:
            if isinstance(self._terminal, Terminal):
                self._terminal.let_go()

    async def action_quit(self) -> None:
        if isinstance(self.screen, BulkDialog) and self.screen.stop():
            # What was done, and what was not, is to be seen before the screen is gone.
            self.say("stopping after this job; once more leaves")
            return
        self.exit()


def _caller(app: LeasetopApp, action: str, target: Screen[object] | App[None]) -> Callable[[], object]:
    async def call() -> None:
        await app.run_action(action, default_namespace=target)

    return call
