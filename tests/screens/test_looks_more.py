"""What the screens for finding, reading and acting on many look like, narrow and wide."""

from dataclasses import replace

import pytest
from textual.widgets import Input

from leasetop.anomalies import KNOWN, Findings, Late
from leasetop.filter import parse
from leasetop.finding import Survey
from leasetop.model import Evidence
from leasetop.profile import shipped
from leasetop.tui.app import LeasetopApp
from tests.screens.still import StillQueue, ago
from tests.screens.test_looks import Compare, typing

BOTH = pytest.mark.parametrize("size", [(80, 24), (140, 40)])
Size = tuple[int, int]


@BOTH
def test_a_filter(snap_compare: Compare, app: LeasetopApp, size: Size) -> None:
    async def filtered(pilot):  # type: ignore[no-untyped-def]
        await typing("slash")(pilot)
        app.screen.query_one("#filter", Input).value = "state:stuck owner:pay attempts>=1"
        await typing("enter")(pilot)

    assert parse("state:stuck owner:pay attempts>=1")
    assert snap_compare(app, terminal_size=size, run_before=filtered)


@BOTH
def test_marks_and_an_act_on_them(snap_compare: Compare, app: LeasetopApp, size: Size) -> None:
    assert snap_compare(app, terminal_size=size, run_before=typing("asterisk", "D"))


@BOTH
def test_sort(snap_compare: Compare, app: LeasetopApp, size: Size) -> None:
    assert snap_compare(app, terminal_size=size, run_before=typing("s"))


@BOTH
def test_payload(snap_compare: Compare, app: LeasetopApp, size: Size) -> None:
    assert snap_compare(app, terminal_size=size, run_before=typing("v"))


@BOTH
def test_journal(snap_compare: Compare, app: LeasetopApp, size: Size) -> None:
    assert snap_compare(app, terminal_size=size, run_before=typing("l"))


@BOTH
def test_anomalies(snap_compare: Compare, app: LeasetopApp, still: StillQueue, size: Size) -> None:
    late = Late("8841", 1, "pay-7f9c/4100/aa00", ago(minutes=4))
    still.findings = Findings({KNOWN[1]: 1, KNOWN[4]: 2}, (late,))
    assert snap_compare(app, terminal_size=size, run_before=typing("A", "down", "down"))


@BOTH
def test_a_choice_of_queues(snap_compare: Compare, app: LeasetopApp, size: Size) -> None:
    async def choosing(pilot):  # type: ignore[no-untyped-def]
        app._survey = Survey(shipped()[:4], ("pgmq: no privilege for this",))
        app.choose_queue()
        await typing("down")(pilot)

    assert snap_compare(app, terminal_size=size, run_before=choosing)


@BOTH
def test_a_requeue_that_only_its_own_tool_can_do(
    snap_compare: Compare, app: LeasetopApp, still: StillQueue, size: Size
) -> None:
    still.profile = next(profile for profile in shipped() if profile.id == "dbos")
    assert snap_compare(app, terminal_size=size, run_before=typing("r"))


@BOTH
def test_a_requeue_that_nothing_proves(snap_compare: Compare, app: LeasetopApp, still: StillQueue, size: Size) -> None:
    still.profile = replace(still.profile, evidence=Evidence.AGE, completion_fenced=False)
    assert snap_compare(app, terminal_size=size, run_before=typing("r"))
