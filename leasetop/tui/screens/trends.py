"""The last hour by the minute: what was completed, what failed, which leases expired, how long the oldest waits.

Beneath, the jobs that whoever takes them loses, and the owners that lose or fail most. The history is asked for only
while this screen is open.
"""

from datetime import datetime, timedelta
from functools import partial

from textual import on
from textual.app import ComposeResult
from textual.containers import Grid, Horizontal
from textual.content import Content
from textual.widgets import Footer, Static

from leasetop import text
from leasetop.filter import exactly
from leasetop.model import Noisy, Poison, Snapshot, View
from leasetop.tui import acts
from leasetop.tui.screens.board import Board
from leasetop.tui.widgets import trendplot
from leasetop.tui.widgets.header import Header, Link
from leasetop.tui.widgets.jobs import Jobs
from leasetop.tui.widgets.rows import Cell, Column, Rows
from leasetop.tui.widgets.trendplot import TrendPlot

_TICK_S = 1.0


class TrendsScreen(Board):
    """Four curves and two short tables."""

    ACTS = acts.of(acts.On.TRENDS)
    BINDINGS = [*(act.binding() for act in ACTS)]

    def __init__(self) -> None:
        super().__init__()
        self._completed = TrendPlot("Completed", "completed", trendplot.of_counts())
        self._failed = TrendPlot("Failed", "failed", trendplot.of_counts())
        self._expired = TrendPlot("Expired leases", "stuck", trendplot.of_counts())
        self._pending = TrendPlot("Oldest pending", "pending", trendplot.of_spans())
        self._poison: Rows[Poison] = Rows(
            [
                Column("POISON JOB", 10, lambda job, _: (text.safe(job.id, 60), "stuck")),
                Column("TRIES", 5, lambda job, _: (text.count(job.attempts), "stuck"), right=True),
                Column("LAST OWNER", 13, lambda job, _: (text.safe(job.owner) or "-", ""), share=1),
                Column("SINCE", 6, self._since, right=True, ticks=True),
            ],
            id="poison",
        )
        self._noisy: Rows[Noisy] = Rows(
            [
                Column("NOISY OWNER", 13, lambda owner, _: (text.safe(owner.owner), ""), share=1),
                Column("EXPIRED", 7, partial(_number, "expired", "stuck"), right=True),
                Column("FAILED", 6, partial(_number, "failed", "failed"), right=True),
                Column("COMPLETED", 9, partial(_number, "completed", ""), right=True),
            ],
            id="noisy",
        )

    def compose(self) -> ComposeResult:
        yield Header()
        yield Static(id="known", markup=False)
        with Grid(id="plots"):
            yield from (self._completed, self._failed, self._expired, self._pending)
        with Horizontal(id="tables"):
            yield from (self._poison, self._noisy)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self._poison.focus()
        self._show_trends()
        self.top.look_if_due()
        self.set_interval(_TICK_S, self.top.look_if_due)

    def show(self, snapshot: Snapshot | None, link: Link) -> None:
        super().show(snapshot, link)
        if snapshot is not None:
            self._show_pending(snapshot.now)
            self._show_known()

    def refresh_times(self) -> None:
        super().refresh_times()
        self._poison.refresh_times()

    def looked(self) -> None:
        self._show_trends()

    def _show_trends(self) -> None:
        self._show_known()
        trends = self.top.lookout.latest
        if trends is None:
            for plot in (self._completed, self._failed, self._expired):
                plot.say("nothing is known yet" if self.top.lookout.error else "asking ...")
            self._poison.show([], empty="")
            self._noisy.show([], empty="")
            return
        known = trends.known_since
        when = "in the last hour" if known is None else f"since {known:%H:%M:%S}Z"
        _count(self._completed, [minute.completed for minute in trends.minutes], f"Nothing was completed {when}.")
        _count(self._failed, [minute.failed for minute in trends.minutes], f"Nothing failed {when}.")
        _count(self._expired, [minute.expired for minute in trends.minutes], f"No lease expired {when}.")
        self._poison.show(((job.key, job) for job in trends.poison), empty=f"None {when}.")
        self._noisy.show(((owner.owner, owner) for owner in trends.noisy), empty=f"None {when}.")
        if self._poison.has_focus and not trends.poison and trends.noisy:
            # An empty table has nothing to choose.
            self._noisy.focus()

    def _show_known(self) -> None:
        lookout, lines = self.top.lookout, []
        trends = lookout.latest
        if lookout.error is not None:
            lines.append(f"The history cannot be read: {text.safe(lookout.error)}")
        elif trends is not None and trends.known_since is not None:
            since, look = f"{trends.known_since:%H:%M:%S}Z", text.count(trends.look)
            lines.append(f"Known since {since} only: the newest {look} ends of attempts reach so far.")
        sampled = lookout.ages.since
        own = f"sampled here since {sampled:%H:%M:%S}Z, " if sampled is not None else ""
        lines.append(f"By the minute. Oldest pending: {own}no table keeps it.")
        self.query_one("#known", Static).update(Content("\n".join(f" {line}" for line in lines)))

    def _show_pending(self, now: datetime) -> None:
        ages = self.top.lookout.ages
        if ages.latest is None or ages.since is None:
            self._pending.say("This queue does not tell how long its pending jobs wait.")
            return
        minutes = ages.by_minute(now)
        most = max(minutes.values(), default=timedelta())
        figures = f"{text.duration(ages.latest)} now, most {text.duration(most)}"
        if not most:
            self._pending.say(f"Nothing has waited since {ages.since:%H:%M:%S}Z.")
        elif len(minutes) < 2:
            self._pending.say("A curve needs two minutes of samples.", figures)
        else:
            self._pending.show({ago: age.total_seconds() for ago, age in minutes.items()}, figures)

    def _since(self, job: Poison, _: int) -> Cell:
        latest = self.top.lookout.latest
        return ("-" if latest is None else text.duration(latest.clock.now() - job.since)), ""

    def action_back(self) -> None:
        self.top.pop_screen()

    @on(Rows.Chosen)
    def action_show_job(self) -> None:
        job, owner = self._poison.selected, self._noisy.selected
        if self._noisy.has_focus and owner is not None:
            line = exactly("owner", owner.owner)
        elif self._poison.has_focus and job is not None:
            line = exactly("id", job.id)
        else:
            self.top.say("nothing under the cursor")
            return
        self.top.pop_screen()
        self.top.show_latest()
        table = self.top.screen.query_one(Jobs)
        if job is not None and line == exactly("id", job.id) and any(one.key == job.key for one in table.values):
            table.put_cursor(job.key)
        else:
            self.top.show_jobs(line, View.ALL)


def _count(plot: TrendPlot, counts: list[int], nothing: str) -> None:
    if any(counts):
        values = {ago: float(number) for ago, number in enumerate(reversed(counts))}
        plot.show(values, f"{text.count(counts[-1])}/min  {text.count(sum(counts))} in all")
    else:
        plot.say(nothing)


def _number(name: str, look: str, owner: Noisy, _: int) -> Cell:
    number: int = getattr(owner, name)
    return text.count(number), look if number else ""
