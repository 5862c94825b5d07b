"""The first screen: tiles, tabs, the jobs table, and the details of the job under the cursor."""

import json

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Footer, Static

from leasetop import report, text
from leasetop.errors import LeasetopError
from leasetop.filter import exactly
from leasetop.model import Job, Snapshot, State, View
from leasetop.payload import pretty
from leasetop.tui import acts, plans
from leasetop.tui.screens.board import Board
from leasetop.tui.screens.bulk import BulkDialog
from leasetop.tui.screens.jump import JumpDialog
from leasetop.tui.screens.requeue import RequeueDialog
from leasetop.tui.screens.sort import SortDialog
from leasetop.tui.screens.sweep import SweepDialog
from leasetop.tui.widgets.detail import DetailPane
from leasetop.tui.widgets.filterline import FilterLine
from leasetop.tui.widgets.header import Header, Link
from leasetop.tui.widgets.jobs import Jobs
from leasetop.tui.widgets.rows import Rows
from leasetop.tui.widgets.tabs import Tabs
from leasetop.tui.widgets.tiles import Tile, Tiles

_MOST_MARKED = 5_000
"""Jobs of one act, at most."""


class JobsScreen(Board):
    """The jobs of one tab."""

    ACTS = acts.of(acts.On.JOBS)
    BINDINGS = [*(act.binding() for act in ACTS)]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (140, "-wide")]

    def __init__(self) -> None:
        super().__init__()
        self._detail_is_due = False
        self._payload_shown = False

    def compose(self) -> ComposeResult:
        yield Header()
        yield Tiles()
        yield Static(id="notes", markup=False)
        yield Tabs()
        yield FilterLine()
        with Horizontal(id="body"):
            yield Jobs(self.top.queue.profile, id="jobs")
            yield DetailPane(id="detail")
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one(DetailPane).local = self.top.config.times == "local"
        self.query_one(Jobs).focus()

    @property
    def view(self) -> View:
        """The tab."""
        return self.top.poller.view

    def show(self, snapshot: Snapshot | None, link: Link) -> None:
        super().show(snapshot, link)
        self.query_one(Tabs).show(snapshot, self.view, self.top.poller.skipped)
        said = [link.error] if link.error else list(snapshot.notes) if snapshot else []
        odd = self.top.anomalies.total if self.top.anomalies else 0
        if odd and not link.error:
            said.insert(0, f"{text.count(odd)} {'anomaly' if odd == 1 else 'anomalies'}: A says what and where")
        notes = self.query_one("#notes", Static)
        notes.display = bool(said)
        # What a known queue lacks is known, too: a line is enough, and the chooser has the rest.
        notes.set_class(self.top.queue.profile.label != "own" and not link.error and not odd, "-known")
        line = " " + "; ".join(map(text.safe, said))
        if line != str(notes.content):
            notes.update(Content(line))
        if snapshot is None:
            return
        self.query_one(Tiles).show(snapshot)
        if not self.top.poller.is_answer(snapshot):
            # Asked for before the tab or the filter was changed: the next one is under way, or cannot be had.
            if link.error:
                self.query_one(Jobs).show((), empty=_nothing(snapshot, link))
            return
        self.query_one(FilterLine).show(snapshot)
        table = self.query_one(Jobs)
        table.sort_shown(None if snapshot.sort is None else (snapshot.sort, snapshot.descending))
        table.clock = snapshot.clock
        self._drop_marks_of_those_gone(snapshot)
        table.ghost_says = "(left)" if _is_whole(snapshot) else "(beyond)"
        table.show(((job.key, job) for job in snapshot.jobs), empty=_nothing(snapshot, link))
        if self.has_class("-detail"):
            # Of another tab, too.
            table.hold_cursor()
            self._load_detail()

    def on_resize(self) -> None:
        self.call_after_refresh(self._focus_what_is_shown)

    def _focus_what_is_shown(self) -> None:
        """With the details beside it the table has the keys again, and where they fill the screen they have them."""
        table, pane = self.query_one(Jobs), self.query_one(DetailPane)
        if not self.has_class("-detail") or not (table.has_focus or pane.has_focus or self.focused is None):
            return
        if self.has_class("-narrow"):
            pane.focus()
            return
        table.focus()
        if table.selected is not None:
            table.put_cursor(table.selected.key)

    def _drop_marks_of_those_gone(self, snapshot: Snapshot) -> None:
        """An act is not to reach a job that can no longer be seen; where the list is cut, it may only be further on."""
        table, there = self.query_one(Jobs), {job.key for job in snapshot.jobs}
        gone = [job for job in table.marked if job.key not in there] if _is_whole(snapshot) else []
        if gone:
            table.unmark({job.key for job in gone})
            names = ", ".join(text.safe(job.id, 30) for job in gone[:5]) + (" ..." if len(gone) > 5 else "")
            self.top.say(f"{text.plural(len(gone), 'marked job')} left this list, and the mark with it: {names}")

    def refresh_times(self) -> None:
        super().refresh_times()
        table = self.query_one(Jobs)
        if table.clock is not None:
            table.refresh_times()

    def action_view(self, name: str) -> None:
        view = View(name)
        if view is self.view:
            return
        self.top.poller.view = view
        self.top.poller.from_the_beginning()
        self._another_list()
        self.query_one(Jobs).show_view(view)
        self.query_one(Tabs).show(self.top.snapshot, view)
        self.top.poller.wake()

    def _another_list(self, keep_cursor: bool = False) -> None:
        table = self.query_one(Jobs)
        if table.marked:
            self.top.say(f"{text.plural(len(table.marked), 'mark')} taken away: the list is another now")
        table.forget(keep_cursor)

    @on(Tile.Chosen)
    def _tab_clicked(self, message: Tile.Chosen) -> None:
        self.action_view(message.view)

    @on(Rows.Chosen, "#jobs")
    def action_details(self) -> None:
        if self.has_class("-detail"):
            self.action_back()
            return
        if self.query_one(Jobs).selected is None:
            self.top.say("no job under the cursor")
            return
        # What is read is not to become another job.
        self.query_one(Jobs).hold_cursor()
        self.add_class("-detail")
        if self.has_class("-narrow"):
            # The table is not to be seen then: the keys of moving are the pane's.
            self.query_one(DetailPane).focus()
        self._load_detail()

    def action_back(self) -> None:
        """One step back: out of the details, then the marks, then the filter."""
        table = self.query_one(Jobs)
        if self.has_class("-detail"):
            self.remove_class("-detail")
        elif table.marked:
            table.unmark()
        else:
            self.query_one(FilterLine).action_clear()
        table.focus()

    def action_find(self) -> None:
        self.query_one(FilterLine).open()

    def find(self, line: str, view: View | None = None) -> None:
        """Filters by a line that was not typed."""
        if view is not None:
            self.action_view(view.value)
        self.query_one(FilterLine).put(line)
        self.query_one(Jobs).focus()

    @on(FilterLine.Changed)
    def _filtered(self, message: FilterLine.Changed) -> None:
        self.top.poller.chosen = message.chosen
        self.top.poller.from_the_beginning()
        self._another_list(keep_cursor=True)
        self.top.poller.wake()

    @on(FilterLine.Left)
    def _filter_left(self) -> None:
        self.query_one(Jobs).focus()

    @work(exclusive=True, group="choose")
    async def action_sort(self) -> None:
        table, poller = self.query_one(Jobs), self.top.poller
        columns = [column.sort for column in table.columns if column.sort is not None]
        chosen = await self.top.push_screen_wait(SortDialog(columns, (poller.sort, poller.descending)))
        if chosen is not None:
            self._sort(*chosen)

    @on(Rows.Sorted, "#jobs")
    def _title_clicked(self, message: Rows.Sorted) -> None:
        poller = self.top.poller
        self._sort(message.sort, message.sort == poller.sort and not poller.descending)

    def _sort(self, sort: str | None, descending: bool) -> None:
        if sort is not None and not self.query_one(Jobs).has_room_for(sort):
            # No title shows the arrow.
            self.top.say(f"sorted by {sort}, {'downwards' if descending else 'upwards'}; there is no room to show it")
        self.top.poller.sort, self.top.poller.descending = sort, descending
        self.top.poller.from_the_beginning()
        self.top.poller.wake()

    @work(exclusive=True, group="choose")
    async def action_jump(self) -> None:
        given = await self.top.push_screen_wait(JumpDialog())
        if given is None:
            return
        async with self.top.acting():
            if (await self.top.queue.find_jobs([given]))[given] is None:
                self.top.say(f"there is no job {text.safe(given)}", failed=True)
            else:
                self.find(exactly("id", given), View.ALL)

    def action_mark(self) -> None:
        self.query_one(Jobs).mark()

    def action_mark_all(self) -> None:
        """All that match: also those beyond the rows that are loaded."""
        snapshot = self.top.snapshot
        if snapshot is None or not self.top.poller.is_answer(snapshot) or _is_whole(snapshot):
            self.query_one(Jobs).mark_all()
        else:
            self._mark_all_that_match()

    @work(exclusive=True, group="act")
    async def _mark_all_that_match(self) -> None:
        table, poller = self.query_one(Jobs), self.top.poller
        async with self.top.acting():
            async with self.top.asking():
                found = await self.top.queue.snapshot(
                    poller.view,
                    _MOST_MARKED,
                    chosen=poller.chosen,
                    sort=poller.sort,
                    descending=poller.descending,
                    everywhere=poller.everywhere,
                )
            table.mark_all((job.key, job) for job in found.jobs)
            if len(found.jobs) >= _MOST_MARKED:
                self.top.say(f"the first {text.count(_MOST_MARKED)} are marked: there are more")

    @on(Rows.Marked, "#jobs")
    def _marked(self) -> None:
        self.query_one(Tabs).show_marks(len(self.query_one(Jobs).marked))

    @on(Rows.Ended, "#jobs")
    def _ended(self) -> None:
        snapshot = self.top.snapshot
        if snapshot is None or not self.top.poller.is_answer(snapshot) or self.top.poller.more(snapshot):
            return
        if len(snapshot.jobs) >= snapshot.limit and snapshot.jobs[-1].place is None:
            self.top.say(f"the first {text.count(snapshot.limit)} are shown: / finds one among the others")

    @on(Rows.Begun, "#jobs")
    def _begun(self) -> None:
        self.top.poller.less()

    def action_everywhere(self) -> None:
        if self.query_one(FilterLine).is_short(self.top.snapshot):
            self.top.poller.look_everywhere()
            self.top.say("looking through all jobs: that may take long")
        else:
            self.top.say("nothing to look through: all jobs are looked at already")

    def action_queues(self) -> None:
        self.top.choose_queue()

    def action_anomalies(self) -> None:
        if self.top.snapshot is not None:
            self.top.open_anomalies()

    def action_journal(self) -> None:
        self.top.open_journal()

    def action_export(self) -> None:
        table = self.query_one(Jobs)
        if table.clock is not None:
            now = table.clock.now()
            snapshot = self.top.snapshot
            more = snapshot is not None and not _is_whole(snapshot)
            beyond = "; there are more than those that are shown: G at the end of the list loads them" if more else ""
            self.top.export("jobs", [report.job_json(job, now) for job in table.values], beyond)

    def action_workers(self) -> None:
        self.top.open_workers()

    def action_trends(self) -> None:
        self.top.open_trends()

    @on(Rows.Moved, "#jobs")
    def _moved(self) -> None:
        if self.has_class("-detail"):
            self._load_detail()

    def _load_detail(self) -> None:
        """Asks for the details of the job under the cursor; where an answer is under way still, once more after it."""
        self._detail_is_due = True
        if not any(worker.group == "detail" and not worker.is_finished for worker in self.workers):
            self._load_details()

    @work(group="detail")
    async def _load_details(self) -> None:
        table, pane = self.query_one(Jobs), self.query_one(DetailPane)
        while self._detail_is_due:
            self._detail_is_due = False
            job = table.selected
            if job is None:
                pane.say("no job under the cursor")
                continue
            try:
                detail = await self.top.queue.detail(job.key)
                payload = await self._payload_of(job) if self._payload_shown else ""
            except LeasetopError as error:
                pane.fail(str(error))
                continue
            # The cursor may have moved on while the answer was under way; then another one is due.
            if table.selected is not None and table.selected.key == job.key:
                pane.show(detail, job.id, _GHOSTS[table.ghost_says] if table.on_ghost else "", payload)

    async def _payload_of(self, job: Job) -> str:
        payload = await self.top.queue.payload(job.key)
        if payload is None:
            return "none is kept"
        said = pretty(payload.text, self.top.config.mask)
        cut = payload.length - len(payload.text)
        return f"{said}\n... and {text.count(cut)} more characters" if cut > 0 else said

    def action_payload(self) -> None:
        if not self.has_class("-detail"):
            self._payload_shown = True
            self.action_details()
            return
        self._payload_shown = not self._payload_shown
        self._load_detail()

    def action_local_times(self) -> None:
        pane = self.query_one(DetailPane)
        pane.local = not pane.local
        self.top.say(f"absolute times are {'those of this machine' if pane.local else 'UTC'}")
        if self.has_class("-detail"):
            self._load_detail()

    @work(exclusive=True, group="copy")
    async def action_copy(self, what: str) -> None:
        job, clock = self.query_one(Jobs).selected, self.query_one(Jobs).clock
        if job is None or clock is None:
            self.top.say("no job under the cursor")
            return
        if what == "id":
            copied = job.id
        else:
            told = report.job_json(job, clock.now())
            if self._payload_shown:
                async with self.top.acting():
                    told["payload"] = await self._payload_of(job)
            copied = json.dumps(told, ensure_ascii=False)
        self.app.copy_to_clipboard(copied)
        self.top.say(f"copied, where the terminal allows it: {text.safe(copied, 60)}")

    def action_requeue(self) -> None:
        table = self.query_one(Jobs)
        one = table.marked[0] if len(table.marked) == 1 else table.selected
        if len(table.marked) > 1:
            self._act("requeue")
        elif one is None:
            self.top.say("no job under the cursor")
        elif self.top.may_act("requeue"):
            self._requeue(one)

    @work(exclusive=True, group="act")
    async def _requeue(self, job: Job) -> None:
        async with self.top.acting():
            async with self.top.asking():
                detail = await self.top.queue.detail(job.key)
            if detail.job is None:
                self.top.say(f"job {text.safe(job.id)} is gone: nothing to requeue", failed=True)
                return
            queue = self.top.queue
            dialog = RequeueDialog(detail, detail.job, job, queue.profile, self.top.config, queue.detail)
            decision = await self.top.push_screen_wait(dialog)
            if decision is None:
                return
            outcome = await self.top.queue.requeue(decision.job, self.top.actor, decision.reason, decision.force)
            self.top.say(outcome.words, failed=not outcome.done)
            self.top.note_requeued([(decision.job, outcome)])

    def action_act(self, name: str) -> None:
        self._act(name)

    def _act(self, name: str) -> None:
        """An act on the marked jobs, or on the one under the cursor."""
        table = self.query_one(Jobs)
        jobs = table.marked or ([table.selected] if table.selected else [])
        if not jobs:
            self.top.say("no job under the cursor")
        elif self.top.may_act(name):
            self._act_on(name, jobs)

    @work(exclusive=True, group="act")
    async def _act_on(self, name: str, jobs: list[Job]) -> None:
        async with self.top.acting():
            # As they are now, not as a list of some seconds ago had them: this is what the act will be guarded by.
            async with self.top.asking():
                found = await self.top.queue.read_jobs([job.key for job in jobs])
            current = [job for job in found.values() if job is not None]
            if len(current) < len(jobs):
                self.top.say(f"{text.plural(len(jobs) - len(current), 'job')} of these are gone", failed=True)
            if not current:
                return
            plan = plans.plan(name, self.top.queue, self.top.actor, current, self.top.server_clock, self.top.config)
            outcomes = await self.top.push_screen_wait(BulkDialog(plan, current, self.top.server_clock))
            if name == "requeue":
                by_key = {job.key: job for job in current}
                self.top.note_requeued([(by_key[outcome.key], outcome) for outcome in outcomes])
            # Those that were not tried keep their marks.
            self.query_one(Jobs).unmark({outcome.key for outcome in outcomes})

    @work(exclusive=True, group="act")
    async def action_undo(self) -> None:
        if self.top.undoable is None:
            self.top.say("nothing to undo: only the latest single requeue of this session can be taken back")
            return
        if not self.top.may_act("undo_requeue"):
            return
        before, after = self.top.undoable
        async with self.top.acting():
            plan = plans.undo(self.top.queue, self.top.actor, before)
            async with self.top.asking():
                now = (await self.top.queue.read_jobs([after.key]))[after.key]
            if now is None or now.fence != after.fence:
                state = "gone" if now is None else now.reason or now.state
                self.top.say(f"job {text.safe(after.id)} has changed since its requeue: it is {state} now", failed=True)
                self.top.undoable = None
                return
            outcomes = await self.top.push_screen_wait(BulkDialog(plan, [now], self.top.server_clock))
            # Where it failed for another reason than that the job has changed, it can be tried again.
            if any(outcome.done or "SQLSTATE" not in outcome.words for outcome in outcomes):
                self.top.undoable = None

    def show_queue(self) -> None:
        """Another queue from now on."""
        self.remove_class("-detail")
        self.query_one(FilterLine).put("")
        self.top.poller.sort, self.top.poller.descending = None, False
        table = self.query_one(Jobs)
        table.show_queue(self.top.queue.profile)
        table.focus()

    def action_sweep(self) -> None:
        if self.top.may_act("sweep"):
            self._sweep()

    @work(exclusive=True, group="act")
    async def _sweep(self) -> None:
        async with self.top.acting():
            async with self.top.asking():
                preview = await self.top.queue.expired()
            window = self.top.config.idempotency_window
            dialog = SweepDialog(preview, self.top.policy, self.top.server_clock, self.top.queue.profile, window)
            decision = await self.top.push_screen_wait(dialog)
            if decision is None:
                return
            swept = await self.top.queue.sweep(decision.policy, self.top.actor, decision.jobs, self.top.backoff)
            self.top.say(_swept(len(swept), len(decision.jobs)), failed=not swept)


