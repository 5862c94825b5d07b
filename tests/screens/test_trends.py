"""The trends: what they look like, what their keys do, and how often the history is asked."""

import types
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from textual.filter import Monochrome
from textual.pilot import Pilot
from textual.widgets import Static

from leasetop.clock import ServerClock
from leasetop.errors import Refused
from leasetop.model import Minute, Noisy, Snapshot, State, Tally, View
from leasetop.profile import Profile
from leasetop.tui import lookout
from leasetop.tui.app import LeasetopApp
from leasetop.tui.lookout import PendingAges
from leasetop.tui.screens.jobs import JobsScreen
from leasetop.tui.screens.trends import TrendsScreen
from leasetop.tui.widgets.jobs import Jobs
from leasetop.tui.widgets.rows import Rows
from leasetop.tui.widgets.trendplot import Curve, TrendPlot
from tests.screens.still import MONOTONIC, NOW, StillQueue, ago, snapshot, trends
from tests.screens.test_acts import cursor, said

Compare = Callable[..., bool]
SIZES = [(80, 24), (140, 40), (200, 60)]
QUIET = tuple(Minute(ago(minutes=n), 0, 0, 0) for n in range(60, 0, -1))


def sampled(minutes_ago: float, waited_s: float | None) -> Snapshot:
    """A snapshot of then, whose oldest pending job had waited so long; None: nothing waited."""
    then = ago(minutes=minutes_ago)
    made = snapshot()
    tally = Tally() if waited_s is None else Tally(1, False, then - timedelta(seconds=waited_s), then)
    return replace(made, clock=ServerClock(then, MONOTONIC), tallies={**made.tallies, State.PENDING: tally})


@pytest.fixture
def watched(app: LeasetopApp) -> LeasetopApp:
    """It has been running for 25 minutes; nothing answered for a while in between."""
    for minutes in (*range(25, 16, -1), *range(12, 0, -1)):
        app.lookout.sample(sampled(minutes, minutes % 13 * 45))
    return app


async def opened(pilot: Pilot[Any], *keys: str) -> None:
    await pilot.pause()
    for key in ("t", *keys):
        await pilot.press(key)
        loading = [one for one in pilot.app.workers if one.group == "trends"]
        if loading:
            await pilot.app.workers.wait_for_complete(loading)
        await pilot.pause()


def opening(*keys: str) -> Callable[[Pilot[Any]], Awaitable[None]]:
    return lambda pilot: opened(pilot, *keys)


@pytest.mark.parametrize("size", SIZES)
def test_trends(snap_compare: Compare, watched: LeasetopApp, size: tuple[int, int]) -> None:
    assert snap_compare(watched, terminal_size=size, run_before=opening())


@pytest.mark.parametrize("size", SIZES[:2])
def test_an_empty_history(snap_compare: Compare, app: LeasetopApp, still: StillQueue, size: tuple[int, int]) -> None:
    still.looked = replace(trends(), minutes=QUIET, poison=(), noisy=())
    assert snap_compare(app, terminal_size=size, run_before=opening())


def test_a_look_that_ended_early(snap_compare: Compare, watched: LeasetopApp, still: StillQueue) -> None:
    whole = trends()
    still.looked = replace(whole, minutes=whole.minutes[-17:], known_since=ago(minutes=17, seconds=40))
    assert snap_compare(watched, terminal_size=(80, 24), run_before=opening())


def test_a_refused_look(snap_compare: Compare, app: LeasetopApp, still: StillQueue) -> None:
    async def refuse(pilot: Pilot[Any]) -> None:
        await pilot.pause()
        still.error = Refused("no privilege for this: ask the owner of the table for it")
        await opened(pilot)

    assert snap_compare(app, terminal_size=(80, 24), run_before=refuse)


@pytest.fixture
def no_colour(terminal: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def few_colours(terminal: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-16color")
    monkeypatch.delenv("COLORTERM")


def test_with_few_colours(few_colours: None, snap_compare: Compare, still: StillQueue) -> None:
    app = LeasetopApp(still, actor="ops@box", interval=timedelta(hours=1))  # type: ignore[arg-type]
    states = {name: colour for name, colour in app.get_css_variables().items() if name.startswith("state-")}
    assert states["state-stuck"] == "#ff5555" and states["state-processing"] == "#55ff55"
    assert snap_compare(app, terminal_size=(80, 24), run_before=opening())


def test_without_colours(no_colour: None, snap_compare: Compare, still: StillQueue) -> None:
    app = LeasetopApp(still, actor="ops@box", interval=timedelta(hours=1))  # type: ignore[arg-type]
    assert any(isinstance(one, Monochrome) for one in app._filters)
    assert snap_compare(app, terminal_size=(80, 24), run_before=opening())


@pytest.mark.parametrize("key", ["escape", "t"])
async def test_back_to_the_jobs(app: LeasetopApp, key: str) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        assert isinstance(app.screen, TrendsScreen)
        await pilot.press(key)
        await pilot.pause()
        assert isinstance(app.screen, JobsScreen)


async def test_enter_goes_to_the_poison_job(app: LeasetopApp, still: StillQueue) -> None:
    still.looked = replace(trends(), poison=(replace(trends().poison[0], key=("8843",)),))
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot, "enter")
        assert isinstance(app.screen, JobsScreen)
        assert cursor(app) == "8843"
        assert not app.query_one(Jobs).on_ghost


async def test_enter_on_a_job_that_is_not_shown_looks_for_it(app: LeasetopApp, still: StillQueue) -> None:
    still.looked = replace(trends(), poison=(replace(trends().poison[0], key=("8099",)),))
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot, "enter")
        assert isinstance(app.screen, JobsScreen)
        assert (app.poller.chosen.text, app.poller.view) == ("id=8099", View.ALL)


