"""The provider's luck, as a test needs it: how often its worker processes see a declined card or no answer."""

import os
from pathlib import Path

import pytest

_IN_EVERY_CHILD = """
from leasetop.demo import psp
psp._DECLINED, psp._TIMED_OUT = {declined}, {timed_out}
"""


def set_chances(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, declined: float = 0.0, timed_out: float = 0.0
) -> None:
    """For all processes that a fleet starts from now on; Python runs a `sitecustomize` that it finds at its start."""
    (folder / "sitecustomize.py").write_text(_IN_EVERY_CHILD.format(declined=declined, timed_out=timed_out))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
