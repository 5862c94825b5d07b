"""What the screens look like, at the sizes that people have."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from leasetop.errors import Unreachable
from leasetop.tui.app import LeasetopApp
from tests.screens.still import StillQueue

Compare = Callable[..., bool]
SIZES = [(80, 24), (120, 35), (200, 60)]


def typing(*keys: str) -> Callable[[Pilot[Any]], Awaitable[None]]:
    async def press(pilot: Pilot[Any]) -> None:
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
            loading = [worker for worker in pilot.app.workers if worker.group == "detail"]
            if loading:
                await pilot.app.workers.wait_for_complete(loading)
            await pilot.pause()

    return press


@pytest.mark.parametrize("size", SIZES)
def test_first_screen(snap_compare: Compare, app: LeasetopApp, size: tuple[int, int]) -> None:
    assert snap_compare(app, terminal_size=size, run_before=typing())


@pytest.mark.parametrize("size", SIZES)
def test_details(snap_compare: Compare, app: LeasetopApp, size: tuple[int, int]) -> None:
    assert snap_compare(app, terminal_size=size, run_before=typing("enter"))


@pytest.mark.parametrize("size", SIZES)
def test_requeue_of_an_expired_job(snap_compare: Compare, app: LeasetopApp, size: tuple[int, int]) -> None:
    assert snap_compare(app, terminal_size=size, run_before=typing("r"))


def test_requeue_of_a_live_job_is_refused(snap_compare: Compare, app: LeasetopApp) -> None:
    assert snap_compare(app, terminal_size=(80, 24), run_before=typing("3", "r"))


def test_requeue_of_a_live_job_forced(snap_compare: Compare, app: LeasetopApp) -> None:
    assert snap_compare(app, terminal_size=(80, 24), run_before=typing("3", "r", "ctrl+f"))


@pytest.mark.parametrize("size", SIZES)
def test_sweep(snap_compare: Compare, app: LeasetopApp, size: tuple[int, int]) -> None:
    assert snap_compare(app, terminal_size=size, run_before=typing("S"))


def test_all_jobs(snap_compare: Compare, app: LeasetopApp) -> None:
    assert snap_compare(app, terminal_size=(120, 35), run_before=typing("7"))


def test_help(snap_compare: Compare, app: LeasetopApp) -> None:
    assert snap_compare(app, terminal_size=(80, 24), run_before=typing("question_mark"))


@pytest.mark.parametrize("size", SIZES)
def test_workers(snap_compare: Compare, app: LeasetopApp, size: tuple[int, int]) -> None:
    assert snap_compare(app, terminal_size=size, run_before=typing("w"))


def test_lost_connection(snap_compare: Compare, app: LeasetopApp, still: StillQueue) -> None:
    async def lose(pilot: Pilot[Any]) -> None:
        await pilot.pause()
        still.error = Unreachable("the connection to PostgreSQL is lost: server closed the connection")
        await pilot.press("R")
        await pilot.pause()

    assert snap_compare(app, terminal_size=(120, 35), run_before=lose)


def test_an_empty_queue(snap_compare: Compare, app: LeasetopApp, still: StillQueue) -> None:
    still.jobs = ()
    assert snap_compare(app, terminal_size=(80, 24), run_before=typing())
