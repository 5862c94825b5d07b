"""Guesses what a table's columns mean.

What a guess rests on is names, types, foreign keys and the values that are in use. What it cannot know it asks for
(doubts.py), and takes from the operator (`--set`). mapping.py makes a profile of the result.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from leasetop import doubts, naming, text
from leasetop import table as tables
from leasetop.database import Database
from leasetop.mapping import Meaning, Workers
from leasetop.model import State
from leasetop.naming import MappingError
from leasetop.table import Table, TableColumn

_LEASE = re.compile(r"\s*(?P<column>.+?)\s*\+\s*(?P<span>\d[\w .]*)\s*")


async def guess(database: Database, name: str, told: Mapping[str, str] | None = None) -> Meaning:
    """What the table's columns mean, as far as one can tell, and as the operator has told (`--set`).

    Raises MappingError with what is missing; NoQueue, Unreachable, Refused.
    """
    told = told or {}
    for key, value in told.items():
        if key not in naming.SETTABLE:
            raise MappingError(f"--set {text.safe(key)}: not known; known are {', '.join(sorted(naming.SETTABLE))}")
        if not value.strip():
            raise MappingError(f"--set {key}=: has no value")
    table = _with_epochs(await tables.look(database, name), told)
    columns, timeout = _columns(table, told)
    workers, timeout = await _workers(database, table, columns, told, timeout)
    doubts.look_for_a_status(table, columns, told)
    if "status" in columns:
        if told.get("done", naming.NONE) != naming.NONE:
            raise MappingError(
                f"--set done={text.safe(told['done'])}: {table.quoted} has a status, which says it: tell with --set "
                f"completed=VALUE, or --set status={naming.NONE} where it does not"
            )
        columns.pop("done", None)
    await doubts.look_for_words(database, table, columns, told)
    states = await _states(database, table, columns.get("status"), told)
    # Whoever told that another column counts from the claim did not mean that it is one of a holder's.
    borrowed = {
        name
        for name in ("locked_at", "heartbeat_at")
        if name in columns and naming.plain(columns[name].name) not in naming.NAMES[name]
    }
    zone = await _time_zone(database, told)
    made = Meaning(table, columns, states, zone, timeout, workers, frozenset(borrowed))
    await doubts.demand(database, made, told)
    made.unread = doubts.unread(made, told) + await doubts.stages_that_end(database, made, told)
    made.unsure = await doubts.unsure(database, made, told)
    made.notes += await _notes(database, made)
    return made


def _with_epochs(table: Table, told: Mapping[str, str]) -> Table:
    """The table with the numbers that are instants, where it has been told that they are."""
    unit = told.get("epoch")
    if unit == naming.NONE:
        return table
    if unit is None:
        asked = [
            column.name
            for column in table.columns
            if column.is_number
            and not column.key
            and (
                naming.is_until(column.name)
                or naming.is_beat(column.name)
                or naming.plain(column.name) in naming.NAMES["locked_at"]
            )
        ]
        if asked and not told.keys() & {"lease", "lease_until"}:
            raise MappingError(
                f"{table.quoted}: {', '.join(map(text.safe, asked))} is a number: an instant, counted since 1970? Tell "
                f"with --set epoch=seconds or --set epoch=milliseconds, or --set epoch={naming.NONE} where it is none"
            )
        return table
    if unit not in naming.TICKS:
        raise MappingError(f"--set epoch={text.safe(unit)}: give seconds, milliseconds or {naming.NONE}")
    return replace(
        table,
        columns=tuple(
            replace(column, ticks=naming.TICKS[unit])
            if column.is_number and not column.key and naming.is_instant(column.name)
            else column
            for column in table.columns
        ),
    )


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
    named = {naming.plain(column.name): column for column in reversed(table.columns)}
    for name, known in naming.NAMES.items():
        if told.get(name) == naming.NONE:
            continue
        if name in told:
            found[name] = _told(table, name, told[name])
            continue
        column = next((named[naming.plain(word)] for word in known if naming.plain(word) in named), None)
        if column is not None and _fits(name, column):
            found[name] = column
    timeout = None
    if "lease" in told:
        match = _LEASE.fullmatch(told["lease"])
        column = table.column(match["column"]) if match else table.column(told["lease"])
        found.pop("lease_until", None)
        if column is None and match:
            # Perhaps a column of the workers' table.
            found.pop("heartbeat_at", None)
            return found, match["span"]
        if column is None:
            raise MappingError(f"--set lease={text.safe(told['lease'])}: give a column, or a column + time-out")
        if match is None:
            found["lease_until"] = _until(table, column)
            return found, None
        beats = naming.is_beat(column.name)
        role = "heartbeat_at" if beats else "locked_at"
        found[role] = _fitting(role, column)
        if not beats:
            # Who names another column does not want the heartbeat to count.
            found.pop("heartbeat_at", None)
        timeout = match["span"]
    return found, timeout


def _told(table: Table, name: str, value: str) -> TableColumn:
    column = table.column(value)
    if column is None:
        raise MappingError(f"--set {name}={text.safe(value)}: {table.quoted} has no such column")
    return _until(table, column) if name == "lease_until" else _fitting(name, column)


def _until(table: Table, column: TableColumn) -> TableColumn:
    """A column that is told to say until when a lease lasts, if that can be."""
    since = {*naming.NAMES["locked_at"], *naming.NAMES["created_at"]}
    if naming.plain(column.name) in since or naming.is_beat(column.name):
        name = text.safe(column.name)
        raise MappingError(
            f"{table.quoted}: {name} says since when, not until when: with it alone every job looks dead; give a "
            f"time-out as well, as the workers have it: --set 'lease={name} + 90 seconds'"
        )
    return _fitting("lease_until", column)


async def _workers(
    database: Database, table: Table, columns: Mapping[str, TableColumn], told: Mapping[str, str], timeout: str | None
) -> tuple[Workers | None, str | None]:
    """The table of workers that the owner refers to, where that has a heartbeat; and the time-out for it."""
    match = _LEASE.fullmatch(told.get("lease", ""))
    named = match["column"] if match else None
    owner = columns.get("owner")
    if (named is not None and table.column(named) is not None) or (
        told.keys() & {"lease", "lease_until"} and not match
    ):
        return None, timeout
    places = await _places(database, table, owner, told)
    if not places:
        if named is not None:
            raise MappingError(
                f"--set lease={text.safe(told['lease'])}: {table.quoted} has no such column; "
                "is it one of the workers' table? Tell which with --set workers=TABLE"
            )
        return None, timeout
    if owner is None:
        raise MappingError("--set workers: which column of the jobs names the worker? Tell with --set owner=COLUMN")
    beating = {}
    for other, key in places:
        instants = [one for one in other.columns if one.is_instant]
        beats = [one for one in instants if (one.name == named if named else naming.is_beat(one.name))]
        if beats:
            beating[other.quoted] = other, key, beats
    if not beating:
        if named is not None or "workers" in told:
            (other, _) = places[0]
            raise MappingError(f"{other.quoted}: no column there is a heartbeat; tell with --set 'lease=COLUMN + 60 s'")
        return None, timeout
    if len(beating) > 1:
        raise MappingError(
            f"{table.quoted}: {text.safe(owner.name)} refers to {' and '.join(beating)}, which both have heartbeats; "
            "tell which counts with --set workers=TABLE"
        )
    ((other, key, beats),) = beating.values()
    if len(beats) > 1:
        raise MappingError(
            f"{other.quoted}: {' and '.join(text.safe(one.name) for one in beats)} may each be the heartbeat; tell "
            f"with --set 'lease={text.safe(beats[0].name)} + 90 seconds'"
        )
    found = Workers(other.quoted, key, beats[0])
    doubts.is_the_workers_table(table, columns, found, told)
    return found, timeout


async def _places(
    database: Database, table: Table, owner: TableColumn | None, told: Mapping[str, str]
) -> list[tuple[Table, str]]:
    """The tables that may be the workers', each with its quoted key."""
    if "workers" not in told:
        references = [one for one in table.references if owner is not None and one.column == owner.name]
        return [(await tables.look(database, one.table), one.key) for one in references]
    name, _, column = told["workers"].partition(":")
    other = await tables.look(database, name)
    if column:
        key = other.column(column)
        if key is None:
            raise MappingError(f"--set workers={text.safe(told['workers'])}: {other.quoted} has no such column")
        return [(other, key.quoted)]
    keys = [one for one in other.columns if one.key]
    if len(keys) != 1:
        raise MappingError(
            f"--set workers={text.safe(name)}: has no key of one column; tell what the owner is there with "
            f"--set workers={text.safe(name)}:COLUMN"
        )
    return [(other, keys[0].quoted)]


