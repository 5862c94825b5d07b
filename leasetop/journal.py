"""The operator's trace on queues that keep none: in a table of leasetop's own, or else in a file of the operator's.

The table (`leasetop init --journal`) is written in the transaction of the act. The file is one JSON object a line, and
only its owner can read it. The home table needs neither: its history is written by the same statement as the act.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import platformdirs

from leasetop.model import Job

PAST = {
    "requeue": "requeued",
    "discard": "discarded",
    "park": "parked",
    "run_now": "made ready",
    "release": "released",
    "undo_requeue": "put back",
}
"""Act -> what a job is after it."""
_ACTS = {past: act for act, past in PAST.items()} | {
    "requeue undone": "undo_requeue",
    "run now": "run_now",
    "released by an operator": "release",
}
"""What a history has, or a job is, after an act -> the act."""


@dataclass(frozen=True, slots=True)
class Site:
    """Which database of which server: the file has acts on several."""

    database: str
    server: str | None
    """As it was reached then, host:port."""
    cluster: str | None
    """PostgreSQL's system identifier: the same by whatever name the server is reached, and on its replicas."""

    def is_that_of(self, entry: "Site") -> bool:
        """Whether an entry of the file is about this database; one that does not say where it was is taken for it."""
        if self.database != entry.database:
            return False
        if self.cluster and entry.cluster:
            return self.cluster == entry.cluster
        return entry.server in (None, self.server)


@dataclass(frozen=True, slots=True)
class Entry:
    """Who did what to which job of which queue, when (the server's time), why, what they saw, and what came of it."""

    at: datetime
    actor: str
    site: Site
    queue: str
    act: str
    job: tuple[str, ...]
    reason: str | None
    seen: Mapping[str, object]
    done: bool
    result: str

    def parameters(self) -> dict[str, object]:
        """For sql/journal_write.sql, which takes the time from the server."""
        return {
            "actor": self.actor,
            "queue": self.queue,
            "act": self.act,
            "job": list(self.job),
            "reason": self.reason,
            "seen": json.dumps(self.seen),
            "done": self.done,
            "result": self.result,
        }


def act_of(event: str) -> str:
    """The act that a history tells of by what it made of the job."""
    return _ACTS.get(event, event)


def seen(job: Job) -> dict[str, object]:
    """What an operator saw of a job."""
    return {
        "status": job.status,
        "owner": job.owner,
        "attempts": job.attempts,
        "lease_until": None if job.lease_until is None else job.lease_until.isoformat(),
    }


def file() -> Path:
    """Where the file is."""
    return Path(platformdirs.user_state_path("leasetop")) / "journal.jsonl"


def write(entries: list[Entry]) -> None:
    """Appends to the file. Raises OSError."""
    path = file()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for entry in entries:
            line = {"at": entry.at.isoformat(), **asdict(entry.site), **entry.parameters(), "seen": entry.seen}
            # One write for one line: two operators on the same box do not mix theirs.
            os.write(handle, (json.dumps(line, ensure_ascii=True) + "\n").encode())
    finally:
        os.close(handle)


def read(site: Site, queue: str, limit: int) -> list[Entry]:
    """The newest entries of the file for one queue, newest first. Raises OSError; a line that is none is left out."""
    try:
        lines = file().read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in reversed(lines):
        try:
            entry = _read(json.loads(line))
        except (ValueError, KeyError, TypeError):
            continue
        if site.is_that_of(entry.site) and entry.queue == queue:
            found.append(entry)
        if len(found) == limit:
            break
    return found


def _read(raw: Mapping[str, Any]) -> Entry:
    return Entry(
        at=datetime.fromisoformat(raw["at"]),
        actor=str(raw["actor"]),
        site=Site(str(raw["database"]), _text(raw.get("server")), _text(raw.get("cluster"))),
        queue=str(raw["queue"]),
        act=str(raw["act"]),
        job=tuple(map(str, raw["job"])),
        reason=_text(raw["reason"]),
        seen=dict(raw["seen"]),
        done=bool(raw["done"]),
        result=str(raw["result"]),
    )


def _text(given: object) -> str | None:
    return None if given is None else str(given)
