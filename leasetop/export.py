"""Writes what a screen shows to a file: CSV or JSON, by the ending of its name. Data stays data.

A cell that a spreadsheet would take for a formula is led by an apostrophe: what comes from a table is never run.
"""

import csv
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from leasetop.errors import LeasetopError

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """A new file, mode 0600: it may hold customers' data. Raises LeasetopError; a file that is there stays as it is."""
    writers = {".csv": _csv, ".json": _json}
    written = writers.get(path.suffix.lower())
    if written is None:
        raise LeasetopError(f"{path}: give a name that ends in .csv or .json")
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise LeasetopError(f"{path} is there already: choose another name") from None
    except (OSError, ValueError) as error:
        raise LeasetopError(f"{path} cannot be written: {_why(error)}") from None
    try:
        # What no encoding can write is written as an escape.
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            written(file, rows)
    except OSError as error:
        # A part of it would look like the whole.
        path.unlink(missing_ok=True)
        raise LeasetopError(f"{path} cannot be written: {_why(error)}") from None


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _json(file: TextIO, rows: Sequence[Mapping[str, object]]) -> None:
    json.dump(list(rows), file, ensure_ascii=False, indent=1, default=str)
    file.write("\n")


def _csv(file: TextIO, rows: Sequence[Mapping[str, object]]) -> None:
    writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else [])
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)


def _cell(value: object) -> object:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return json.dumps(value, default=str) if isinstance(value, dict | list) else value
