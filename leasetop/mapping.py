"""Guesses what a table's columns mean, and writes that down as a profile.

Three shapes of lease are known here: a column that says until when; one that says since when, plus a time-out; and a
heartbeat plus a time-out, on the job or on its owner's row in a table of workers. What a guess rests on is names,
types, foreign keys and the values that are in use; what it cannot know it says, and takes from the operator (`--set`).
The result is a document of the profile format and nothing else: from there on there is one path.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leasetop import table as tables
from leasetop import text
from leasetop.database import Database
from leasetop.errors import LeasetopError
from leasetop.model import State
from leasetop.table import Table, TableColumn


class MappingError(LeasetopError):
    """A table that cannot be understood without help: says what is missing and how to give it."""


# Canonical field -> the names that people give it, the likeliest first; case and punctuation do not count.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "status": ("status", "state", "jobstatus", "jobstate", "status_code"),
    "owner": (
        *("leaseowner", "lockedby", "workerid", "worker", "claimedby", "takenby", "owner", "leaseholder", "holder"),
        *("lockowner", "processedby", "runnerid", "ownerid", "lockedbyworker", "pickedby"),
    ),
    "lease_until": (
        *("leaseuntil", "lockeduntil", "leaseexpiresat", "lockexpiresat", "claimexpiresat", "expiresat", "lockuntil"),
        *("leaseexpiry", "leasedeadline", "claimeduntil", "reserveduntil", "leasedeuntil", "leaseduntil", "lease"),
    ),
    "locked_at": ("lockedat", "claimedat", "pickedat", "leasedat", "reservedat", "startedat", "lockedon"),
    "heartbeat_at": (
        *("heartbeatat", "lastheartbeat", "lastheartbeatat", "heartbeat", "lastseen", "lastseenat", "renewedat"),
        *("lastping", "pingedat", "aliveat", "lastalive"),
    ),
    "attempts": (
        *("attempts", "attempt", "tries", "trialcount", "trycount", "retrycount", "retries", "attemptcount"),
        *("numattempts", "attemptno", "attemptsmade"),
    ),
    "max_attempts": ("maxattempts", "maxtries", "maxretries", "attemptlimit", "retrylimit"),
    "error": ("lasterror", "error", "errortext", "errormessage", "failurereason", "lastfailure", "errormsg"),
    "stage": ("stage", "step", "phase"),
    "kind": ("kind", "type", "jobtype", "taskname", "task", "jobname", "queue", "handler"),
    "created_at": ("createdat", "insertedat", "enqueuedat", "created", "queuedat", "submittedat", "createdon"),
    "run_after": ("runafter", "runat", "scheduledat", "availableat", "nextrunat", "notbefore", "scheduledfor"),
    "finished_at": ("finishedat", "completedat", "doneat", "endedat", "processedat"),
    "failed_at": ("failedat", "diedat", "deadat"),
    "idempotency_key": ("idempotencykey", "idemkey", "dedupkey", "idempotencytoken", "requestid"),
    "amount": ("amount", "total", "amountminor", "amountcents"),
}
_STATES: Mapping[State, tuple[str, ...]] = {
    State.PENDING: ("pending", "queued", "ready", "new", "waiting", "available", "todo", "enqueued", "created", "open"),
    State.PROCESSING: (
        *("processing", "running", "inprogress", "claimed", "locked", "active", "started", "executing", "doing"),
        *("picked", "leased", "working"),
    ),
    State.STUCK: ("stuck", "parked", "stalled", "onhold"),
    State.COMPLETED: ("completed", "complete", "done", "succeeded", "success", "finished", "successful", "paid", "ok"),
    State.FAILED: ("failed", "dead", "error", "errored", "exhausted", "failure"),
    State.CANCELLED: ("cancelled", "canceled", "aborted", "discarded"),
}
# leasetop's own words: a table whose words are all among them speaks its language.
_OURS = frozenset({"Pending", "Processing", "Stuck", "Completed", "Failed", "Cancelled"})
_SETTABLE = {*_NAMES, "lease", "workers", "time_zone", *(state.value for state in _STATES)}
_NO_STATUS = "none"
_STATUS_LIKE = re.compile(r"^st$|stat|done|complet|finish|cancel|success|succeed|result|outcome|progress|flag")
_LEASE = re.compile(r"\s*(?P<column>.+?)\s*\+\s*(?P<span>\d[\w .]*)\s*")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _quote(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class Workers:
    """A table of workers, with a heartbeat each."""

    table: str
    key: str
    """Quoted, as is `table`: what the jobs' owner column refers to."""
    heartbeat: TableColumn