def _fits(name: str, column: TableColumn) -> bool:
    if name in naming.INSTANTS:
        return column.is_instant
    if name == "done":
        return column.base == "boolean"
    if name in ("attempts", "max_attempts"):
        return column.is_number
    return True


def _fitting(name: str, column: TableColumn) -> TableColumn:
    """The column that the operator told, if it can be what it is told to be."""
    if not _fits(name, column):
        wanted = "a timestamp" if name in naming.INSTANTS else "a boolean" if name == "done" else "an integer"
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
    for state, known in naming.STATES.items():
        if state.value in told:
            found[state] = [value.strip() for value in told[state.value].split(",")]
            await _check_values(database, status, state, found)
            continue
        # Where one word stands in two spellings, the rarer is a mistake of somebody's, not a state: shown as other.
        spelled: dict[str, str] = {}
        for value in used:
            if value is not None and naming.plain(value) in known:
                spelled.setdefault(naming.plain(value), value)
        if spelled:
            found[state] = list(spelled.values())
    # States that no row is in right now count, too: at night nothing may be Pending, and yet a requeue makes it so.
    declared = await tables.declared(database, table, status)
    if used and set(used) <= naming.OURS:
        # But not that it knows parked or discarded jobs, where there is none: its workers may not.
        declared = [*declared, "Pending", "Processing", "Completed", "Failed"]
    if State.PROCESSING not in found and State.PENDING in found and status.type.startswith(("text", "char", "var")):
        # It is compared, and never written: whatever of these words comes up is taken for that.
        # But none that has another meaning elsewhere.
        sure = [word for word in naming.STATES[State.PROCESSING] if word not in naming.TWO_EDGED]
        declared = [*declared, *(_styled(word, found[State.PENDING][0]) for word in sure)]
    for state, known in naming.STATES.items():
        labels = [label for label in dict.fromkeys(declared) if naming.plain(label) in known]
        if labels and state not in found:
            found[state] = labels
    for state in naming.STATES:
        # What the operator told counts for that alone, whatever the words look like.
        told_of = [other for other in naming.STATES if other is not state and other.value in told]
        elsewhere = {value for other in told_of for value in found[other]}
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


