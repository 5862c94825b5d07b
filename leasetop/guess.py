"""Guesses what a table's columns mean.

What a guess rests on is names, types, foreign keys and the values that are in use. What it cannot know it asks for, and
takes from the operator (`--set`); where a wrong guess would end a lease that lives, it asks rather once too often.
mapping.py makes a profile of the result.
"""

import re
from collections.abc import Mapping, Sequence

from leasetop import table as tables
from leasetop import text
from leasetop.database import Database
from leasetop.errors import LeasetopError
from leasetop.mapping import Meaning, Workers
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
_INSTANTS = ("lease_until", "locked_at", "heartbeat_at", "failed_at", "created_at", "run_after", "finished_at")
# Names that a lease may have, but the whole job as well.
_UNSURE_LEASES = ("expiresat",)
_NO_STATUS = "none"
_STATUS_LIKE = re.compile(r"^st$|stat|done|complet|finish|cancel|success|succeed|result|outcome|progress|flag")
_LEASE = re.compile(r"\s*(?P<column>.+?)\s*\+\s*(?P<span>\d[\w .]*)\s*")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


async def guess(database: Database, name: str, told: Mapping[str, str] | None = None) -> Meaning:
    """What the table's columns mean, as far as one can tell, and as the operator has told (`--set`).

    Raises MappingError with what is missing; NoQueue, Unreachable, Refused.
    """
    told = told or {}
    for key, value in told.items():
        if key not in _SETTABLE:
            raise MappingError(f"--set {text.safe(key)}: not known; known are {', '.join(sorted(_SETTABLE))}")
        if not value.strip():
            raise MappingError(f"--set {key}=: has no value")
    table = await tables.look(database, name)
    columns, timeout = _columns(table, told)
    workers = None
    if "lease_until" not in columns and "heartbeat_at" not in columns:
        workers, timeout = await _workers(database, table, columns, told, timeout)
    _look_for_a_status(table, columns, told)
    states = await _states(database, table, columns.get("status"), told)
    made = Meaning(table, columns, states, await _time_zone(database, told), timeout, workers)
    await _demand(database, made, told)
    made.notes += await _notes(database, made)
    return made


async def _time_zone(database: Database, told: Mapping[str, str]) -> str:
    if "time_zone" not in told:
        return "UTC"
    zone = await tables.time_zone(database, told["time_zone"])
    if zone is None:
        said = text.safe(told["time_zone"])
        raise MappingError(f"--set time_zone={said}: this server knows no such zone (see pg_timezone_names)")
    return zone


def _columns(table: Table, told: Mapping[str, str]) -> tuple[dict[str, TableColumn], str | None]:
    found: dict[str, TableColumn] = {}
    for name, words in _NAMES.items():
        if name == "status" and told.get(name) == _NO_STATUS:
            continue
        if name in told:
            column = table.column(told[name])
            if column is None:
                raise MappingError(f"--set {name}={text.safe(told[name])}: {table.quoted} has no such column")
            found[name] = _fitting(name, column)
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
        role = beats if match else "lease_until"
        found[role] = _fitting(role, column)
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
        keys = [column for column in other.columns if column.key]
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
    if name in _INSTANTS:
        return column.is_instant
    if name in ("attempts", "max_attempts"):
        return column.base in ("smallint", "integer", "bigint")
    return True


def _fitting(name: str, column: TableColumn) -> TableColumn:
    """The column that the operator told, if it can be what it is told to be."""
    if not _fits(name, column):
        wanted = "a timestamp" if name in _INSTANTS else "an integer"
        raise MappingError(
            f"--set: {text.safe(column.name)} is {text.safe(column.type)}, and {name} must be {wanted}; "
            "a profile written by hand can convert it"
        )
    return column


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
            await _check_values(database, status, state, found)
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
    for state in _STATES:
        # What the operator told counts for that alone, whatever the words look like.
        elsewhere = {value for other in _STATES if other is not state and other.value in told for value in found[other]}
        if state in found and state.value not in told:
            found[state] = [value for value in found[state] if value not in elsewhere]
            if not found[state]:
                del found[state]
    return found


async def _check_values(
    database: Database, status: TableColumn, state: State, found: Mapping[State, Sequence[str]]
) -> None:
    for value in found[state]:
        said = f"--set {state}={text.safe(','.join(found[state]))}"
        if not value:
            raise MappingError(f"{said}: one of the values is empty")
        twice = next((other for other in found if other is not state and value in found[other]), None)
        if twice is not None:
            raise MappingError(f"{said}: '{text.safe(value)}' means {twice} already")
        if not await tables.is_a(database, value, status.type):
            raise MappingError(f"{said}: '{text.safe(value)}' is no {text.safe(status.type)}")


def _styled(word: str, like: str) -> str:
    """A word in capitals as another one is."""
    return word.upper() if like.isupper() else word.capitalize() if like[:1].isupper() else word


