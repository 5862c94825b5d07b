"""A row of an answer -> a model object: what the statements of reading.py, and of a profile, return."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from leasetop import reading
from leasetop.database import Row
from leasetop.model import Event, Minute, Owner, Reason, Server, State, Tally, Throughput, Watcher

WINDOW = timedelta(minutes=5)
"""Of the throughput."""
BUCKET = timedelta(seconds=10)


def state(row: Row) -> tuple[State, Reason | None]:
    return State(row["state"]), Reason(row["reason"]) if row["reason"] else None


def tally(row: Row) -> Tally:
    capped = row["count"] > reading.CAP
    return Tally(min(row["count"], reading.CAP), capped, row["oldest"], row["newest"])


def server(row: Row, host: str) -> Server:
    # A unix socket has a directory for a host; the operator knows it as this machine.
    return Server(
        version=row["version"].split(" ")[0],
        database=row["database"],
        user=row["user"],
        host="local" if host.startswith("/") or not host else host,
        standby=row["standby"],
    )


def owner(row: Row) -> Owner:
    return Owner(
        reading.whole_or_cut(row["owner"]), row["held"], row["expired"], row["oldest_claim"], row["next_expiry"]
    )


def watcher(row: Row) -> Watcher:
    return Watcher(row["name"], row["policy"], row["interval"], row["seen_at"], row["swept"])


def event(row: Row) -> Event:
    # Besides what happened and when, a profile's history says what its queue keeps.
    return Event(
        event=row["event"],
        ended_at=row["ended_at"],
        attempt=row.get("attempt"),
        owner=row.get("owner"),
        stage=row.get("stage"),
        error=row.get("error"),
        started_at=row.get("started_at"),
        actor=row.get("actor"),
        reason=row.get("reason"),
    )


def minute(row: Row) -> Minute:
    return Minute(row["at"], row["completed"], row["failed"], row["expired"])


def throughput(rows: Sequence[Row], now: datetime) -> Throughput:
    known = next((row["known_since"] for row in rows if row["known_since"]), None)
    return Throughput(BUCKET, {row["at"]: row["completed"] for row in rows}, max(known or now - WINDOW, now - WINDOW))
