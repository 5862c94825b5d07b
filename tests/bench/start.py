"""Cold starts: how long until a command does something."""

import argparse
import statistics
import subprocess
import sys
import time

from leasetop.demo.postgres import EmbeddedPostgres
from tests.bench import table

_COMMANDS = {
    "python, nothing else": ["-c", "pass"],
    "leasetop --version": ["-m", "leasetop", "--version"],
    "a worker, imported": ["-c", "import leasetop.worker"],
    "the screen, imported": ["-c", "import leasetop.tui.app"],
}


def measure(server: EmbeddedPostgres, told: argparse.Namespace) -> None:
    """Milliseconds, median of ten."""
    table.row("", "ms")
    for name, words in _COMMANDS.items():
        took = []
        for _ in range(10):
            asked = time.perf_counter()
            subprocess.run([sys.executable, *words], check=True, capture_output=True)
            took.append(time.perf_counter() - asked)
        table.row(name, statistics.median(took) * 1000)
