"""What must be asked before a table of one's own is acted on: each wrong guess here would end a lease that lives."""

import re
from collections.abc import Mapping

import psycopg

from leasetop import naming, text
from leasetop import table as tables
from leasetop.database import Database
from leasetop.errors import Refused
from leasetop.mapping import Meaning, Workers
from leasetop.model import State
from leasetop.naming import MappingError
from leasetop.table import Table, TableColumn


def look_for_a_status(table: Table, columns: Mapping[str, TableColumn], told: Mapping[str, str]) -> None:
    """A status that is overlooked makes jobs that are done look stuck."""
    if "status" in told and told["status"] != naming.NONE:
        return
    if "status" not in columns:
        _is_there_none(table, columns, told)
        return
    found = columns["status"]
    others = [
        column
        for column in table.columns
        if column is not found
        and not column.key
        and (
            naming.plain(column.name) in naming.NAMES["status"]
            or (column.base == "boolean" and naming.plain(column.name) in naming.NAMES["done"])
        )
    ]
    if others:
        listed = " and ".join(text.safe(column.name) for column in [found, *others])
        raise MappingError(
            f"{table.quoted}: {listed} may each say whether a job is done; tell which counts with "
            f"--set status={text.safe(found.name)}, or another of them"
        )


def _is_there_none(table: Table, columns: Mapping[str, TableColumn], told: Mapping[str, str]) -> None:
    for state in naming.STATES:
        if state.value in told:
            raise MappingError(f"--set {state.value}: which column is the status? Tell with --set status=COLUMN")
    if told.get("status") == naming.NONE:
        return
    taken = {column.name for column in columns.values()}
    suspects = [
        column.name
        for column in table.columns
        if column.name not in taken and not column.key and _may_say_that_it_is_over(column)
    ]
    if suspects:
        listed = ", ".join(map(text.safe, suspects[:5]))
        raise MappingError(
            f"{table.quoted}: does {listed} say whether a job is done? Tell the status with --set status=COLUMN "
            "(and --set pending=VALUE ...), its end with --set finished_at=COLUMN or --set done=COLUMN (a boolean), or "
            f"--set status={naming.NONE} where a row's lock is all there is"
        )


async def look_for_words(
    database: Database, table: Table, columns: Mapping[str, TableColumn], told: Mapping[str, str]
) -> None:
    """Where no column is called a status: one that has the words of a status is one, whatever it is called."""
    if "status" in columns or told.get("status") == naming.NONE:
        return
    ignored = _ignored(told)
    words = {word for known in naming.STATES.values() for word in known}
    for column in table.columns:
        if column.key or column.name in ignored or column.base in _WORDLESS or column.base.endswith("[]"):
            continue
        if column is columns.get("payload") or naming.HARMLESS.fullmatch(naming.plain(column.name)):
            # Long texts are not read for that.
            continue
        used = [*await tables.values(database, table, column, _FEW), *await tables.declared(database, table, column)]
        found = {naming.plain(value) for value in used if value is not None} & words
        if len(found) > 1:
            name = text.safe(column.name)
            raise MappingError(
                f"{table.quoted}: {name} has the words of a status ({', '.join(sorted(found)[:4])}); tell with --set "
                f"status={name}, or --set ignore={name} where it says nothing about a job's state"
            )


_FEW = 2_000
_WORKING = re.compile(
    r"work|session|runner|node|host|agent|process|lease|lock|claim|server|instance|pod|executor|consumer"
)
_WORDLESS = {
    *("smallint", "integer", "bigint", "numeric", "real", "double precision", "money", "boolean", "uuid", "bytea"),
    *("json", "jsonb", "xml", "date", "interval", "inet", "timestamp with time zone", "timestamp without time zone"),
}


def _ignored(told: Mapping[str, str]) -> set[str]:
    return {name.strip() for name in told.get("ignore", "").split(",") if name.strip()}


