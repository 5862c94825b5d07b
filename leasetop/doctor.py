"""Looks a queue over before the night does: privileges, indexes, row security, watchers, rows that should not be there.

Nothing is changed: statements of acts are explained, not run, which is enough for the server to look at privileges.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

import psycopg

from leasetop import reading, report, statements, text
from leasetop.database import in_words
from leasetop.model import State
from leasetop.queue import Queue

_LARGE = 10_000
"""A table of so many rows should not be read whole at every refresh."""
# By name, not by plan: the plan of a table of which one may see nothing does not name it.
_SECURED = b"""
    SELECT oid::regclass::text FROM pg_class
     WHERE relkind IN ('r', 'p') AND relrowsecurity AND row_security_active(oid) AND strpos(%s, relname) > 0
"""
_ROWS = b"SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = to_regclass(%s)"


class Grade(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    grade: Grade
    what: str
    said: str


async def examine(queue: Queue) -> list[Finding]:
    """All findings, in the order of the looking. Raises Unreachable, or Refused where not even the jobs can be read."""
    snapshot = await queue.snapshot(limit=1)
    role = Finding(Grade.WARN, "server", "a standby: no act is possible here") if snapshot.server.standby else None
    found = [role or Finding(Grade.OK, "server", f"PostgreSQL {snapshot.server.version}, primary")]
    if abs(snapshot.skew) > timedelta(seconds=1) + snapshot.took:
        found.append(Finding(Grade.WARN, "clock", f"this machine is {text.duration(snapshot.skew)} off the server"))
    found.append(
        Finding(Grade.OK, "cost", f"a refresh costs the server {snapshot.cost / timedelta(milliseconds=1):.1f} ms")
    )
    found += [Finding(Grade.WARN, "lacks", note) for note in snapshot.notes]
    watcher = report.watcher_words(snapshot)
    if snapshot.watchers is not None:
        found.append(Finding(Grade.OK if watcher.startswith("ok") else Grade.WARN, "watcher", watcher))
    found += await _scans(queue)
    found += await _acts(queue)
    anomalies = await queue.anomalies()
    for anomaly, number in anomalies.counts.items():
        found.append(Finding(Grade.BAD, anomaly.name, f"{text.plural(number, 'job')}. {anomaly.means}"))
    if anomalies.late:
        words = "of the last 24 hours: look these payments up at the provider"
        found.append(Finding(Grade.BAD, "late completions", f"{len(anomalies.late)} {words}"))
    return found


async def _scans(queue: Queue) -> list[Finding]:
    """States whose counting reads a large table whole, and tables that hide rows from this role."""
    found = []
    async with queue.database.reading() as connection:
        for arm in reading.arms(queue.profile, State):
            sql = f"EXPLAIN (FORMAT JSON) SELECT 1 {arm.rows} {arm.order} LIMIT {reading.CAP + 1}"
            cursor = await connection.execute(statements.bind(sql), dict(queue.profile.values))
            row = await cursor.fetchone()
            for node in _nodes(_plan(row[0] if row else [])):
                if "Relation Name" not in node:
                    continue
                table = node["Relation Name"]
                size = await (await connection.execute(_ROWS, [statements.quote_identifier(table)])).fetchone()
                rows = size[0] if size else 0
                if node["Node Type"] == "Seq Scan" and rows > _LARGE:
                    name = " ".join(filter(None, (arm.state, arm.reason)))
                    words = (
                        f"reads all {text.count(rows)} rows of {text.safe(node['Relation Name'])}: an index would help"
                    )
                    found.append(Finding(Grade.WARN, f"index for {name}", words))
        relations = " ".join(source.relation for source in queue.profile.sources)
        secured = await (await connection.execute(_SECURED, [relations])).fetchall()
    found += [
        Finding(Grade.BAD, "row security", f"{text.safe(name)} shows this role some rows only, without an error")
        for (name,) in secured
    ]
    return found or [Finding(Grade.OK, "indexes", "no refresh reads a large table whole")]


async def _acts(queue: Queue) -> list[Finding]:
    """Whether this role may do what the profile can."""
    found = []
    for name, action in queue.profile.actions.items():
        if action.sql is None:
            command = f"only by its own tool: {action.delegate}"
            found.append(Finding(Grade.OK, name, command))
            continue
        async with queue.database.reading() as connection:
            await connection.execute(b"SAVEPOINT look")
            try:
                for sql in (*action.lock, action.sql):
                    given = {**dict.fromkeys(statements.parameters(sql)), **queue.profile.values}
                    await connection.execute(b"EXPLAIN " + statements.bind(sql), given)
            except psycopg.Error as error:
                await connection.execute(b"ROLLBACK TO SAVEPOINT look")
                found.append(Finding(Grade.BAD, name, str(in_words(error))))
            else:
                found.append(Finding(Grade.OK, name, "this role may do it"))
    return found


def _plan(raw: Any) -> Mapping[str, Any]:
    document = json.loads(raw) if isinstance(raw, str) else raw
    return document[0]["Plan"] if document else {}


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)