async def test_enter_on_a_noisy_owner_shows_its_jobs(app: LeasetopApp) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot, "tab", "enter")
        assert isinstance(app.screen, JobsScreen)
        assert (app.poller.chosen.text, app.poller.view) == ("owner=pay-7f9c/4121/03aa", View.ALL)


async def test_enter_on_nothing_stays(app: LeasetopApp, still: StillQueue) -> None:
    still.looked = replace(trends(), poison=(), noisy=())
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot, "enter", "tab", "enter")
        assert isinstance(app.screen, TrendsScreen)


async def test_a_queue_without_history_says_so(app: LeasetopApp, still: StillQueue) -> None:
    profile: Profile = replace(still.profile, trends=None)
    still.profile = profile
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        assert isinstance(app.screen, JobsScreen)
        assert "no trends: payment_jobs keeps no history" in said(app)


async def test_the_history_is_asked_only_while_it_is_shown_and_at_most_every_ten_seconds(
    app: LeasetopApp, still: StillQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, now = [], 50.0
    look = still.trends

    async def counting() -> Any:
        asked.append(now)
        return await look()

    monkeypatch.setattr(still, "trends", counting)
    monkeypatch.setattr(lookout, "time", types.SimpleNamespace(monotonic=lambda: now))
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        assert asked == []
        await opened(pilot, "t", "t", "R")
        assert len(asked) == 1
        now = 59.0
        app.look_if_due()
        await pilot.pause()
        assert len(asked) == 1
        now = 60.0
        app.look_if_due()
        await pilot.pause()
        assert len(asked) == 2
        await pilot.press("p")
        now = 75.0
        app.look_if_due()
        await pilot.pause()
        assert len(asked) == 2


def test_a_costly_look_is_taken_less_often() -> None:
    kept = lookout.Lookout()
    assert kept.pace == timedelta(seconds=10)
    kept.latest = replace(trends(), cost=timedelta(milliseconds=400))
    assert kept.pace == timedelta(seconds=20)
    kept.latest = replace(trends(), cost=timedelta(seconds=4))
    assert kept.pace == timedelta(seconds=60)


def test_the_oldest_pending_is_sampled_for_an_hour() -> None:
    ages = PendingAges()
    for seconds in range(7200, -1, -1):
        ages.take(sampled(seconds / 60, seconds))
    minutes = ages.by_minute(NOW)
    assert sorted(minutes) == list(range(60))
    assert 50 <= minutes[0].total_seconds() < 60
    assert len(ages._slots) == 361
    assert ages.since == ago(hours=2)
    assert ages.latest == timedelta()


def test_a_queue_that_does_not_tell_how_long_jobs_wait_is_not_sampled() -> None:
    ages, made = PendingAges(), snapshot()
    ages.take(replace(made, tallies={**made.tallies, State.PENDING: Tally(5)}))
    ages.take(replace(made, tallies={}))
    assert ages.latest is None
    assert ages.by_minute(NOW) == {}


async def test_a_curve_has_the_colour_of_its_state_and_no_other(watched: LeasetopApp) -> None:
    async with watched.run_test(size=(140, 40)) as pilot:
        await opened(pilot)
        for curve in watched.screen.query(Curve):
            styles = {segment.style for y in range(curve.size.height) for segment in curve.render_line(y)}
            assert {style.color for style in styles if style} == {curve.rich_style.color}


async def test_a_resize_draws_the_curves_anew(watched: LeasetopApp) -> None:
    async with watched.run_test(size=(200, 60)) as pilot:
        await opened(pilot)
        await pilot.resize_terminal(60, 18)
        await pilot.pause()
        for plot in watched.screen.query(TrendPlot):
            assert plot.size.width == 30
        assert "By the minute" in str(watched.screen.query_one("#known", Static).content)


async def test_the_workers_screen_says_what_each_owner_lost(app: LeasetopApp, still: StillQueue) -> None:
    still.looked = replace(still.looked, noisy=(Noisy("pay-7f9c/4121/03aa", 12, 0, 3),))
    async with app.run_test(size=(140, 40)) as pilot:
        await pilot.pause()
        await pilot.press("w")
        await pilot.pause()
        await pilot.pause()
        table = app.screen.query_one("#owners", Rows)
        (lost,) = [column for column in table.columns if column.title == "LOST 1H"]
        assert {line.name: lost.cell(line, 7)[0] for line in table.values} == {
            "pay-7f9c/4121/03aa": "12",
            "pay-7f9c/4122/9d1e": "0",
        }


async def test_without_poison_jobs_the_noisy_owners_have_the_keys(app: LeasetopApp, still: StillQueue) -> None:
    still.looked = replace(trends(), poison=())
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot, "enter")
        assert isinstance(app.screen, JobsScreen)
        assert app.poller.chosen.text == "owner=pay-7f9c/4121/03aa"
