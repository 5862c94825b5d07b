"""The operator's trace where the table keeps none: one JSON object a line, in a file that only its owner can read.

The home table needs no journal: its history is written by the same statement as the act.
"""

import json
import os
from datetime import datetime
from pathlib import Path

import platformdirs

from leasetop.model import Job, Outcome


def file() -> Path:
    """Where the journal is."""
    return Path(platformdirs.user_state_path("leasetop")) / "journal.jsonl"


def write(at: datetime, queue: str, act: str, seen: Job, actor: str, reason: str, outcome: Outcome) -> None:
    """Appends who did what to which job, when (the server's time), why, what they saw, and what came of it.

    Raises OSError.
    """
    entry = {
        "at": at.isoformat(),
        "actor": actor,
        "queue": queue,
        "act": act,
        "job": list(seen.key),
        "reason": reason,
        "seen": {
            "status": seen.status,
            "owner": seen.owner,
            "attempts": seen.attempts,
            "lease_until": None if seen.lease_until is None else seen.lease_until.isoformat(),
        },
        "done": outcome.done,
        "result": outcome.words,
    }
    path = file()
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(entry, ensure_ascii=True) + "\n"
    # One write for one line: two operators on the same box do not mix theirs.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)
