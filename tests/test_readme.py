"""What the README says works: its example runs, and its commands, options and keys exist."""

import re
import subprocess
import sys
import types
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from leasetop import cli, naming, profile
from leasetop.tui import acts
from leasetop.worker import Settings, Worker
from tests import world

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_handler_of_the_readme_pays(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    captured: list[str] = []
    bank = types.SimpleNamespace(
        authorize=lambda amount, currency, payload: currency == "EUR", capture=lambda key: captured.append(key)
    )
    monkeypatch.setitem(sys.modules, "bank", bank)  # type: ignore[arg-type]
    module: dict[str, object] = {}
    exec(re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0], module)
    with psycopg.connect(dsn, autocommit=True) as connection:
        job = world.put(connection, key="order-1")
        pay = module["pay"]
        worker = Worker(dsn, pay, Settings(poll=timedelta(milliseconds=50)), observer=lambda event, _: finish(event))  # type: ignore[arg-type]

        def finish(event: str) -> None:
            if event == "completed":
                worker.stop()

        worker.run()
        assert world.row(connection, job, "status, stage") == ("Completed", "capture")
    assert captured == ["order-1"]


def test_every_command_and_option_of_the_readme_exists() -> None:
    for line in re.findall(
        r"leasetop (?!demo by)([a-z][^\n`|]*)", " ".join(re.findall(r"```sh\n(.*?)```", README, re.S))
    ):
        words = line.split("#")[0].split()
        command = cli.main.commands[words[0]]  # type: ignore[attr-defined]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line


def test_every_key_of_every_screen_is_in_the_readme() -> None:
    keys = set(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", README, flags=re.DOTALL)))
    names = {"escape": "esc", "question_mark": "?", "colon": ":", "slash": "/", "asterisk": "*"}
    for act in acts.ACTS:
        first = act.keys.split(",")[0]
        assert names.get(first, first) in keys or first.isdigit(), act


def test_its_policies_are_those_of_the_command() -> None:
    shown = subprocess.run([sys.executable, "-m", "leasetop", "watch", "--help"], capture_output=True, text=True)
    assert "[requeue|park]" in shown.stdout


def profiles_table(profiles: Iterable[profile.Profile]) -> list[str]:
    """The known queues as rows of a Markdown table, as the README has it."""
    rows = []
    for one in profiles:
        acts = ", ".join(f"{name} (own tool)" if act.delegate else name for name, act in one.actions.items())
        tested = f" {', '.join(one.tested)}" if one.tested else ""
        late = "is fenced" if one.completion_fenced else "can complete"
        rows.append(f"| {one.title}{tested} | {one.label} | {one.evidence} | {late} | {acts or 'none'} |")
    return rows


def test_its_table_of_queues_is_that_of_the_profiles() -> None:
    for row in profiles_table(profile.shipped()[1:]):
        assert row in README


def test_the_help_of_profile_lists_what_can_be_told() -> None:
    told = cli.main.commands["profile"].help or ""  # type: ignore[attr-defined]
    assert set(naming.SETTABLE) <= set(re.findall(r"[a-z_]+", told))