_GHOSTS = {
    "(left)": "It left this list.",
    "(beyond)": "It is no longer among the jobs that are listed here.",
}


def _is_whole(snapshot: Snapshot) -> bool:
    """Whether the jobs are all that there are of the tab and the filter."""
    return len(snapshot.jobs) < snapshot.limit and snapshot.after is None


def _swept(done: int, shown: int) -> str:
    if done == shown:
        return f"{text.plural(done, 'expired lease')} swept"
    return f"{done} of {text.plural(shown, 'expired lease')} swept: the others changed, or are locked or protected"


def _nothing(snapshot: Snapshot, link: Link) -> str:
    """Why there is no row. That there is none must not be said of what is not known."""
    if link.error or link.stale:
        return "Not known now: what was read is old."
    unknown = [state for state in snapshot.view.states if state not in snapshot.tallies]
    if len(unknown) == len(snapshot.view.states):
        return f"Not known: this queue does not keep what is {' or '.join(unknown)}."
    if snapshot.chosen:
        if not snapshot.everywhere and any(snapshot.tallies[state].capped for state in snapshot.tallies):
            return "No job matches the filter among those that were looked at."
        elsewhere = "" if snapshot.view is View.ALL else " in these states; 7 looks at all"
        return f"No job matches the filter{elsewhere}."
    if snapshot.view is View.STUCK:
        return "Nothing is stuck."
    if snapshot.view is View.ACTIVE:
        if State.STUCK in unknown:
            return "Nothing waits or runs; what is stuck is not known."
        return "The queue is empty: nothing waits, runs or is stuck."
    return f"No jobs in {snapshot.view}."