async def _notes(database: Database, made: Meaning) -> list[str]:
    notes = ["no history is kept by this table"]
    for name, said in (("idempotency_key", "no idempotency key"), ("owner", "owner: not recorded")):
        if name not in made.columns:
            notes.append(said)
    unzoned = [column.name for column in made.columns.values() if column.is_instant and not column.has_zone]
    if unzoned:
        notes.append(f"time zone: none is stored in {', '.join(map(text.safe, unzoned))}; read as {made.time_zone}")
    if made.timeout is not None and made.timed_by == "locked_at":
        notes.append(f"no lease: by age only, {made.timeout} after {text.safe(made.columns['locked_at'].name)}")
    if made.unread:
        notes.append(f"not understood, and an act needs you to be sure: {', '.join(map(text.safe, made.unread))}")
    if made.kept:
        notes.append(f"cannot be emptied, and stays after a requeue: {', '.join(map(text.safe, made.kept))}")
    if "status" not in made.columns:
        return notes if made.keeps_done else [*notes, "completed: not kept"]
    status = made.columns["status"]
    if State.COMPLETED not in made.states:
        notes.append("completed: no value of the status is known to mean that")
    elif made.workers is None and await tables.exists(
        database, made.table, f"{made.is_in(State.COMPLETED)} AND {made.lease} IS NOT NULL"
    ):
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