@dataclass(slots=True)
class Guess:
    """A guess on its way to a profile."""

    table: Table
    columns: dict[str, TableColumn]
    states: dict[State, list[str]]
    """Stored values for each state; empty where the table has no status column."""
    time_zone: str = "UTC"
    timeout: str | None = None
    """How long after `locked_at`, or the latest heartbeat, a lease is over, where no column says until when."""
    workers: "Workers | None" = None
    """Where the owners' heartbeats are, if not on the jobs."""
    notes: list[str] = field(default_factory=list)
    """What the table lacks, and what the guess is unsure of."""

    def instant(self, name: str) -> str:
        """A column as an instant with a zone."""
        column = self.columns[name]
        expression = f"j.{column.quoted}"
        return expression if column.has_zone else f"({expression} AT TIME ZONE {_quote(self.time_zone)})"

    def moment(self, name: str, expression: str) -> str:
        """An instant as that column stores it."""
        return expression if self.columns[name].has_zone else f"(({expression}) AT TIME ZONE {_quote(self.time_zone)})"

    @property
    def lease(self) -> str:
        """Until when the lease lasts, as SQL."""
        if "lease_until" in self.columns:
            return self.instant("lease_until")
        since = self.instant("locked_at") if self.timed_by == "locked_at" else self._heartbeat
        return f"({since} + interval {_quote(self.timeout or '')})"

    @property
    def timed_by(self) -> str:
        """What the time-out counts from: heartbeat_at, workers or locked_at."""
        if "heartbeat_at" in self.columns:
            return "heartbeat_at"
        return "workers" if self.workers is not None else "locked_at"

    @property
    def _heartbeat(self) -> str:
        if self.workers is None:
            return self.instant("heartbeat_at")
        beat = f"w.{self.workers.heartbeat.quoted}"
        zoned = beat if self.workers.heartbeat.has_zone else f"({beat} AT TIME ZONE {_quote(self.time_zone)})"
        owner = self.columns["owner"].quoted
        return f"(SELECT {zoned} FROM {self.workers.table} w WHERE w.{self.workers.key} = j.{owner})"

    @property
    def evidence(self) -> str:
        """What proves that a lease is dead."""
        if "lease_until" in self.columns:
            return "lease"
        return "age" if self.timed_by == "locked_at" else "heartbeat"

    def is_in(self, state: State) -> str:
        """`status` is one of the values of a state, as SQL."""
        values = ", ".join(map(_quote, self.states[state]))
        return f"j.{self.columns['status'].quoted} IN ({values})"

    def document(self) -> dict[str, Any]:
        """The profile."""
        return {
            "id": self.table.quoted,
            "title": self.table.quoted.removeprefix("public."),
            "evidence": self.evidence,
            # Nobody can tell from a table whether its workers fence their last write.
            "completion_fenced": False,
            "notes": self.notes,
            "source": {"from": f"{self.table.quoted} j"},
            "key": {
                _name(column, n): {"sql": f"j.{column.quoted}", "type": column.type}
                for n, column in enumerate(_key(self.table))
            },
            "columns": self._fields(),
            "states": self._predicates(),
            "since": self._since(),
            "order": self._order(),
            "actions": self._actions(),
        }

    def _fields(self) -> dict[str, str]:
        found = {"status": self._status(), "fence": self._fence()}
        if self._has_lease:
            found["lease_until"] = self.lease
        for name in ("owner", "attempts", "max_attempts", "error", "stage", "kind", "idempotency_key", "amount"):
            if name in self.columns:
                found[name] = f"j.{self.columns[name].quoted}"
        for name, field_name in (("created_at", "created_at"), ("run_after", "run_after"), ("locked_at", "claimed_at")):
            if name in self.columns and self.columns[name].is_instant:
                found[field_name] = self.instant(name)
        if "finished_at" in self.columns and self.columns["finished_at"].is_instant:
            found["finished_at"] = self.instant("finished_at")
        return found

    @property
    def _has_lease(self) -> bool:
        return "lease_until" in self.columns or self.timeout is not None

    def _status(self) -> str:
        if "status" in self.columns:
            return f"j.{self.columns['status'].quoted}"
        failed = f"WHEN {self._failed} THEN 'failed' " if self._failed else ""
        failed += f"WHEN {self._done} THEN 'finished' " if self._done else ""
        return f"CASE {failed}WHEN {self._held} THEN 'locked' ELSE 'waiting' END"

    def _fence(self) -> str:
        names = ["status", "owner", "attempts", "lease_until", "locked_at", "heartbeat_at", "failed_at"]
        names += [] if "status" in self.columns else ["finished_at"]
        parts = [f"j.{self.columns[name].quoted}" for name in names if name in self.columns]
        return f"ROW({', '.join(parts)})::text"

    @property
    def _held(self) -> str:
        """Somebody has it, live or expired, as SQL."""
        if "status" in self.columns:
            return self.is_in(State.PROCESSING)
        # Without a status, who has it or since when says that it is held.
        locked = next(name for name in ("locked_at", "lease_until", "heartbeat_at", "owner") if name in self.columns)
        taken = f"j.{self.columns[locked].quoted} IS NOT NULL"
        return " AND NOT ".join([taken, *(f"({ended})" for ended in (self._failed, self._done) if ended)])

    @property
    def keeps_done(self) -> bool:
        """Whether finished jobs can be told without a status."""
        return bool(self._done)

    @property
    def _done(self) -> str:
        """Finished for good, as SQL; where there is no status, an end is the only sign."""
        if "status" in self.columns or not self._is_instant("finished_at"):
            return ""
        failed = f" AND NOT ({self._failed})" if self._failed else ""
        return f"j.{self.columns['finished_at'].quoted} IS NOT NULL{failed}"

    @property
    def _failed(self) -> str:
        if "status" in self.columns:
            return self.is_in(State.FAILED) if State.FAILED in self.states else ""
        return f"j.{self.columns['failed_at'].quoted} IS NOT NULL" if "failed_at" in self.columns else ""

    def _predicates(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if "status" in self.columns:
            waiting = self.is_in(State.PENDING)
        else:
            over = [f"({one})" for one in (self._held, self._failed, self._done) if one]
            waiting = "NOT " + " AND NOT ".join(over)
        if "run_after" in self.columns and self.columns["run_after"].is_instant:
            later = f"j.{self.columns['run_after'].quoted} > {self.moment('run_after', 'now()')}"
            found["pending"] = f"{waiting} AND ({later}) IS NOT TRUE"
            found["scheduled"] = f"{waiting} AND {later}"
        else:
            found["pending"] = waiting
        found["processing"] = f"{self._held} AND {self.lease} >= now()"
        stuck = {
            "expired": f"{self._held} AND {self.lease} < now()",
            "owner gone" if self.workers else "no lease": f"{self._held} AND {self.lease} IS NULL",
        }
        if State.STUCK in self.states:
            stuck["parked"] = self.is_in(State.STUCK)
        found["stuck"] = stuck
        if self._failed:
            found["failed"] = self._failed
        if self._done:
            found["completed"] = self._done
        for state in (State.COMPLETED, State.CANCELLED):
            if state in self.states:
                found[state.value] = self.is_in(state)
        if "status" in self.columns:
            known = ", ".join(_quote(value) for values in self.states.values() for value in values)
            status = f"j.{self.columns['status'].quoted}"
            found["other"] = f"({status} NOT IN ({known}) OR {status} IS NULL)"
        return found

    def _since(self) -> dict[str, str]:
        made = self.instant("created_at") if self._is_instant("created_at") else "NULL::timestamptz"
        found = {"pending": self.instant("run_after") if self._is_instant("run_after") else made}
        if self._is_instant("run_after"):
            found["scheduled"] = self.instant("run_after")
        found["processing"] = self.instant("locked_at") if self._is_instant("locked_at") else made
        found["stuck"] = f"coalesce({self.lease}, {made})"
        ended = "finished_at" if self._is_instant("finished_at") else "failed_at"
        if self._is_instant(ended):
            found["failed"] = self.instant(ended)
        return found

    def _is_instant(self, name: str) -> bool:
        return name in self.columns and self.columns[name].is_instant

    def _order(self) -> dict[str, str]:
        keys = ", ".join(f"j.{column.quoted}" for column in _key(self.table))
        found = {"default": keys}
        for name in ("run_after", "created_at"):
            if self._is_instant(name):
                return found | {"pending": f"j.{self.columns[name].quoted}, {keys}"}
        return found

    def _actions(self) -> dict[str, dict[str, str]]:
        key = " AND ".join(
            f"j.{column.quoted} = :key_{_name(column, n)}::{column.type}" for n, column in enumerate(_key(self.table))
        )
        over = f"({self._held} AND (:force::boolean OR {self.lease} IS NULL OR {self.lease} < clock_timestamp()))"
        allowed = [over, *([f"({self._failed})"] if self._failed else [])]
        if State.STUCK in self.states:
            allowed.append(f"({self.is_in(State.STUCK)})")
        returned = [
            f"j.{self.columns[name].quoted} AS {name}" for name in ("attempts", "max_attempts") if name in self.columns
        ]
        requeue = (
            f"UPDATE {self.table.quoted} j\n   SET {', '.join(self._cleared())}\n"
            f" WHERE {key}\n   AND {self._fence()} = :fence::text\n   AND ({' OR '.join(allowed)})\n"
            f"RETURNING {', '.join(returned or ['true AS done'])}"
        )
        effect = "waiting again at once; the attempts stay as they are"
        actions = {"requeue": {"sql": requeue, "effect": effect}}
        if len(_key(self.table)) == 1:
            actions["sweep"] = {"sql": self._sweep(_key(self.table)[0])}
            if State.STUCK not in self.states:
                failed = State.FAILED in self.states and {"attempts", "max_attempts"} <= self.columns.keys()
                then = ", failed where the attempts are used up" if failed else ""
                actions["sweep"]["effect"] = f"waiting again at once{then}"
        return actions

    def _sweep(self, key: TableColumn) -> str:
        over = f"{self._held} AND {self.lease} < clock_timestamp()"
        owner = f"(j.{self.columns['owner'].quoted})::text" if "owner" in self.columns else "NULL::text"
        changes = self._cleared()[1 if "status" in self.columns else 0 :]
        if {"attempts", "max_attempts"} <= self.columns.keys():
            # A sweep grants no further attempt.
            changes.pop()
        counts = [
            f"j.{self.columns[name].quoted}::bigint AS {name}" if name in self.columns else f"NULL::bigint AS {name}"
            for name in ("attempts", "max_attempts")
        ]
        if "status" in self.columns:
            changes.insert(0, f"{self._status_name} = {self._status_after_sweep()}")
        return (
            f"WITH expired AS MATERIALIZED (\n"
            f"  SELECT j.{key.quoted} AS id, {owner} AS owner FROM {self.table.quoted} j\n"
            f"   WHERE {over}\n     AND (:ids::text[] IS NULL OR (j.{key.quoted}::text, {self._fence()})\n"
            f"          IN (SELECT * FROM unnest(:ids::text[], :fences::text[])))\n"
            f"   ORDER BY j.{key.quoted} LIMIT :batch FOR UPDATE SKIP LOCKED)\n"
            f"UPDATE {self.table.quoted} j\n   SET {', '.join(changes)}\n  FROM expired e\n"
            f" WHERE j.{key.quoted} = e.id AND {over}\n"
            f"RETURNING j.{key.quoted}::text AS id, ({self._status()})::text AS status, {', '.join(counts)}, e.owner"
        )

    @property
    def _status_name(self) -> str:
        return self.columns["status"].quoted if "status" in self.columns else ""

    def _status_after_sweep(self) -> str:
        arms = []
        if State.STUCK in self.states:
            arms.append(f"WHEN :policy::text = 'park' THEN {_quote(self.states[State.STUCK][0])}")
        if State.FAILED in self.states and {"attempts", "max_attempts"} <= self.columns.keys():
            now, most = self.columns["attempts"].quoted, self.columns["max_attempts"].quoted
            arms.append(f"WHEN j.{now} >= j.{most} THEN {_quote(self.states[State.FAILED][0])}")
        waiting = _quote(self.states[State.PENDING][0])
        after = f"CASE {' '.join(arms)} ELSE {waiting} END" if arms else waiting
        return f"({after})::{self.columns['status'].type}"

    def _cleared(self) -> list[str]:
        changes = []
        if "status" in self.columns:
            changes.append(f"{self.columns['status'].quoted} = {_quote(self.states[State.PENDING][0])}")
        for name in ("owner", "lease_until", "locked_at", "heartbeat_at", "failed_at", "finished_at"):
            column = self.columns.get(name)
            if column is not None:
                changes.append(f"{column.quoted} = {'DEFAULT' if column.required else 'NULL'}")
        if self._is_instant("run_after"):
            changes.append(f"{self.columns['run_after'].quoted} = {self.moment('run_after', 'clock_timestamp()')}")
        if {"attempts", "max_attempts"} <= self.columns.keys():
            most, now = self.columns["max_attempts"].quoted, self.columns["attempts"].quoted
            changes.append(f"{most} = greatest(j.{most}, j.{now} + 1)")
        return changes


def _key(table: Table) -> list[TableColumn]:
    return [column for column in table.columns if column.key]


def _name(column: TableColumn, number: int) -> str:
    # The name of a parameter in SQL: only letters that a parameter may have.
    return re.sub(r"[^a-z0-9_]", "", column.name.lower()) or f"k{number}"


async def guess(database: Database, name: str, told: Mapping[str, str] | None = None) -> Guess:
    """What the table's columns mean, as far as one can tell, and as the operator has told (`--set`).

    Raises MappingError with what is missing; NoQueue, Unreachable, Refused.
    """
    told = told or {}
    for unknown in told.keys() - _SETTABLE:
        raise MappingError(f"--set {text.safe(unknown)}: not known; known are {', '.join(sorted(_SETTABLE))}")
    table = await tables.look(database, name)
    columns, timeout = _columns(table, told)
    workers = None
    if "lease_until" not in columns and "heartbeat_at" not in columns:
        workers, timeout = await _workers(database, table, columns, told, timeout)
    _look_for_a_status(table, columns, told)
    states = await _states(database, table, columns.get("status"), told)
    made = Guess(table, columns, states, told.get("time_zone", "UTC"), timeout, workers)
    _demand(made)
    made.notes += await _notes(database, made)
    return made


def _columns(table: Table, told: Mapping[str, str]) -> tuple[dict[str, TableColumn], str | None]:
    found: dict[str, TableColumn] = {}
    for name, words in _NAMES.items():
        if name == "status" and told.get(name) == _NO_STATUS:
            continue
        if name in told:
            column = table.column(told[name])
            if column is None:
                raise MappingError(f"--set {name}={text.safe(told[name])}: {table.quoted} has no such column")
            found[name] = column
            continue
        named = {_plain(column.name): column for column in reversed(table.columns)}
        column = next((named[_plain(word)] for word in words if _plain(word) in named), None)
        if column is not None and _fits(name, column):
            found[name] = column
    timeout = None
    if "lease" in told:
        match = _LEASE.fullmatch(told["lease"])
        column = table.column(match["column"]) if match else table.column(told["lease"])
        if column is None and match:
            # Perhaps a column of the workers' table.
            found.pop("lease_until", None)
            return found, match["span"]
        if column is None:
            raise MappingError(f"--set lease={text.safe(told['lease'])}: give a column, or a column + time-out")
        found.pop("lease_until", None)
        beats = "heartbeat_at" if _plain(column.name) in _NAMES["heartbeat_at"] else "locked_at"
        found[beats if match else "lease_until"] = column
        if match and beats == "locked_at":
            # Who names another column does not want the heartbeat to count.
            found.pop("heartbeat_at", None)
        timeout = match["span"] if match else None
    return found, timeout


def _look_for_a_status(table: Table, columns: Mapping[str, TableColumn], told: Mapping[str, str]) -> None:
    """A status that is overlooked makes jobs that are done look stuck: better ask once too often."""
    if "status" in columns:
        return
    for state in _STATES:
        if state.value in told:
            raise MappingError(f"--set {state.value}: which column is the status? Tell with --set status=COLUMN")
    if told.get("status") == _NO_STATUS:
        return
    taken = {column.name for column in columns.values()}
    suspects = [
        column.name
        for column in table.columns
        if column.name not in taken
        and not column.key
        and (column.type in ("boolean", "character(1)", '"char"') or _STATUS_LIKE.search(column.name.lower()))
    ]
    if suspects:
        listed = ", ".join(map(text.safe, suspects[:5]))
        raise MappingError(
            f"{table.quoted}: does {listed} say whether a job is done? Tell the status with --set status=COLUMN "
            f"(and --set pending=VALUE ...), or --set status={_NO_STATUS} where a row's lock is all there is"
        )


async def _workers(
    database: Database, table: Table, columns: Mapping[str, TableColumn], told: Mapping[str, str], timeout: str | None
) -> tuple[Workers | None, str | None]:
    """The table of workers that the owner refers to, where that has a heartbeat; and the time-out for it."""
    match = _LEASE.fullmatch(told.get("lease", ""))
    named = match["column"] if match else None
    if named is not None and table.column(named) is not None:
        return None, timeout
    owner = columns.get("owner")
    if "workers" in told:
        other = await tables.look(database, told["workers"])
        keys = _key(other)
        if len(keys) != 1:
            raise MappingError(f"--set workers={text.safe(told['workers'])}: has no key of one column")
        place = other, keys[0].quoted
    else:
        reference = next((one for one in table.references if owner is not None and one.column == owner.name), None)
        if reference is None:
            if named is not None:
                raise MappingError(
                    f"--set lease={text.safe(told['lease'])}: {table.quoted} has no such column; "
                    "is it one of the workers' table? Tell which with --set workers=TABLE"
                )
            return None, timeout
        place = await tables.look(database, reference.table), reference.key
    other, key = place
    if owner is None:
        raise MappingError("--set workers: which column of the jobs names the worker? Tell with --set owner=COLUMN")
    wanted = {_plain(named)} if named else set(_NAMES["heartbeat_at"])
    beat = next((one for one in other.columns if _plain(one.name) in wanted and one.is_instant), None)
    if beat is None:
        if named is not None or "workers" in told:
            raise MappingError(f"{other.quoted}: no column there is a heartbeat; tell with --set 'lease=COLUMN + 60 s'")
        return None, timeout
    return Workers(other.quoted, key, beat), timeout


def _fits(name: str, column: TableColumn) -> bool:
    if name in ("lease_until", "locked_at", "heartbeat_at", "failed_at", "created_at", "run_after", "finished_at"):
        return column.is_instant
    if name in ("attempts", "max_attempts"):
        return column.type in ("smallint", "integer", "bigint")
    return True


async def _states(
    database: Database, table: Table, status: TableColumn | None, told: Mapping[str, str]
) -> dict[State, list[str]]:
    if status is None:
        return {}
    used = await tables.values(database, table, status)
    found: dict[State, list[str]] = {}
    for state, words in _STATES.items():
        if state.value in told:
            found[state] = [value.strip() for value in told[state.value].split(",")]
            continue
        # Where one word stands in two spellings, the rarer is a mistake of somebody's, not a state: shown as other.
        spelled: dict[str, str] = {}
        for value in used:
            if value is not None and _plain(value) in words:
                spelled.setdefault(_plain(value), value)
        if spelled:
            found[state] = list(spelled.values())
    # States that no row is in right now count, too: at night nothing may be Pending, and yet a requeue makes it so.
    declared = await tables.declared(database, table, status)
    if used and set(used) <= _OURS:
        # But not that it knows parked or discarded jobs, where there is none: its workers may not.
        declared = [*declared, "Pending", "Processing", "Completed", "Failed"]
    if State.PROCESSING not in found and State.PENDING in found and status.type.startswith(("text", "char", "var")):
        # It is compared, and never written: whatever of these words comes up is taken for that.
        declared = [*declared, *(_styled(word, found[State.PENDING][0]) for word in _STATES[State.PROCESSING])]
    for state, words in _STATES.items():
        labels = [label for label in dict.fromkeys(declared) if _plain(label) in words]
        if labels and state not in found:
            found[state] = labels
    return found


def _styled(word: str, like: str) -> str:
    """A word in capitals as another one is."""
    return word.upper() if like.isupper() else word.capitalize() if like[:1].isupper() else word


def _demand(made: Guess) -> None:
    """What no profile can do without."""
    table = made.table.quoted
    if not _key(made.table):
        raise MappingError(f"{table} has no primary or unique key: no act could name exactly one job")
    timed = "lease_until" in made.columns or "locked_at" in made.columns or made.timed_by != "locked_at"
    if not timed:
        raise MappingError(f"{table}: no column says until when a lease lasts; tell with --set lease=COLUMN")
    if "lease_until" not in made.columns and made.timeout is None:
        workers = made.workers
        column = workers.heartbeat.name if workers else made.columns[made.timed_by].name
        aged = made.timed_by == "locked_at"
        what = "when a job was taken" if aged else "when its worker was last alive"
        raise MappingError(
            f"{table}: {text.safe(column)} says {what}, not until when; tell how long a lease lasts, "
            f"as its workers have it, with --set 'lease={text.safe(column)} + {'4 hours' if aged else '90 seconds'}'"
        )
    if "status" in made.columns:
        lacking = [state.value for state in (State.PENDING, State.PROCESSING) if state not in made.states]
        if lacking:
            name = text.safe(made.columns["status"].name)
            raise MappingError(
                f"{table}: which value of {name} means {' and which '.join(lacking)}? Tell with "
                + " ".join(f"--set {state}=VALUE" for state in lacking)
            )


async def _notes(database: Database, made: Guess) -> list[str]:
    notes = ["no history is kept by this table"]
    for name, words in (("idempotency_key", "no idempotency key"), ("owner", "owner: not recorded")):
        if name not in made.columns:
            notes.append(words)
    unzoned = [column.name for column in made.columns.values() if column.is_instant and not column.has_zone]
    if unzoned:
        notes.append(f"time zone: none is stored in {', '.join(map(text.safe, unzoned))}; read as {made.time_zone}")
    if made.timeout is not None and made.timed_by == "locked_at":
        notes.append(f"no lease: by age only, {made.timeout} after {text.safe(made.columns['locked_at'].name)}")
    if "status" not in made.columns:
        return notes if made.keeps_done else [*notes, "completed: not kept"]
    status = made.columns["status"]
    if State.COMPLETED not in made.states:
        notes.append("completed: no value of the status is known to mean that")
    elif await tables.exists(database, made.table, f"{made.is_in(State.COMPLETED)} AND {made.lease} IS NOT NULL"):
        notes.append("a lease left on a Completed row is not a lease")
    notes += _strangers(await tables.values(database, made.table, status), made.states, status.type)
    if not any(status.quoted in index for index in made.table.indexes):
        notes.append("no index for the processing state: every refresh reads the table")
    return notes


def _strangers(used: Mapping[str | None, int], states: Mapping[State, list[str]], kind: str) -> list[str]:
    known = {value for values in states.values() for value in values}
    strange = {value: number for value, number in used.items() if value not in known}
    if not strange:
        return []
    number = kind in ("smallint", "integer", "bigint")
    said = {
        "NULL" if value is None else text.safe(value) if number else f"'{text.safe(value)}'": count
        for value, count in strange.items()
    }
    if len(said) == 1:
        ((value, count),) = said.items()
        return [f"status {value} is not in the profile: {text.plural(count, 'job')}"]
    listed = [f"{value} ({count})" for value, count in sorted(said.items(), key=lambda one: one[0] == "NULL")]
    return [f"status {', '.join(listed[:-1])} and {listed[-1]} are not in the profile"]