async def _demand(database: Database, made: Meaning, told: Mapping[str, str]) -> None:
    """What no profile can do without, and what must not be guessed."""
    _demand_a_lease(made, told)
    if made.timeout is not None and not await tables.is_a_span(database, made.timeout):
        raise MappingError(f"--set lease: '{text.safe(made.timeout)}' is no time-out above zero, such as '90 seconds'")
    _demand_states(made, told)
    await _demand_a_zone(database, made, told)
    if "lease_until" in made.columns and "heartbeat_at" in made.columns and "lease" not in told:
        beat, lease = made.columns["heartbeat_at"], made.columns["lease_until"]
        late = f"{made.instant('heartbeat_at')} > {made.instant('lease_until')}"
        if await tables.exists(database, made.table, late):
            raise MappingError(
                f"{made.table.quoted}: {text.safe(beat.name)} is later than {text.safe(lease.name)} in some rows: "
                f"which of them is the lease? {_either(lease, beat)}"
            )


def _demand_a_lease(made: Meaning, told: Mapping[str, str]) -> None:
    table = made.table.quoted
    if not made.key:
        raise MappingError(f"{table} has no primary or unique key without NULLs: no act could name exactly one job")
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
    lease = made.columns.get("lease_until")
    if lease is not None and _plain(lease.name) in _UNSURE_LEASES and not told.keys() & {"lease", "lease_until"}:
        # Perhaps it is the job that expires: then live leases would be ended.
        other = made.columns.get("heartbeat_at") or made.columns.get("locked_at")
        if other is not None:
            raise MappingError(
                f"{table}: is {text.safe(lease.name)} the end of a lease, or of the job itself? {_either(lease, other)}"
            )
    if "status" not in made.columns and made.taken_by is None:
        raise MappingError(
            f"{table}: there is no status, and its owner and lease cannot be NULL: nothing tells a waiting job from "
            "one that is held; tell the status with --set status=COLUMN"
        )


def _either(lease: TableColumn, other: TableColumn) -> str:
    span = "90 seconds" if _plain(other.name) in _NAMES["heartbeat_at"] else "4 hours"
    return f"tell with --set lease={text.safe(lease.name)}, or --set 'lease={text.safe(other.name)} + {span}'"


def _demand_states(made: Meaning, told: Mapping[str, str]) -> None:
    if "status" not in made.columns:
        return
    table, name = made.table.quoted, text.safe(made.columns["status"].name)
    lacking = [state.value for state in (State.PENDING, State.PROCESSING) if state not in made.states]
    if lacking:
        raise MappingError(
            f"{table}: which value of {name} means {' and which '.join(lacking)}? Tell with "
            + " ".join(f"--set {state}=VALUE" for state in lacking)
        )
    written = [State.PENDING, State.STUCK, State.CANCELLED]
    if {"attempts", "max_attempts"} <= made.columns.keys():
        # A sweep of jobs that have used up their attempts writes it.
        written.append(State.FAILED)
    for state in written:
        values = made.states.get(state, ())
        if len(values) > 1 and state.value not in told:
            raise MappingError(
                f"{table}: {' and '.join(map(text.safe, values))} of {name} may all mean {state}; tell with "
                f"--set {state}={','.join(map(text.safe, values))}, the one first that an act is to write"
            )


async def _demand_a_zone(database: Database, made: Meaning, told: Mapping[str, str]) -> None:
    lacking = [
        made.columns[name]
        for name in ("lease_until", "locked_at", "heartbeat_at", "run_after")
        if name in made.columns and not made.columns[name].has_zone
    ]
    if made.workers is not None and not made.workers.heartbeat.has_zone:
        lacking.append(made.workers.heartbeat)
    if not lacking or "time_zone" in told:
        return
    names = ", ".join(text.safe(column.name) for column in lacking)
    raise MappingError(
        f"{made.table.quoted}: no time zone is stored in {names}, and a lease that is read in the wrong one looks dead "
        f"while it lives; tell in which its workers write, with --set time_zone=UTC, or e.g. "
        f"--set time_zone={await tables.own_zone(database)}"
    )


async def _notes(database: Database, made: Meaning) -> list[str]:
    notes = ["no history is kept by this table"]
    for name, words in (("idempotency_key", "no idempotency key"), ("owner", "owner: not recorded")):
        if name not in made.columns:
            notes.append(words)
    unzoned = [column.name for column in made.columns.values() if column.is_instant and not column.has_zone]
    if unzoned:
        notes.append(f"time zone: none is stored in {', '.join(map(text.safe, unzoned))}; read as {made.time_zone}")
    if made.timeout is not None and made.timed_by == "locked_at":
        notes.append(f"no lease: by age only, {made.timeout} after {text.safe(made.columns['locked_at'].name)}")
    if made.kept:
        notes.append(f"cannot be emptied, and stays after a requeue: {', '.join(map(text.safe, made.kept))}")
    if "status" not in made.columns:
        return notes if made.keeps_done else [*notes, "completed: not kept"]
    status = made.columns["status"]
    if State.COMPLETED not in made.states:
        notes.append("completed: no value of the status is known to mean that")
    elif await tables.exists(database, made.table, f"{made.is_in(State.COMPLETED)} AND {made.lease} IS NOT NULL"):
        notes.append("a lease left on a Completed row is not a lease")
    if status.generated:
        notes.append(f"{text.safe(status.name)} is made from other columns: an act writes those")
    notes += _strangers(await tables.values(database, made.table, status), made.states, status.type)
    if not any(status.quoted in index for index in made.table.indexes):
        notes.append("no index for the processing state: every refresh reads the table")
    return notes


def _strangers(used: Mapping[str | None, int], states: Mapping[State, Sequence[str]], kind: str) -> list[str]:
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
