"""Finding, marking, and acting on many: the set that was shown is the set that is acted on."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from textual import events
from textual.pilot import Pilot
from textual.widgets import Input, Static

from leasetop.config import Config, Environment
from leasetop.errors import Refused
from leasetop.model import Detail, Evidence, Job, Key, Outcome, State, View
from leasetop.profile import shipped
from leasetop.text import count
from leasetop.tui.app import LeasetopApp
from leasetop.tui.screens.bulk import BulkDialog
from leasetop.tui.screens.jobs import JobsScreen
from leasetop.tui.screens.journal import JournalScreen
from leasetop.tui.screens.requeue import RequeueDialog
from leasetop.tui.screens.waiting import WaitingScreen
from leasetop.tui.widgets.detail import DetailPane
from leasetop.tui.widgets.filterline import FilterLine
from leasetop.tui.widgets.header import Header
from leasetop.tui.widgets.jobs import Jobs
from leasetop.tui.widgets.rows import Rows
from leasetop.tui.widgets.tabs import Tabs
from tests.screens.still import StillQueue, ago, job
from tests.screens.test_acts import cursor, said, settled


async def finished(pilot: Pilot[None], group: str) -> None:
    """Until no worker of a group is under way."""
    await pilot.pause()
    # Without any given, Textual would wait for all of them, and the poller never ends.
    under_way = [one for one in pilot.app.workers if one.group == group]
    if under_way:
        await pilot.app.workers.wait_for_complete(under_way)
    await settled(pilot)


async def typed(pilot: Pilot[None], line: str) -> None:
    await pilot.press(*("space" if letter == " " else letter for letter in line))
    await settled(pilot)


async def test_typing_filters_and_escape_clears(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("slash")
        app.screen.query_one("#filter", Input).value = "state:stuck owner:pay"
        await settled(pilot)
        assert app.poller.chosen.explained == "stuck, owner contains 'pay'"
        assert "stuck, owner contains 'pay'" in str(app.screen.query_one("#explained", Static).content)
        app.screen.query_one("#filter", Input).value = "state:stuck owner:pay age>so"
        await settled(pilot)
        assert app.poller.chosen.explained == "stuck, owner contains 'pay'"
        assert "no span" in str(app.screen.query_one("#explained", Static).content)
        # What is not understood stays to be mended.
        await pilot.press("enter")
        assert app.focused is app.screen.query_one("#filter", Input)
        await pilot.press("escape")
        await settled(pilot)
        assert not app.poller.chosen


async def test_sorting_is_shown_and_turned_round(app: LeasetopApp) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("s", "down", "enter")
        await settled(pilot)
        assert (app.poller.sort, app.poller.descending) == ("id", False)
        assert app.query_one(Jobs).sorted_by == ("id", False)
        await pilot.click(Jobs, offset=(2, 0))
        await settled(pilot)
        assert (app.poller.sort, app.poller.descending) == ("id", True)


async def test_at_the_end_of_a_full_page_more_is_asked_for(app: LeasetopApp, still: StillQueue) -> None:
    still.jobs = tuple(job(number, State.PENDING) for number in range(6_000))
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        table = app.query_one(Jobs)
        assert len(table.values) == 500
        await pilot.press("G", "j")
        await settled(pilot)
        assert len(table.values) == 1000
        for _ in range(8):
            await pilot.press("G")
            await settled(pilot)
        assert len(table.values) == 5000
        # As many as one refresh is to carry: the window moves on, and the cursor stays where it is.
        await pilot.press("G")
        await settled(pilot)
        assert [table.values[0].id, table.values[-1].id] == ["4501", "5999"]
        assert table.selected is not None
        assert table.selected.id == "4999"
        assert f"{count(1499)} from {count(4502)} of" in str(app.query_one(Tabs).content)
        await pilot.press("G", "j")
        await settled(pilot)
        assert table.values[-1].id == "5999"
        await pilot.press("g")
        await settled(pilot)
        assert [table.values[0].id, table.values[-1].id] == ["0", "4999"]
        assert table.selected.id == "4501"
        await pilot.press("2")
        await settled(pilot)
        assert len(table.values) == 500


async def test_a_filter_looks_through_all_jobs_when_it_is_asked_to(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(140, 30)) as pilot:
        await settled(pilot)
        await pilot.press("F")
        assert not app.poller.everywhere
        still.capped = True
        await pilot.press("slash", *"owner:pay", "enter")
        await settled(pilot)
        explained = app.query_one("#explained", Static)
        assert f"among the first {count(10_000)} of pending: F looks through all" in str(explained.content)
        await pilot.press("F")
        await settled(pilot)
        assert app.poller.everywhere
        assert "among all" in str(explained.content)
        still.slow = Refused("the server took too long")
        await pilot.press("R")
        await settled(pilot)
        assert not app.poller.everywhere
        assert "not looked through all jobs: the server took too long" in said(app)
        still.slow = None
        await pilot.press("F")
        await settled(pilot)
        await pilot.press("escape")
        assert not app.poller.everywhere


async def test_marks_stay_on_their_jobs_and_escape_takes_them_away(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("space", "space")
        marked = [one.id for one in app.query_one(Jobs).marked]
        assert len(marked) == 2
        still.jobs = tuple(reversed(still.jobs))
        await pilot.press("R")
        await settled(pilot)
        assert [one.id for one in app.query_one(Jobs).marked] == marked
        await pilot.press("escape")
        assert app.query_one(Jobs).marked == []


async def test_an_act_on_marked_jobs_is_done_to_those_it_may_be_done_to(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        await pilot.press("asterisk")
        marked = {one.id for one in app.query_one(Jobs).marked}
        await pilot.press("D")
        await settled(pilot)
        assert isinstance(app.screen, BulkDialog)
        assert "would be refused" in str(app.screen.query_one("#verdict", Static).content)
        await pilot.press("enter")
        assert still.acts == []
        assert "reason is needed" in str(app.screen.query_one("#hint", Static).content)
        # What a refresh brings meanwhile is not part of it.
        still.jobs = (job(1, State.PENDING), *still.jobs)
        await typed(pilot, "duplicates")
        await pilot.press("enter")
        await finished(pilot, "bulk")
        await settled(pilot)
        acted = {act[1] for act in still.acts}
        by_id = {one.id: one for one in still.jobs}
        assert acted == {
            id_ for id_ in marked if by_id[id_].state in (State.PENDING, State.SCHEDULED, State.STUCK, State.FAILED)
        }
        assert {(act[0], act[2], act[3]) for act in still.acts} == {("discard", "ops@box", "duplicates")}
        await pilot.press("escape")
        await settled(pilot)
        assert app.query_one(Jobs).marked == []


async def test_one_job_is_parked_without_a_mark(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("P")
        await settled(pilot)
        await typed(pilot, "wait")
        await pilot.press("enter")
        await finished(pilot, "bulk")
        assert still.acts == [("park", "8841", "ops@box", "wait")]


async def test_the_latest_requeue_can_be_undone_once(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("u")
        await settled(pilot)
        assert "nothing to undo" in said(app)
        await pilot.press("asterisk", "escape", "space", "r")
        await settled(pilot)
        await typed(pilot, "died")
        await pilot.press("enter")
        await finished(pilot, "bulk")
        await pilot.press("escape")
        await settled(pilot)
        assert [act[0] for act in still.acts] == ["requeue"]


async def test_the_payload_is_shown_on_demand_with_secrets_hidden(app: LeasetopApp) -> None:
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        await pilot.press("v")
        await settled(pilot)
        shown = str(app.screen.query_one(DetailPane).query_one(Static).content)
        assert '"amount": 12.30' in shown
        assert "4111" not in shown
        await pilot.press("v")
        await settled(pilot)
        assert "PAYLOAD" not in str(app.screen.query_one(DetailPane).query_one(Static).content)


async def test_an_id_and_a_job_are_copied(app: LeasetopApp) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("y")
        await settled(pilot)
        assert app.clipboard == "8841"
        await pilot.press("Y")
        await settled(pilot)
        assert json.loads(app.clipboard)["id"] == "8841"


async def test_a_jump_shows_a_job_of_whatever_state(app: LeasetopApp) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("J")
        await typed(pilot, "8861")
        await pilot.press("enter")
        await settled(pilot)
        assert app.poller.view is View.ALL
        assert app.poller.chosen.text == "id=8861"
        await pilot.press("J")
        await typed(pilot, "nobody")
        await pilot.press("enter")
        await settled(pilot)
        assert "there is no job nobody" in said(app)


async def test_an_owner_leads_to_its_jobs(app: LeasetopApp) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("w")
        await settled(pilot)
        await pilot.press("enter")
        await settled(pilot)
        assert app.poller.chosen.text.startswith("owner=pay-7f9c/")
        assert cursor(app) is not None


async def test_the_journal_is_narrowed_and_exported(app: LeasetopApp, tmp_path: Path) -> None:
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        await pilot.press("l")
        await settled(pilot)
        assert isinstance(app.screen, JournalScreen)
        await finished(pilot, "journal")
        await settled(pilot)
        assert len(app.screen.query_one(Rows).values) == 2
        await pilot.press("slash")
        await typed(pilot, "duplicate")
        await pilot.press("enter")
        await settled(pilot)
        assert [entry.actor for entry in app.screen.query_one(Rows).values] == ["eve@box"]
        await pilot.press("x")
        await settled(pilot)
        file = tmp_path / "acts.json"
        app.screen.query_one(Input).value = str(file)
        await pilot.press("enter")
        await finished(pilot, "export")
        (written,) = json.loads(file.read_text())
        assert (written["actor"], written["done"]) == ("eve@box", False)
        await pilot.press("escape", "escape")
        await settled(pilot)
        assert not isinstance(app.screen, JournalScreen)


async def test_the_jobs_that_are_shown_are_exported(app: LeasetopApp, tmp_path: Path) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("x")
        await settled(pilot)
        file = tmp_path / "jobs.csv"
        app.screen.query_one(Input).value = str(file)
        await pilot.press("enter")
        await finished(pilot, "export")
        lines = file.read_text().splitlines()
        assert lines[0].startswith("id,state,reason,")
        assert len(lines) == 1 + len(app.query_one(Jobs).values)
        assert file.stat().st_mode & 0o777 == 0o600


async def test_what_only_its_own_tool_can_do_is_a_command_to_copy(app: LeasetopApp, still: StillQueue) -> None:
    still.profile = next(profile for profile in shipped() if profile.id == "dbos")
    still.jobs = (replace(still.jobs[0], key=("it's; rm -rf",)),)
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        await pilot.press("r")
        await settled(pilot)
        await pilot.click("#copy")
        await settled(pilot)
        assert app.clipboard == """dbos workflow resume 'it'"'"'s; rm -rf'"""
        await pilot.press("enter")
        assert still.acts == []


async def test_where_age_is_all_the_evidence_the_id_must_be_typed(app: LeasetopApp, still: StillQueue) -> None:
    still.profile = replace(still.profile, evidence=Evidence.AGE)
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        await pilot.press("r")
        await settled(pilot)
        await typed(pilot, "died")
        await pilot.press("enter")
        assert still.acts == []
        await typed(pilot, "8841")
        await pilot.press("enter")
        await finished(pilot, "act")
        assert still.acts == [("requeue", "8841", "ops@box", "died", False)]


async def test_where_age_is_all_the_evidence_a_sweep_needs_their_number(app: LeasetopApp, still: StillQueue) -> None:
    still.profile = replace(still.profile, evidence=Evidence.AGE)
    number = str(len(await still.expired()))
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        await pilot.press("S")
        await settled(pilot)
        await pilot.press("y", "enter")
        assert still.acts == []
        await pilot.press("backspace")
        await typed(pilot, number)
        await pilot.press("enter")
        await finished(pilot, "act")
        assert [act[0] for act in still.acts] == ["sweep"]


async def test_a_late_finisher_is_told(app: LeasetopApp, still: StillQueue) -> None:
    still.profile = replace(still.profile, completion_fenced=False)
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        await pilot.press("r")
        await settled(pilot)
        await typed(pilot, "died")
        await pilot.press("enter")
        await finished(pilot, "act")
        still.change(8841, state=State.PENDING, reason=None, owner=None)
        app._look_for_late_finishers()
        await finished(pilot, "late")
        assert "came late" not in said(app)
        still.change(8841, state=State.COMPLETED)
        app._look_for_late_finishers()
        await finished(pilot, "late")
        assert "perhaps pay-7f9c/4121/03aa came late" in said(app)
        assert not app.late.any


async def test_a_job_that_was_claimed_anew_has_no_late_finisher(app: LeasetopApp, still: StillQueue) -> None:
    still.profile = replace(still.profile, completion_fenced=False)
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        app.late.watch(still.jobs[0])
        still.change(8841, state=State.PROCESSING, reason=None, owner="pay-9/1/cc")
        app._look_for_late_finishers()
        await finished(pilot, "late")
        assert not app.late.any
        assert "came late" not in said(app)


async def test_on_a_standby_no_act_is_begun(app: LeasetopApp, still: StillQueue) -> None:
    still.standby = True
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        await pilot.press("D")
        await settled(pilot)
        assert "this server is a standby" in said(app)


async def test_the_settings_shape_the_screen(still: StillQueue) -> None:
    environment = Environment("prod", "payments@*", "red")
    config = Config(
        theme="nord", mask=("order",), require_reason=False, idempotency_window=timedelta(minutes=1), times="local",
        environments=(environment,),
    )  # fmt: skip
    app = LeasetopApp(still, actor="ops@box", interval=timedelta(hours=1), config=config)  # type: ignore[arg-type]
    still.change(8841, created_at=ago(hours=2))
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        assert app.theme == "nord"
        assert " prod " in str(app.screen.query_one(Header).content)
        await pilot.press("v")
        await settled(pilot)
        shown = str(app.screen.query_one(DetailPane).query_one(Static).content)
        assert '"order": "••••"' in shown and "4111" in shown
        await pilot.press("escape", "r")
        await settled(pilot)
        assert "the provider knows its key for 1m00s only" in str(app.screen.query_one("#told", Static).content)
        await pilot.press("enter")
        await finished(pilot, "act")
        assert still.acts == [("requeue", "8841", "ops@box", "", False)]


async def test_read_only_says_why_and_begins_nothing(still: StillQueue) -> None:
    app = LeasetopApp(still, actor="ops@box", interval=timedelta(hours=1), read_only="read_only is set")  # type: ignore[arg-type]
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        assert "READ-ONLY" in str(app.screen.query_one(Header).content)
        for key in ("r", "D", "S", "P"):
            await pilot.press(key)
            await settled(pilot)
            assert type(app.screen).__name__ == "JobsScreen"
        assert said(app).count("read_only is set") == 4


async def test_a_theme_that_was_chosen_is_there_the_next_time(still: StillQueue) -> None:
    for theme in ("gruvbox", None):
        app = LeasetopApp(still, actor="ops@box", interval=timedelta(hours=1))  # type: ignore[arg-type]
        async with app.run_test(size=(140, 40)) as pilot:
            await settled(pilot)
            if theme:
                app.theme = theme
                await settled(pilot)
            assert app.theme == "gruvbox"


async def test_undo_asks_and_survives_a_failure_from_outside(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        before = job(301, State.FAILED)
        after = replace(before, state=State.PENDING)
        still.jobs = (*still.jobs, after)
        app.undoable = (before, after)
        await pilot.press("u")
        await settled(pilot)
        assert isinstance(app.screen, BulkDialog)
        await pilot.press("escape")
        await settled(pilot)
        assert still.acts == []
        assert app.undoable is not None
        await pilot.press("u")
        await settled(pilot)
        await pilot.press("enter")
        await finished(pilot, "bulk")
        assert [act[:2] for act in still.acts] == [("undo_requeue", "301")]
        await pilot.press("escape")
        await settled(pilot)
        assert app.undoable is None


async def test_what_has_changed_since_its_requeue_is_not_offered_for_undo(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        before = job(301, State.FAILED)
        still.jobs = (*still.jobs, replace(before, state=State.COMPLETED, fence="another"))
        app.undoable = (before, replace(before, state=State.PENDING))
        await pilot.press("u")
        await settled(pilot)
        assert isinstance(app.screen, JobsScreen)
        assert "job 301 has changed since its requeue: it is completed now" in said(app)
        assert app.undoable is None


async def test_the_details_stay_on_their_job_when_it_is_done(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("enter")
        await settled(pilot)
        still.change(8841, gone=True)
        await pilot.press("R")
        await settled(pilot)
        assert cursor(app) == "8841"
        assert app.query_one(Jobs).on_ghost


async def test_jobs_that_can_be_paid_twice_are_told_of_in_bulk(app: LeasetopApp, still: StillQueue) -> None:
    still.jobs = tuple(
        replace(job(n, State.FAILED), stage="capture", created_at=ago(days=3), fence=str(n)) for n in range(3)
    )
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("5", "asterisk", "r")
        await settled(pilot)
        assert isinstance(app.screen, BulkDialog)
        assert "can be paid twice" in str(app.screen.query_one("#verdict", Static).content)


async def test_what_is_typed_before_a_dialog_is_there_reaches_no_act(app: LeasetopApp, still: StillQueue) -> None:
    detail, answer = still.detail, asyncio.Event()

    async def slow(key: Key) -> Detail:
        await answer.wait()
        return await detail(key)

    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        still.detail = slow  # type: ignore[method-assign]
        await pilot.press("r", "u", "w", "S", "q")
        answer.set()
        await settled(pilot)
        assert isinstance(app.screen, RequeueDialog)
        await pilot.press("escape")
        await settled(pilot)
        assert isinstance(app.screen, JobsScreen)
        assert still.acts == []


async def test_a_filter_takes_all_that_is_typed_in_one_burst(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        for letter in "/owSq":
            app.post_message(events.Key("slash" if letter == "/" else letter, letter))
        await settled(pilot)
        await settled(pilot)
        assert app.query_one("#filter", Input).value == "owSq"
        assert isinstance(app.screen, JobsScreen)
        assert still.acts == []


async def test_an_order_of_a_part_of_the_jobs_says_so(app: LeasetopApp, still: StillQueue) -> None:
    still.capped = True
    async with app.run_test(size=(140, 30)) as pilot:
        await settled(pilot)
        assert not app.query_one(FilterLine).display
        await pilot.press("s", "down", "enter")
        await settled(pilot)
        line, explained = app.query_one(FilterLine), app.query_one("#explained", Static)
        assert line.display and not line.query_one(Input).display
        said_there = str(explained.content)
        assert f"sorted by id, among the first {count(10_000)} of pending: F looks through all" in said_there
        await pilot.press("F")
        await settled(pilot)
        assert app.poller.everywhere
        assert "sorted by id, among all" in str(explained.content)
        await pilot.press("slash", *"pay", "enter")
        await settled(pilot)
        assert line.query_one(Input).display
        await pilot.press("escape")


async def test_that_there_is_nothing_is_not_said_of_what_is_not_known(app: LeasetopApp, still: StillQueue) -> None:
    still.jobs = ()
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        assert app.query_one(Jobs).empty.startswith("The queue is empty")
        still.error = Refused("a table is missing")
        await pilot.press("R")
        await settled(pilot)
        await pilot.press("4")
        await settled(pilot)
        assert app.query_one(Jobs).empty.startswith("Not known now")


async def test_ctrl_c_stops_an_act_on_many_and_shows_what_was_done(app: LeasetopApp, still: StillQueue) -> None:
    going, asked = asyncio.Event(), asyncio.Event()
    act = still.act

    async def slowly(*words: Any, **more: Any) -> Outcome:
        asked.set()
        await going.wait()
        return await act(*words, **more)

    still.act = slowly  # type: ignore[method-assign]
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("2", "asterisk", "D")
        await settled(pilot)
        await pilot.press(*"twice", "enter")
        await asked.wait()
        await pilot.press("ctrl+c")
        going.set()
        await finished(pilot, "bulk")
        assert app.is_running and isinstance(app.screen, BulkDialog)
        assert len(still.acts) == 1
        assert "not tried" in str(app.screen.query_one("#verdict", Static).content)
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert not app.is_running


async def test_an_export_to_nobodys_home_asks_again(app: LeasetopApp) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("x")
        await settled(pilot)
        app.screen.query_one(Input).value = "~no-such-user-here/jobs.csv"
        await pilot.press("enter")
        await settled(pilot)
        assert "no user here" in str(app.screen.query_one("#hint", Static).content)
        await pilot.press("escape")


async def test_a_slow_question_before_a_dialog_says_so_and_can_be_given_up(app: LeasetopApp, still: StillQueue) -> None:
    never = asyncio.Event()

    async def slowly(keys: Sequence[Key]) -> dict[Key, Job | None]:
        await never.wait()
        return {}

    still.read_jobs = slowly  # type: ignore[method-assign]
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("2", "asterisk", "P")
        await pilot.pause()
        assert isinstance(app.screen, WaitingScreen)
        notice = app.screen.query_one(Static)
        while not notice.display:
            await pilot.pause(0.05)
        assert "esc gives up" in str(notice.content)
        await pilot.press("escape")
        await settled(pilot)
        assert isinstance(app.screen, JobsScreen)
        assert still.acts == []
        await pilot.press("space")
        assert app.query_one(Jobs).marked


async def test_tabs_and_tiles_can_be_clicked(app: LeasetopApp) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        left = str(app.query_one(Tabs).content).index("5 Failed")
        await pilot.click(Tabs, offset=(left + 1, 0))
        await settled(pilot)
        assert app.poller.view is View.FAILED
        await pilot.click(".tile.-stuck", offset=(2, 1))
        await settled(pilot)
        assert app.poller.view is View.STUCK


async def test_a_tab_without_leases_has_no_column_for_them(app: LeasetopApp) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        for key, there in (("1", True), ("2", False), ("4", True), ("5", False), ("6", False), ("7", True)):
            await pilot.press(key)
            await settled(pilot)
            assert ("LEASE" in [column.title for column in app.query_one(Jobs).columns]) is there


async def test_the_cursor_stays_on_its_job_when_the_filter_lets_it_through(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("j", "j")
        before, everything = cursor(app), still.jobs
        still.jobs = ()
        await pilot.press("slash", *"pay")
        await settled(pilot)
        assert cursor(app) is None
        still.jobs = everything
        await pilot.press("a")
        await settled(pilot)
        assert cursor(app) == before
        await pilot.press("escape")
        await settled(pilot)
        assert cursor(app) == before


async def test_a_mark_that_cannot_be_seen_any_more_is_taken_away_and_told(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("space", "space")
        assert [one.id for one in app.query_one(Jobs).marked] == ["8841", "8842"]
        still.change(8841, gone=True)
        await pilot.press("R")
        await settled(pilot)
        assert [one.id for one in app.query_one(Jobs).marked] == ["8842"]
        assert "1 marked job left this list, and the mark with it: 8841" in said(app)
        await pilot.press("slash", "x")
        await settled(pilot)
        assert "1 mark taken away" in said(app)


async def test_a_job_beyond_the_page_has_not_left(app: LeasetopApp, still: StillQueue) -> None:
    still.jobs = tuple(job(number, State.PENDING) for number in range(600))
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("j")
        still.jobs = still.jobs[2:]
        await pilot.press("R")
        await settled(pilot)
        assert app.query_one(Jobs).on_ghost
        assert app.query_one(Jobs).ghost_says == "(beyond)"


async def test_money_under_way_is_told_of_before_a_discard(app: LeasetopApp) -> None:
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        await pilot.press("D")
        await settled(pilot)
        assert "It had reached a stage: money may have moved" in str(app.screen.query_one("#verdict", Static).content)
        assert "Discard job 8841" in str(app.screen.query_one(".dialog").border_title)
        await pilot.press("escape")


async def test_an_act_on_very_many_needs_their_number(app: LeasetopApp, still: StillQueue) -> None:
    still.jobs = tuple(job(number, State.PENDING) for number in range(60))
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("asterisk", "D")
        await settled(pilot)
        await pilot.press(*"twice", "enter")
        await settled(pilot)
        assert still.acts == []
        await pilot.press(*"60", "enter")
        await finished(pilot, "bulk")
        assert len(still.acts) == 60
        await pilot.press("escape")


async def test_the_details_scroll_by_the_keys_of_vi_where_they_fill_the_screen(app: LeasetopApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        before = cursor(app)
        await pilot.press("enter")
        await settled(pilot)
        await pilot.press("G")
        await pilot.pause()
        pane = app.query_one(DetailPane)
        assert pane.scroll_target_y > 0
        assert cursor(app) == before
        await pilot.press("escape", "j")
        assert cursor(app) != before


async def test_why_a_job_failed_has_room_at_80_columns(app: LeasetopApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("5")
        await settled(pilot)
        table = app.query_one(Jobs)
        assert table.has_room_for("error") and not table.has_room_for("owner")
        assert "CardDeclined: do not honor" in table.render_line(1).text


async def test_all_that_match_are_marked_and_not_only_those_that_are_loaded(
    app: LeasetopApp, still: StillQueue
) -> None:
    still.jobs = tuple(job(number, State.PENDING) for number in range(1_200))
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        assert len(app.query_one(Jobs).values) == 500
        await pilot.press("asterisk")
        await finished(pilot, "act")
        assert len(app.query_one(Jobs).marked) == 1_200
        await pilot.press("R")
        await settled(pilot)
        assert len(app.query_one(Jobs).marked) == 1_200
        await pilot.press("D")
        await settled(pilot)
        assert "Discard" in str(app.screen.query_one(".dialog").border_title)
        assert f"{count(1200)} jobs" in str(app.screen.query_one(".dialog").border_title)
        await pilot.press("escape", "escape")
        assert app.query_one(Jobs).marked == []


async def test_more_than_one_act_can_take_are_not_all_marked(app: LeasetopApp, still: StillQueue) -> None:
    still.jobs = tuple(job(number, State.PENDING) for number in range(5_100))
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        await pilot.press("asterisk")
        await finished(pilot, "act")
        assert len(app.query_one(Jobs).marked) == 5_000
        assert f"the first {count(5_000)} are marked: there are more" in said(app)


async def test_the_keys_are_the_tables_again_when_it_is_beside_the_details(app: LeasetopApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("j", "enter")
        await settled(pilot)
        before = cursor(app)
        assert app.query_one(DetailPane).has_focus
        await pilot.resize_terminal(140, 40)
        await settled(pilot)
        assert app.query_one(Jobs).has_focus
        assert cursor(app) == before
        await pilot.press("j")
        assert cursor(app) != before
        await pilot.resize_terminal(80, 24)
        await settled(pilot)
        assert app.query_one(DetailPane).has_focus


async def test_the_details_stay_on_their_job_in_another_tab_as_well(app: LeasetopApp, still: StillQueue) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("enter", "4")
        await settled(pilot)
        before = cursor(app)
        assert before is not None
        still.change(int(before), gone=True)
        await pilot.press("R")
        await settled(pilot)
        assert cursor(app) == before


async def test_a_theme_of_the_settings_is_not_remembered_beyond_them(still: StillQueue) -> None:
    for chosen, wanted in (("nord", "nord"), (None, "textual-dark")):
        app = LeasetopApp(still, actor="ops", interval=timedelta(hours=1), config=Config(theme=chosen))  # type: ignore[arg-type]
        async with app.run_test(size=(100, 30)) as pilot:
            await settled(pilot)
            assert app.theme == wanted