def unread(made: Meaning, told: Mapping[str, str]) -> list[str]:
    """Columns, here and in tables that are referred to, that may say that a job is over or its worker alive.

    Nobody has told what they mean: an act needs an operator who is sure that they do not matter. Raises MappingError
    for what is to be ignored and is not there.
    """
    ignored, used = _ignored(told), {column.name for column in made.columns.values()}
    found = [
        column.name
        for column in made.table.columns
        if not (column.name in used or column.key) and _may_matter(column, made)
    ]
    if "status" not in made.columns and "stage" in made.columns:
        # How far a job is may be all that says that it is done.
        found.append(made.columns["stage"].name)
    workers = made.workers.table if made.workers else None
    for one in made.table.neighbours:
        # A customer is seen, too: what is referred to counts where its name is that of something which works.
        close = one.refers or _WORKING.search(one.table) is not None
        instant = one.type.startswith("timestamp")
        lives = close and (naming.is_beat(one.column) or (instant and naming.is_until(one.column)))
        ends = one.refers and (naming.says_over(one.column) or naming.says_over(one.table.rpartition(".")[2]))
        judges = "status" not in made.columns and (naming.plain(one.column) in naming.NAMES["status"] or ends)
        if one.table != workers and (lives or judges):
            found.append(f"{one.table.removeprefix('public.')}.{one.column}")
    there = {*found, *(column.name for column in made.table.columns)}
    if missing := ignored - there:
        raise MappingError(f"--set ignore={text.safe(sorted(missing)[0])}: there is no such column")
    return [name for name in found if name not in ignored]


async def stages_that_end(database: Database, made: Meaning, told: Mapping[str, str]) -> list[str]:
    """The column of the stage, where beside a status it has words that mean that a job is done."""
    stage = made.columns.get("stage")
    if stage is None or "status" not in made.columns or stage.name in _ignored(told):
        return []
    ends = set(naming.STATES[State.COMPLETED])
    used = await tables.values(database, made.table, stage, _FEW)
    return [stage.name] if any(value is not None and naming.plain(value) in ends for value in used) else []


def _may_matter(column: TableColumn, made: Meaning) -> bool:
    if column.is_instant and naming.plain(column.name) in _OF_THE_JOB:
        # Asked about, unless another one can only be the lease's end.
        return False
    if naming.is_beat(column.name) or naming.is_until(column.name):
        # Of whatever type: an instant of that name has a role, or was asked about.
        return True
    if "status" in made.columns:
        # Beside a status an id is that of something the job is about.
        return naming.says_over(column.name) and naming.words(column.name)[-1] != "id"
    if naming.says_over(column.name):
        return True
    if column.required and not column.has_default and column.base not in ("smallint", "integer"):
        # It was there before the job was begun.
        return False
    return not column.is_instant and naming.HARMLESS.fullmatch(naming.plain(column.name)) is None


async def unsure(database: Database, made: Meaning, told: Mapping[str, str]) -> list[str]:
    """What else an act needs an operator for who is sure of it, as the end of a sentence with "be sure"."""
    found = []
    if left := made.unread:
        listed = ", ".join(map(text.safe, left[:12]))
        found.append(
            f"that {listed} {'says' if len(left) == 1 else 'say'} nothing about whether a job is over or its worker "
            f"alive (settle that: leasetop profile --table {text.safe(made.table.quoted.removeprefix('public.'))} "
            f"--set ignore={','.join(map(text.safe, left[:12]))} --output FILE)"
        )
    lease = made.columns.get("lease_until")
    if lease is not None and told.keys() & {"lease", "lease_until"} and not naming.is_until(lease.name):
        found.append(f"that {text.safe(lease.name)} says until when a lease lasts")
    status = made.columns.get("status")
    if status is not None and State.PENDING.value in told:
        known = {
            *await tables.values(database, made.table, status),
            *await tables.declared(database, made.table, status),
        }
        word = made.states[State.PENDING][0]
        if word not in known:
            found.append(f"that workers look for '{text.safe(word)}': no row has it, and nothing declares it")
    return found


def _may_say_that_it_is_over(column: TableColumn) -> bool:
    if column.base in ("boolean", "character(1)", "character", '"char"'):
        return True
    if column.required and not column.has_default:
        return False
    return naming.says_over(column.name) or (not column.required and (column.is_instant or column.base == "date"))


def is_the_workers_table(
    table: Table, columns: Mapping[str, TableColumn], workers: Workers, told: Mapping[str, str]
) -> None:
    """That an owner refers to a table with a heartbeat does not make it one of workers: customers are seen, too."""
    owner = columns["owner"]
    if naming.plain(owner.name) in ("owner", "ownerid", "holder") and not told.keys() & {"owner", "workers"}:
        raise MappingError(
            f"{table.quoted}: is {text.safe(owner.name)} the worker that has a job, and {workers.table} the table of "
            f"workers? Tell with --set workers={workers.table}, or name the worker with --set owner=COLUMN"
        )


