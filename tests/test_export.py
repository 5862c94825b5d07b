"""Export: what is written is data, and nothing is overwritten."""

import csv
import json
import resource
import signal
from pathlib import Path

import pytest

from leasetop import export
from leasetop.errors import LeasetopError


def test_a_formula_in_a_table_is_only_text(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    export.write(file, [{"id": "1", "error": "=HYPERLINK(1)", "n": -3}, {"id": "-2+3", "error": 'a,b\n"c"', "n": None}])
    rows = list(csv.DictReader(file.open(newline="")))
    assert rows == [
        {"id": "1", "error": "'=HYPERLINK(1)", "n": "-3"},
        {"id": "'-2+3", "error": 'a,b\n"c"', "n": ""},
    ]


def test_json_is_as_it_was(tmp_path: Path) -> None:
    rows = [{"id": "1", "error": "=x", "seen": {"a": [1]}}]
    export.write(tmp_path / "jobs.json", rows)
    assert json.loads((tmp_path / "jobs.json").read_text()) == rows


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text("mine")
    with pytest.raises(LeasetopError, match="is there already"):
        export.write(file, [{"id": "1"}])
    assert file.read_text() == "mine"


@pytest.mark.parametrize(("name", "said"), [("jobs.xls", "ends in"), ("none/jobs.csv", "cannot be written")])
def test_a_place_that_cannot_be_is_refused_in_words(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(LeasetopError, match=said):
        export.write(tmp_path / name, [{"id": "1"}])


def test_the_ending_may_be_written_in_capitals(tmp_path: Path) -> None:
    export.write(tmp_path / "JOBS.CSV", [{"id": "1"}])
    assert (tmp_path / "JOBS.CSV").read_text().split() == ["id", "1"]


def test_what_could_not_be_written_to_its_end_is_not_left(tmp_path: Path) -> None:
    """A full disk, or here a limit on the size of files."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(LeasetopError, match="cannot be written"):
            export.write(tmp_path / "jobs.json", [{"id": "x" * 100_000}])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []
