"""What a table's columns mean, and the profile that follows from it.

Three shapes of lease are known here: a column that says until when; one that says since when, plus a time-out; and a
heartbeat plus a time-out, on the job or on its owner's row in a table of workers. guess.py finds out which a table has.
The result is a document of the profile format and nothing else: from there on there is one path.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leasetop import naming, reading
from leasetop.model import State
from leasetop.profile import KeyColumn
from leasetop.table import Table, TableColumn


def quote(value: str) -> str:
    """A text as a literal of SQL."""
    return "'" + value.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class Workers:
    """A table of workers, with a heartbeat each."""

    table: str
    key: str
    """Quoted, as is `table`: what the jobs' owner column refers to."""
    heartbeat: TableColumn


@dataclass(slots=True)
class Meaning:
    """What the columns of a table mean."""

    table: Table
    columns: Mapping[str, TableColumn]
    """Canonical field -> column; besides those of a profile: locked_at, heartbeat_at, failed_at, done."""
    states: Mapping[State, Sequence[str]]
    """Stored values for each state, the one that acts write first; empty where the table has no status column."""
    time_zone: str = "UTC"
    timeout: str | None = None
    """How long after `locked_at`, or the latest heartbeat, a lease is over, where no column says until when."""
    workers: Workers | None = None
    """Where the owners' heartbeats are, if not on the jobs."""
    borrowed: frozenset[str] = frozenset()
    """Canonical fields whose columns mean something else, too: they are read, and never emptied."""
    unread: list[str] = field(default_factory=list)
    """Columns of which nobody has told what they mean, and that may say that a job is over."""
    unsure: list[str] = field(default_factory=list)
    """What an operator has to be sure of before each act."""
    notes: list[str] = field(default_factory=list)
    """What the table lacks, and what is unsure."""

    @property
    def key(self) -> tuple[KeyColumn, ...]:
        """The key, with names that a parameter of SQL may have, each its own."""
        found: dict[str, KeyColumn] = {}
        for n, column in enumerate(one for one in self.table.columns if one.key):
            name = re.sub(r"[^a-z0-9_]", "", column.name.lower())
            name = name if name and name not in found else f"{name or 'k'}_{n}"
            found[name] = KeyColumn(name, f"j.{column.quoted}", column.type)
        return tuple(found.values())

    def instant(self, name: str) -> str:
        """A column as an instant with a zone."""
        return self._zoned(self.columns[name], "j")

    def _zoned(self, column: TableColumn, alias: str) -> str:
        expression = f"{alias}.{column.quoted}"
        if column.ticks is not None:
            return f"to_timestamp({expression}{'' if column.ticks == 1 else f' / {column.ticks}.0'})"
        return (
            expression
            if column.has_zone
            else f"({_bounded(expression, 'timestamp')} AT TIME ZONE {quote(self.time_zone)})"
        )

    def moment(self, name: str, expression: str) -> str:
        """An instant as that column stores it."""
        ticks = self.columns[name].ticks
        if ticks is not None:
            return f"(extract(epoch FROM {expression}) * {ticks})::bigint"
        return expression if self.columns[name].has_zone else f"(({expression}) AT TIME ZONE {quote(self.time_zone)})"

    def has_instant(self, name: str) -> bool:
        """Whether there is such a column, and it holds instants."""
        return name in self.columns and self.columns[name].is_instant

    @property
    def lease(self) -> str:
        """Until when the lease lasts, as SQL."""
        if "lease_until" in self.columns:
            return self.instant("lease_until")
        since = self.instant("locked_at") if self.timed_by == "locked_at" else self._heartbeat
        return f"({_bounded(since, 'timestamptz')} + interval {quote(self.timeout or '')})"

    @property
    def timed_by(self) -> str:
        """What the time-out counts from: heartbeat_at, workers or locked_at."""
        if "heartbeat_at" in self.columns:
            return "heartbeat_at"
        return "workers" if self.workers is not None else "locked_at"

    @property
    def _heartbeat(self) -> str:
        # A worker that has just taken a job has perhaps not beaten since: what is later counts, a NULL is passed over.
        return f"greatest({self._beat}, {self.instant('locked_at')})" if self.has_instant("locked_at") else self._beat

    @property
    def _beat(self) -> str:
        return self.instant("heartbeat_at") if self.workers is None else self._beat_of_the_owner(self.workers)

    @property
    def _proof(self) -> str:
        """What must hold besides, so that a lease's end proves that its owner is dead; empty where nothing must."""
        if "lease_until" in self.columns:
            # Who was alive after its end does not go by this lease.
            alive = [self.instant(name) for name in ("locked_at", "heartbeat_at") if self.has_instant(name)]
            signs = [f"({one} > {self.lease}) IS NOT TRUE" for one in alive]
            return " AND ".join([*signs, *self._no_later_signs])
        if self.timed_by == "locked_at":
            return ""
        signs = self._no_later_signs
        # Without a heartbeat the time-out counts from the claim, and that is age.
        signs += [f"{self._beat} IS NOT NULL"] if self.has_instant("locked_at") else []
        return " AND ".join(signs)

    @property
    def alive(self) -> list[str]:
        """Names of other columns with instants: one later than a lease's end says that somebody was there still."""
        used = {column.name for column in self.columns.values()}
        return [
            column.name
            for column in self.table.columns
            if column.is_instant and not (column.name in used or column.key) and not naming.is_ahead(column.name)
        ]

    @property
    def _no_later_signs(self) -> list[str]:
        """That none of these is later than the lease's end, as SQL."""
        found = []
        for column in self.table.columns:
            if column.name in self.alive:
                one = self._zoned(column, "j")
                # What is still to come says nothing about who was there, unless it says until when.
                past = "" if "until" in naming.words(column.name) else f" AND {one} <= now()"
                found.append(f"({one} > {self.lease}{past}) IS NOT TRUE")
        return found

    def _beat_of_the_owner(self, workers: Workers) -> str:
        return f"(SELECT {self._zoned(workers.heartbeat, 'w')} FROM {workers.table} w WHERE {self._same_owner})"

    @property
    def _same_owner(self) -> str:
        assert self.workers is not None
        return f"w.{self.workers.key} = j.{self.columns['owner'].quoted}"

    def lease_in_words(self) -> str:
        """Until when a lease lasts, as a person would say it."""
        if "lease_until" in self.columns:
            return self.columns["lease_until"].quoted
        if self.timed_by == "workers" and self.workers is not None:
            beat = f"{self.workers.table.removeprefix('public.')}.{self.workers.heartbeat.quoted}"
        else:
            beat = self.columns[self.timed_by].quoted
        return f"{beat} + {self.timeout}"

    @property
    def evidence(self) -> str:
        """What proves that a lease is dead."""
        if "lease_until" in self.columns:
            return "lease"
        return "age" if self.timed_by == "locked_at" else "heartbeat"

    def is_in(self, state: State) -> str:
        """`status` is one of the values of a state, as SQL."""
        values = ", ".join(map(quote, self.states[state]))
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
            "key": {column.name: {"sql": column.sql, "type": column.type} for column in self.key},
            "columns": self._fields(),
            "states": self._predicates(),
            **self._payload(),
            "since": self._since(),
            "order": self._order(),
            "actions": self._actions(),
        }

    def _payload(self) -> dict[str, Any]:
        if "payload" not in self.columns:
            return {}
        column = self.columns["payload"]
        return {
            "payload": {
                "sql": f"encode(j.{column.quoted}, 'escape')" if column.base == "bytea" else f"j.{column.quoted}"
            }
        }

    def _fields(self) -> dict[str, str]:
        found = {"status": self._status(), "fence": self._fence()}
        if self._has_lease:
            # A worker that lives holds what it is at work on, and not what it has done.
            found["lease_until"] = f"CASE WHEN {self.held} THEN {self.lease} END" if self.workers else self.lease
        for name in ("owner", "attempts", "max_attempts", "error", "stage", "kind", "idempotency_key", "amount"):
            if name in self.columns:
                found[name] = f"j.{self.columns[name].quoted}"
        for name, field_name in (("created_at", "created_at"), ("run_after", "run_after"), ("locked_at", "claimed_at")):
            if self.has_instant(name):
                found[field_name] = self.instant(name)
        if self.has_instant("finished_at"):
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
        return f"CASE {failed}WHEN {self.held} THEN 'locked' ELSE 'waiting' END"

    def _fence(self) -> str:
        """Changes with each write to the row, whichever column it is about."""
        names = ["status", "owner", "attempts", "lease_until", "locked_at", "heartbeat_at", "failed_at"]
        names += ["finished_at", "done"]
        parts = [f"j.{self.columns[name].quoted}" for name in names if name in self.columns]
        return f"ROW({', '.join(['j.xmin', *parts])})::text"

    @property
    def held(self) -> str:
        """Somebody has it, live or expired, as SQL."""
        if "status" in self.columns:
            ended = f" AND NOT ({self._ended})" if self.has_instant("finished_at") else ""
            return f"{self.is_in(State.PROCESSING)}{ended}"
        return " AND NOT ".join([self._taken, *(f"({ended})" for ended in (self._failed, self._done) if ended)])

    @property
    def _ended(self) -> str:
        """It has an end, and that is not of an earlier run of the same job, as SQL."""
        end = self.instant("finished_at")
        again = f"{self.lease} >= now()" if self._has_lease else "false"
        if self.has_instant("locked_at"):
            again += f" OR {end} < {self.instant('locked_at')}"
        return f"isfinite({end}) IS TRUE AND ({again}) IS NOT TRUE"

    @property
    def _taken(self) -> str:
        names = dict.fromkeys([self.taken_by or "owner"])
        owner = self.columns.get("owner")
        if owner is not None and not (owner.required or owner.generated):
            # Who has just taken it has perhaps not beaten yet.
            names["owner"] = None
        return "(" + " OR ".join(f"j.{self.columns[name].quoted} IS NOT NULL" for name in names) + ")"

    @property
    def taken_by(self) -> str | None:
        """Without a status: the column that says, by not being NULL, that a job is taken; None where none can say."""
        for name in ("locked_at", "lease_until", "heartbeat_at", "owner"):
            column = self.columns.get(name)
            if column is not None and not column.required and not column.generated:
                return name
        return None

    @property
    def keeps_done(self) -> bool:
        """Whether finished jobs can be told without a status."""
        return bool(self._done)

    @property
    def _done(self) -> str:
        """Finished for good, as SQL; where there is no status, an end is the only sign."""
        if "status" in self.columns:
            return ""
        signs = [f"({self._ended})"] if self.has_instant("finished_at") else []
        signs += [f"j.{self.columns['done'].quoted} IS TRUE"] if "done" in self.columns else []
        failed = f" AND NOT ({self._failed})" if self._failed else ""
        return f"({' OR '.join(signs)}){failed}" if signs else ""

    @property
    def _failed(self) -> str:
        if "status" in self.columns:
            return self.is_in(State.FAILED) if State.FAILED in self.states else ""
        if "failed_at" not in self.columns:
            return ""
        # That it has failed before says nothing about a job that somebody holds again.
        failed = f"j.{self.columns['failed_at'].quoted} IS NOT NULL"
        return f"{failed} AND ({self._taken} AND ({self.lease} >= now() OR {self.lease} IS NULL)) IS NOT TRUE"

    @property
    def waiting(self) -> str:
        """Nobody has it yet, as SQL."""
        if "status" in self.columns:
            return self.is_in(State.PENDING) + (f" AND ({self._leased}) IS NOT TRUE" if self._leased else "")
        over = [f"({one})" for one in (self.held, self._failed, self._done) if one]
        return "NOT " + " AND NOT ".join(over)

    @property
    def _leased(self) -> str:
        """Somebody has it for now, whatever its status says; empty where only the status can say."""
        # A heartbeat in the workers' table says that a worker lives, and not that it has this job.
        if not self._has_lease or self.workers:
            return ""
        until = self.columns.get("lease_until")
        # One that cannot be NULL has a value before anybody holds the job.
        return "" if until is not None and until.required else f"{self.lease} >= now()"

    def _predicates(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        waiting = self.waiting
        if self.has_instant("run_after"):
            later = f"j.{self.columns['run_after'].quoted} > {self.moment('run_after', 'now()')}"
            found["pending"] = f"{waiting} AND ({later}) IS NOT TRUE"
            found["scheduled"] = f"{waiting} AND {later}"
        else:
            found["pending"] = waiting
        live, dead = f"{self.lease} >= now()", f"{self.lease} IS NULL"
        if self.workers:
            # That a worker has not beaten yet proves nothing.
            live = f"({live} OR ({dead} AND {self.its_owner}))"
            dead = f"{dead} AND NOT {self.its_owner}"
        found["processing"] = f"{self.held} AND {live}"
        if "status" in self.columns and self._leased:
            # Some leave the status as it is while a job is leased.
            found["processing"] = f"({found['processing']}) OR ({self.is_in(State.PENDING)} AND {self._leased})"
        over, proof = f"{self.held} AND {self.lease} < now()", self._proof
        stuck = {"expired": f"{over} AND {proof}" if proof else over}
        if proof:
            stuck["by age"] = f"{over} AND NOT ({proof})"
        stuck["owner gone" if self.workers else "no lease"] = f"{self.held} AND {dead}"
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
            known = ", ".join(quote(value) for values in self.states.values() for value in values)
            status = f"j.{self.columns['status'].quoted}"
            found["other"] = f"({status} NOT IN ({known}) OR {status} IS NULL)"
            if self.has_instant("finished_at"):
                found["other"] += f" OR ({self.is_in(State.PROCESSING)} AND {self._ended})"
        return found

    @property
    def its_owner(self) -> str:
        assert self.workers is not None
        return f"EXISTS (SELECT FROM {self.workers.table} w WHERE {self._same_owner})"

    def _since(self) -> dict[str, str]:
        made = self.instant("created_at") if self.has_instant("created_at") else "NULL::timestamptz"
        found = {"pending": self.instant("run_after") if self.has_instant("run_after") else made}
        if self.has_instant("run_after"):
            found["scheduled"] = self.instant("run_after")
        found["processing"] = self.instant("locked_at") if self.has_instant("locked_at") else made
        found["stuck"] = f"coalesce({self.lease}, {made})"
        ended = "finished_at" if self.has_instant("finished_at") else "failed_at"
        if self.has_instant(ended):
            found["failed"] = self.instant(ended)
        return found

    def _order(self) -> dict[str, str]:
        keys = ", ".join(column.sql for column in self.key)
        found = {"default": keys}
        for name in ("run_after", "created_at"):
            if self.has_instant(name):
                return found | {"pending": f"j.{self.columns[name].quoted}, {keys}"}
        return found

    def _actions(self) -> dict[str, dict[str, Any]]:
        changes = self._freed()
        if not changes and not self._writes_status:
            # All that an act would write is made from other columns.
            return {}
        return {"requeue": self._requeue(changes), "sweep": self._sweep(), **dict(self._more_acts())}

    def _requeue(self, changes: dict[str, str]) -> dict[str, Any]:
        if self._counted:
            # An operator's requeue grants one attempt more, where they are used up.
            most, now = self.columns["max_attempts"].quoted, self.columns["attempts"].quoted
            if not self.columns["max_attempts"].generated:
                changes[most] = f"greatest(j.{most}, j.{now} + 1)"
        if self._writes_status:
            changes[self.columns["status"].quoted] = quote(self.states[State.PENDING][0])
        allowed = [f"{self.held} AND (:force::boolean OR {self._over})", *self._at_rest()]
        return self._guarded("waiting again at once; the attempts stay as they are", changes, allowed)

    def _more_acts(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Those for which the table has a word, or a column."""
        over = f"{self.held} AND {self._over}"
        if self._writes_run_after:
            now = {self.columns["run_after"].quoted: self.moment("run_after", "clock_timestamp()")}
            yield "run_now", self._guarded("waiting, and not for its time any more", now, [self.waiting])
        if not self._writes_status:
            return
        status, freed = self.columns["status"].quoted, self._freed()
        if self._writes_run_after:
            freed.pop(self.columns["run_after"].quoted, None)
        if State.CANCELLED in self.states:
            word = self.states[State.CANCELLED][0]
            ended = freed | {status: quote(word)}
            yield "discard", self._guarded(f"{word}: never run again", ended, [self.waiting, over, *self._at_rest()])
        if State.STUCK in self.states:
            word = self.states[State.STUCK][0]
            parked = freed | {status: quote(word)}
            resting = [one for one in self._at_rest() if self.is_in(State.STUCK) not in one]
            yield "park", self._guarded(f"{word} until a person decides", parked, [self.waiting, over, *resting])
            waiting = {status: quote(self.states[State.PENDING][0])}
            yield "release", self._guarded("waiting again at once", waiting, [self.is_in(State.STUCK)])

    @property
    def _over(self) -> str:
        """Of a job that is held: nobody lives who holds it."""
        gone = f"{self.lease} IS NULL" + (f" AND NOT {self.its_owner}" if self.workers else "")
        return f"(({gone}) OR {self.lease} < clock_timestamp())"

    def _at_rest(self) -> list[str]:
        """Failed and parked: states in which nobody has the job."""
        resting = [self._failed] if self._failed else []
        resting += [self.is_in(State.STUCK)] if State.STUCK in self.states else []
        if not self._has_lease or (self.timed_by == "locked_at" and "lease_until" not in self.columns):
            # When a job was taken says nothing about it once it is failed.
            return resting
        # Whatever the status says, a lease that is not over yet is somebody's.
        return [f"({one}) AND ({self.lease} >= clock_timestamp()) IS NOT TRUE" for one in resting]

    def _guarded(self, effect: str, changes: Mapping[str, str], allowed: Sequence[str]) -> dict[str, Any]:
        """An act on the job of `:key_NAME`, if its row is as it was seen and in one of the states allowed."""
        returned = [
            f"j.{self.columns[name].quoted} AS {name}" for name in ("attempts", "max_attempts") if name in self.columns
        ]
        its_key = " AND ".join(f"{column.sql} = :key_{column.name}::{column.type}" for column in self.key)
        made: dict[str, Any] = {
            **self._confirmed(),
            "effect": effect,
            "sql": f"UPDATE {self.table.quoted} j\n   SET {_assigned(changes)}\n"
            f" WHERE {its_key}\n   AND {self._fence()} = :fence::text\n"
            f"   AND ({' OR '.join(f'({one})' for one in allowed)})\n"
            f"RETURNING {', '.join(returned or ['true AS done'])}",
        }
        if self.workers:
            one = f"SELECT j.{self.columns['owner'].quoted} FROM {self.table.quoted} j WHERE {its_key}"
            made["lock"] = [
                f"SELECT 1 FROM {self.table.quoted} j WHERE {its_key} FOR NO KEY UPDATE",
                f"SELECT 1 FROM {self.workers.table} w WHERE w.{self.workers.key} = ({one}) FOR SHARE NOWAIT",
            ]
        return made

    def _confirmed(self) -> dict[str, Any]:
        return {"confirm": "; and ".join(self.unsure)} if self.unsure else {}

    def _sweep(self) -> dict[str, Any]:
        over = f"{self.held} AND {self.lease} < clock_timestamp()"
        over += f" AND {self._proof}" if self._proof else ""
        owner = f"(j.{self.columns['owner'].quoted})::text" if "owner" in self.columns else "NULL::text"
        changes = self._freed()
        if self._writes_status:
            changes[self.columns["status"].quoted] = self._status_after_sweep()
        counts = [
            f"j.{self.columns[name].quoted}::bigint AS {name}" if name in self.columns else f"NULL::bigint AS {name}"
            for name in ("attempts", "max_attempts")
        ]
        table, name = self.table.quoted, reading.job_id([column.sql for column in self.key])
        these = (
            f"WHERE {over}\n     AND (:ids::text[] IS NULL OR ({name}, {self._fence()})\n"
            f"          IN (SELECT * FROM unnest(:ids::text[], :fences::text[])))"
        )
        locked = f"{name} = ANY (:locked::text[])"
        keys = ", ".join(column.sql for column in self.key)
        picked = f"ORDER BY {keys} LIMIT :batch::integer FOR NO KEY UPDATE SKIP LOCKED"
        found: dict[str, Any] = self._confirmed()
        if State.STUCK not in self.states:
            # Else the dialog tells of both policies itself.
            failed = ", failed where the attempts are used up" if self._counted and State.FAILED in self.states else ""
            found["effect"] = f"waiting again at once{failed}"
        if self.workers:
            its = f"SELECT j.{self.columns['owner'].quoted} FROM {table} j WHERE {self.held} AND {locked}"
            found["lock"] = [
                f"SELECT {name} AS id FROM {table} j\n   {these}\n   {picked}",
                # Who is just beating is left alone, and with it its jobs.
                f"SELECT w.{self.workers.key}::text AS owner FROM {self.workers.table} w "
                f"WHERE w.{self.workers.key} IN ({its}) FOR SHARE SKIP LOCKED",
            ]
            these += f"\n     AND {locked} AND j.{self.columns['owner'].quoted}::text = ANY (:owners::text[])"
        parts = ", ".join(f"{column.sql} AS key_{n}" for n, column in enumerate(self.key))
        same = " AND ".join(f"{column.sql} = e.key_{n}" for n, column in enumerate(self.key))
        texts = ", ".join(f"({column.sql})::text" for column in self.key)
        found["sql"] = (
            f"WITH expired AS MATERIALIZED (\n  SELECT {parts}, {owner} AS owner FROM {table} j\n"
            f"   {these}\n   {picked})\n"
            f"UPDATE {table} j\n   SET {_assigned(changes)}\n  FROM expired e\n"
            f" WHERE {same} AND {over}\n"
            f"RETURNING ARRAY[{texts}] AS key, ({self._status()})::text AS status, {', '.join(counts)}, e.owner"
        )
        return found

    @property
    def _counted(self) -> bool:
        return {"attempts", "max_attempts"} <= self.columns.keys()

    @property
    def _writes_status(self) -> bool:
        return "status" in self.columns and not self.columns["status"].generated

    def _status_after_sweep(self) -> str:
        arms = []
        if State.STUCK in self.states:
            arms.append(f"WHEN :policy::text = 'park' THEN {quote(self.states[State.STUCK][0])}")
        if State.FAILED in self.states and self._counted:
            now, most = self.columns["attempts"].quoted, self.columns["max_attempts"].quoted
            # None, or less, are most likely as many as it takes.
            arms.append(f"WHEN j.{most} > 0 AND j.{now} >= j.{most} THEN {quote(self.states[State.FAILED][0])}")
        waiting = quote(self.states[State.PENDING][0])
        after = f"CASE {' '.join(arms)} ELSE {waiting} END" if arms else waiting
        return f"({after})::{self.columns['status'].type}"

    def _freed(self) -> dict[str, str]:
        """Column -> what it holds once nobody has the job."""
        changes = {}
        for column in self._of_a_holder():
            if not column.required:
                changes[column.quoted] = "NULL"
            elif column.has_default:
                changes[column.quoted] = "DEFAULT"
        if self._writes_run_after:
            changes[self.columns["run_after"].quoted] = self.moment("run_after", "clock_timestamp()")
        for column in self.table.columns:
            if naming.plain(column.name) in ("lockversion", "rowversion") and column.base in ("integer", "bigint"):
                # An optimistic lock: whoever read the row before finds that it was written.
                changes[column.quoted] = f"j.{column.quoted} + 1"
        return changes

    @property
    def _writes_run_after(self) -> bool:
        # In a key, as of a partition, it names the job.
        return self.has_instant("run_after") and not (
            self.columns["run_after"].generated or self.columns["run_after"].key
        )

    def _of_a_holder(self) -> Iterator[TableColumn]:
        for name in ("owner", "lease_until", "locked_at", "heartbeat_at", "failed_at", "finished_at"):
            if name in self.columns and name not in self.borrowed and not self.columns[name].generated:
                yield self.columns[name]

    @property
    def kept(self) -> list[str]:
        """Columns of the last holder that no act can empty."""
        return [one.name for one in self._of_a_holder() if one.required and not one.has_default]


def _bounded(instant: str, kind: str) -> str:
    """An instant that can be moved: what is beyond all calendars would be out of range then, and is infinity here."""
    return f"CASE WHEN {instant} > {kind} '9999-12-31' THEN {kind} 'infinity' ELSE {instant} END"


def _assigned(changes: Mapping[str, str]) -> str:
    return ", ".join(f"{column} = {value}" for column, value in changes.items())