async def demand(database: Database, made: Meaning, told: Mapping[str, str]) -> None:
    """What no profile can do without, and what must not be guessed. Raises MappingError."""
    _demand_a_lease(made, told)
    if made.timeout is not None:
        if made.timeout.strip().replace(".", "").isdigit():
            raise MappingError(f"--set lease: {text.safe(made.timeout)} what? Give a unit: '+ 90 seconds', '+ 4 hours'")
        if not await tables.is_a_span(database, made.timeout):
            raise MappingError(
                f"--set lease: '{text.safe(made.timeout)}' is no time-out above zero, such as '90 seconds'"
            )
    status = made.columns.get("status")
    used = {} if status is None else await tables.values(database, made.table, status)
    _demand_states(made, used, told)
    await _demand_a_zone(database, made, told)
    await _demand_attempts_that_grow(database, made, told)
    await _look_at_the_owners(database, made, told)


def _demand_a_lease(made: Meaning, told: Mapping[str, str]) -> None:
    table = made.table.quoted
    if made.table.has_children:
        raise MappingError(f"{table}: other tables inherit from it, and share its keys: no act could name one job")
    if not made.key:
        raise MappingError(f"{table} has no primary or unique key without NULLs: no act could name exactly one job")
    status = made.columns.get("status")
    if status is not None and status.base in ("json", "xml", "point"):
        raise MappingError(f"{table}: {text.safe(status.name)} is {status.base}, which nothing can be compared with")
    if not told.keys() & {"lease", "lease_until"}:
        _demand_one_lease(made)
    timed = "lease_until" in made.columns or "locked_at" in made.columns or made.timed_by != "locked_at"
    if not timed:
        raise MappingError(
            f"{table}: no column says until when a lease lasts; tell with --set lease=COLUMN, or --set "
            "'lease=COLUMN + 4 hours' where one says since when"
        )
    if "lease_until" not in made.columns and made.timeout is None:
        workers = made.workers
        column = workers.heartbeat.name if workers else made.columns[made.timed_by].name
        aged = made.timed_by == "locked_at"
        what = "when a job was taken" if aged else "when its worker was last alive"
        raise MappingError(
            f"{table}: {text.safe(column)} says {what}, not until when; tell how long a lease lasts, "
            f"as its workers have it, with --set 'lease={text.safe(column)} + {'4 hours' if aged else '90 seconds'}'"
        )
    if "status" not in made.columns and made.taken_by is None:
        raise MappingError(
            f"{table}: there is no status, and its owner and lease cannot be NULL: nothing tells a waiting job from "
            "one that is held; tell the status with --set status=COLUMN"
        )


def _demand_one_lease(made: Meaning) -> None:
    """All columns that may say until when, or whether, a worker lives: more than one is a question."""
    instants = [column for column in made.table.columns if column.is_instant]
    until = [column for column in instants if naming.is_until(column.name)]
    plain = [column for column in until if naming.plain(column.name) not in _OF_THE_JOB]
    # Beside one that can only be a lease's end, these are the job's own.
    until = plain if len(plain) == 1 and not made.columns.keys() & {"heartbeat_at"} else until
    beats = [column for column in instants if naming.is_beat(column.name)]
    ways = [f"--set lease={text.safe(column.name)}" for column in until]
    ways += [f"--set 'lease={text.safe(column.name)} + 90 seconds'" for column in beats]
    if made.workers is not None:
        ways.append(f"--set 'lease={text.safe(made.workers.heartbeat.name)} + 90 seconds' (of {made.workers.table})")
    if len(ways) > 1:
        raise MappingError(
            f"{made.table.quoted}: more than one column may say how long a lease lasts: tell which its workers go by, "
            f"with {', or '.join(ways)}"
        )
    if until and naming.plain(until[0].name) in _OF_THE_JOB:
        # Perhaps it is the job that expires, or a customer's cart: then live leases would be ended.
        since = made.columns.get("locked_at")
        other = f", or --set 'lease={text.safe(since.name)} + 4 hours'" if since is not None else ""
        raise MappingError(
            f"{made.table.quoted}: is {text.safe(until[0].name)} the end of a lease, or of the job itself? Tell with "
            f"--set lease={text.safe(until[0].name)}{other}"
        )


_OF_THE_JOB = ("expiresat", "expireat", "reserveduntil")


