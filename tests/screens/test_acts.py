"""What keys do: on which job they act, when they are refused, and where the cursor stays."""

import types
from dataclasses import replace
from datetime import timedelta

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from leasetop.errors import Refused, Unreachable
from leasetop.model import State
from leasetop.tui.app import LeasetopApp
from leasetop.tui.screens.requeue import RequeueDialog
from leasetop.tui.widgets.header import Header
from leasetop.tui.widgets.jobs import Jobs
from tests.screens.still import JOBS, StillQueue, held, job


async def settled(pilot: Pilot[None]) -> None:
    """Until nothing but the poller is under way."""
    await pilot.pause()
    loading = [one for one in pilot.app.workers if one.group == "detail"]
    if loading:
        await pilot.app.workers.wait_for_complete(loading)
    await pilot.pause()


def cursor(app: LeasetopApp) -> str | None:
    selected = app.query_one(Jobs).selected
    return None if selected is None else selected.id


def said(app: LeasetopApp) -> str:
    return " | ".join(note.message for note in app._notifications)


async def test_the_cursor_stays_on_its_job_when_rows_come_above_it(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("j", "j", "j")
        before = cursor(app)
        still.jobs = (held(1, -50), held(2, -40), *still.jobs)
        await pilot.press("R")
        await settled(pilot)
        assert cursor(app) == before == "8863"


async def test_a_job_that_leaves_the_tab_keeps_the_cursor_until_it_is_moved(
    app: LeasetopApp, still: StillQueue
) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("j")
        still.change(8842, state=State.COMPLETED)
        await pilot.press("R")
        await settled(pilot)
        assert cursor(app) == "8842"
        assert app.query_one(Jobs).on_ghost
        await pilot.press("j")
        assert cursor(app) == "8843"
        assert not any(one.id == "8842" for one in app.query_one(Jobs).values)


async def test_scroll_stays_on_the_same_jobs_over_refreshes(app: LeasetopApp, still: StillQueue) -> None:
    still.jobs = tuple(job(number, State.PENDING) for number in range(100, 300))
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press(*["pagedown"] * 3)
        table = app.query_one(Jobs)
        before, line = cursor(app), table.scroll_y
        still.jobs = tuple(job(number, State.PENDING) for number in range(90, 300))
        await pilot.press("R")
        await settled(pilot)
        assert cursor(app) == before
        assert table.scroll_y == line + 10


async def test_the_dialog_acts_on_the_job_it_was_opened_for(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("r")
        await settled(pilot)
        still.jobs = (held(1, -50), *still.jobs)
        app.poller.wake()
        await settled(pilot)
        await pilot.press(*"pod died", "enter")
        await settled(pilot)
        assert still.acts == [("requeue", "8841", "ops@box", "pod died", False)]
        assert "job 8841: requeued" in said(app)


async def test_a_requeue_needs_a_reason(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("r")
        await settled(pilot)
        await pilot.press("space", "enter")
        await settled(pilot)
        assert still.acts == []
        assert isinstance(app.screen, RequeueDialog)
        await pilot.press("escape")
        assert still.acts == []


async def test_a_live_lease_needs_force_and_the_typed_id(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("3", "r")
        await settled(pilot)
        await pilot.press("enter")
        await settled(pilot)
        assert isinstance(app.screen, RequeueDialog) or still.acts == []
        if not isinstance(app.screen, RequeueDialog):
            # Enter on the focused Cancel closes the refusal; open it again.
            await pilot.press("r")
            await settled(pilot)
        await pilot.press("ctrl+f", *"host is dead", "enter")
        await settled(pilot)
        assert still.acts == []
        await pilot.press(*"8850", "enter")
        await settled(pilot)
        assert still.acts == [("requeue", "8850", "ops@box", "host is dead", True)]


async def test_a_completed_job_offers_no_requeue(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("6")
        await settled(pilot)
        await pilot.press("r")
        await settled(pilot)
        assert not app.screen.query_one("#reason", Input).display
        await pilot.press("ctrl+f")
        assert not app.screen.query_one("#reason", Input).display


async def test_a_sweep_takes_the_previewed_jobs(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("S")
        await settled(pilot)
        still.jobs = (held(1, -50), *still.jobs)
        await pilot.press("tab", "y")
        await settled(pilot)
        assert still.acts == [("sweep", "park", ["8841"])]


async def test_no_act_while_the_connection_is_lost(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        still.error = Unreachable("gone")
        await pilot.press("R")
        await settled(pilot)
        await pilot.press("r", "S")
        await settled(pilot)
        assert "no requeue: there is no connection" in said(app)
        assert "no sweep: there is no connection" in said(app)
        assert len(app.query_one(Jobs).values) > 0
        still.error = None
        await pilot.press("R")
        await settled(pilot)
        await pilot.press("S", "y")
        await settled(pilot)
        assert [act[0] for act in still.acts] == ["sweep"]


async def test_a_paused_screen_shows_the_age_of_its_data(
    app: LeasetopApp, stopped_clock: types.SimpleNamespace
) -> None:
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        await pilot.press("p")
        stopped_clock.now += 14
        app._tick()
        await settled(pilot)
        assert "PAUSED, data 14s old" in str(app.query_one(Header).content)


@pytest.mark.parametrize("key", ["enter", "r", "S", "w", "1", "7", "p", "R", "question_mark", "colon"])
async def test_every_key_is_harmless_on_an_empty_queue(app: LeasetopApp, still: StillQueue, key: str) -> None:
    still.jobs = ()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press(key)
        await settled(pilot)
        assert still.acts == []


async def test_the_palette_has_every_act(app: LeasetopApp) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        titles = {command.title for command in app.get_system_commands(app.screen)}
        assert {"Requeue (r)", "Sweep (S)", "Workers (w)", "Pause (p)", "Quit (q)"} <= titles


async def test_values_of_the_table_are_never_markup_or_escapes(app: LeasetopApp) -> None:
    async with app.run_test(size=(200, 40)) as pilot:
        await settled(pilot)
        await pilot.press("j", "j", "enter")
        await settled(pilot)
        assert cursor(app) == JOBS[2].id
        drawn = "".join(segment.text for y in range(40) for segment in app.screen._compositor.render_strips()[y])
        assert "[@click=app.quit]press me[/]" in drawn
        assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in drawn)


@pytest.mark.parametrize("keys", [[], ["r"], ["S"], ["w"], ["question_mark"], ["colon"]])
async def test_ctrl_c_quits_from_everywhere(app: LeasetopApp, keys: list[str]) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press(*keys)
        await settled(pilot)
        await pilot.press("ctrl+c")
        await settled(pilot)
        assert not app.is_running or app._exit


async def test_q_in_a_dialog_does_not_quit(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("6", "r")
        await settled(pilot)
        await pilot.press("q")
        await settled(pilot)
        assert not app._exit


async def test_no_act_while_the_database_does_not_answer(
    app: LeasetopApp, still: StillQueue, stopped_clock: types.SimpleNamespace
) -> None:
    app.poller.interval = timedelta(seconds=1)
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        app.poller.interval = timedelta(seconds=0.1)
        stopped_clock.now += 60
        await pilot.press("r")
        await settled(pilot)
        assert "no requeue: the database has not answered for 1m00s" in said(app)


async def test_markup_in_an_id_is_only_text(app: LeasetopApp, still: StillQueue) -> None:
    odd = held(1, -50)
    still.jobs = (replace(odd, key=("a[/b] [@click=app.quit]x",)),)
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("enter", "r")
        await settled(pilot)
        assert isinstance(app.screen, RequeueDialog)
        await pilot.press(*"why", "enter")
        await settled(pilot)
        assert [act[1] for act in still.acts] == ["a[/b] [@click=app.quit]x"]


async def test_a_lease_that_runs_out_in_the_dialog_moves_no_cursor(
    app: LeasetopApp, still: StillQueue, stopped_clock: types.SimpleNamespace
) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("3", "j", "r")
        await settled(pilot)
        dialog = app.screen
        assert isinstance(dialog, RequeueDialog)
        stopped_clock.now += 10
        dialog._judge()
        await settled(pilot)
        # Enter was meant for Cancel, and is taken for that.
        assert dialog.query_one("#reason").display
        await pilot.press("enter")
        await settled(pilot)
        assert app.screen is not dialog
        assert still.acts == []


async def test_what_the_database_refuses_is_no_lost_connection(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        still.error = Refused("no privilege for this: ask the owner of the table for it")
        await pilot.press("R")
        await settled(pilot)
        assert "REFUSED" in str(app.query_one(Header).content)
        await pilot.press("r")
        await settled(pilot)
        assert "since the database refuses it: no privilege" in said(app)


async def test_a_clock_that_is_off_is_told(app: LeasetopApp, still: StillQueue) -> None:
    still.skew = timedelta(seconds=75)
    async with app.run_test(size=(160, 30)) as pilot:
        await settled(pilot)
        assert "this clock 1m15s ahead" in str(app.screen.query_one(Header).content)


async def test_escape_takes_away_what_was_said(app: LeasetopApp) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        app.say("something long")
        await pilot.press("escape")
        await settled(pilot)
        assert said(app) == ""
