"""Screens on a stopped clock."""

import types
from collections.abc import Callable
from datetime import timedelta

import pytest

from leasetop.tui.app import LeasetopApp
from tests.screens.still import MONOTONIC, StillQueue

Make = Callable[..., LeasetopApp]


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """The monotonic clock that the server's time is carried on by; a test may move `now`."""
    stopped = types.SimpleNamespace(now=MONOTONIC)
    monkeypatch.setattr("leasetop.clock.time", types.SimpleNamespace(monotonic=lambda: stopped.now))
    return stopped


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all colours, wherever the tests are run."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture
def still() -> StillQueue:
    return StillQueue()


@pytest.fixture
def app(still: StillQueue) -> LeasetopApp:
    """Refreshes only when it is asked to: an hour is longer than any test."""
    return LeasetopApp(still, actor="ops@box", interval=timedelta(hours=1))  # type: ignore[arg-type]
