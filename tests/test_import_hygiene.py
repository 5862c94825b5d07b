"""Cold start is a budget: a command loads what it needs and nothing else, on every machine alike."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("words", "never"),
    [
        (["--version"], {"textual", "psycopg", "asyncio.subprocess", "leasetop.demo.fleet"}),
        (["--help"], {"textual", "psycopg"}),
        (["init", "--print"], {"textual", "psycopg"}),
        (["status", "--help"], {"textual", "psycopg"}),
    ],
)
def test_a_light_command_loads_nothing_heavy(words: list[str], never: set[str]) -> None:
    script = (
        "import sys\nfrom leasetop.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print('LOADED', *sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split("LOADED", 1)[1].split())
    assert not never & loaded


def test_a_worker_loads_no_screen() -> None:
    script = "import sys, leasetop.worker, leasetop.watcher; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"textual"} & set(done.stdout.split())