def _demand_states(made: Meaning, used: Mapping[str | None, int], told: Mapping[str, str]) -> None:
    if "status" not in made.columns:
        return
    table, name = made.table.quoted, text.safe(made.columns["status"].name)
    lacking = [state.value for state in (State.PENDING, State.PROCESSING) if state not in made.states]
    if lacking:
        raise MappingError(
            f"{table}: which value of {name} means {' and which '.join(lacking)}? Tell with "
            + " ".join(f"--set {state}=VALUE" for state in lacking)
        )
    known = {value for values in made.states.values() for value in values}
    strange = [value for value in used if value is not None and value not in known]
    for state in (State.PENDING, State.PROCESSING):
        values = made.states[state]
        edged = all(naming.plain(value) in naming.TWO_EDGED for value in values)
        ended = State.COMPLETED in made.states
        if state.value not in told and ((edged and not (ended and not strange)) or (strange and not ended)):
            why = (
                f"{' and '.join(map(text.safe, strange[:3]))} of {name} are in no state that is known"
                if strange
                else f"no value of {name} is known to mean completed"
            )
            raise MappingError(
                f"{table}: {why}: does {' or '.join(map(text.safe, values))} mean {state}, or that the job is done? "
                f"Tell with --set {state}=VALUE, and --set completed=VALUE"
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
        for name in ("lease_until", "locked_at", "heartbeat_at", "run_after", "finished_at")
        if name in made.columns and not made.columns[name].has_zone
    ]
    lacking += [column for column in made.table.columns if column.name in made.alive and not column.has_zone]
    if made.workers is not None and not made.workers.heartbeat.has_zone:
        lacking.append(made.workers.heartbeat)
    if not lacking or "time_zone" in told:
        return
    names = ", ".join(text.safe(column.name) for column in lacking)
    own = await tables.own_zone(database)
    raise MappingError(
        f"{made.table.quoted}: no time zone is stored in {names}, and a lease that is read in the wrong one looks dead "
        f"while it lives; find out in which its workers write, and tell with --set time_zone=UTC, or another"
        + (f" (this server's own is {own})" if own else "")
    )


async def _demand_attempts_that_grow(database: Database, made: Meaning, told: Mapping[str, str]) -> None:
    """Attempts that are left, and not made, count the other way: a sweep would give up those that have all of them."""
    if not {"attempts", "max_attempts"} <= made.columns.keys() or "attempts" in told:
        return
    now, most = made.columns["attempts"], made.columns["max_attempts"]
    if naming.plain(now.name) not in ("retries", "tries"):
        return
    full = f"({made.waiting}) AND j.{most.quoted} > 0 AND j.{now.quoted} >= j.{most.quoted}"
    if await tables.exists(database, made.table, full):
        name = text.safe(now.name)
        raise MappingError(
            f"{made.table.quoted}: jobs that wait have {name} at {text.safe(most.name)}: does it count the attempts "
            f"that are left? Then say --set attempts={naming.NONE}; else --set attempts={name}"
        )


async def _look_at_the_owners(database: Database, made: Meaning, told: Mapping[str, str]) -> None:
    """Whether the owners are what they are taken for."""
    owner = made.columns.get("owner")
    if owner is None:
        return
    name = f"j.{owner.quoted}"
    there = f"({made.waiting}) AND {name} IS NOT NULL AND {name}::text <> ''"
    if not owner.required and "owner" not in told and await tables.exists(database, made.table, there):
        raise MappingError(
            f"{made.table.quoted}: {text.safe(owner.name)} has values in jobs that wait, it may be no worker, and an "
            f"act would empty it; tell with --set owner={text.safe(owner.name)}, or --set owner={naming.NONE}"
        )
    if made.workers is None or not told.keys() & {"workers"}:
        return
    try:
        strange = await tables.exists(
            database, made.table, f"{made.held} AND {name} IS NOT NULL AND NOT {made.its_owner}"
        )
    except Refused as error:
        if isinstance(error.__cause__, psycopg.errors.UndefinedFunction):
            raise MappingError(
                f"--set workers: {text.safe(owner.name)} is {text.safe(owner.type)}, which is not compared with the "
                f"key of {made.workers.table}; tell with --set workers=TABLE:COLUMN"
            ) from None
        raise
    if strange:
        raise MappingError(
            f"--set workers: owners of jobs that are held are not in {made.workers.table}; tell the column where they "
            "are with --set workers=TABLE:COLUMN"
        )
