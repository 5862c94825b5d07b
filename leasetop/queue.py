"""Every guarded write that the screen and the commands have, for one queue; with its reads, in reads.py.

Acts are guarded by what the operator saw (the `Job` that was on the screen), run in one transaction, say how many rows
they changed, and where that is none read the row again and say what is different.
"""

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import psycopg

from leasetop import journal, refusals, statements, text
from leasetop.clock import ServerClock
from leasetop.database import Row
from leasetop.errors import Refused
from leasetop.model import (
    Backoff,
    Job,
    Key,
    Outcome,
    Policy,
    Reason,
    State,
    Swept,
    written,
)
from leasetop.profile import Action
from leasetop.reads import JOURNAL, PAGE, SERVER, Reads, rows_of

_FORCED = 5
"""How often a forced requeue is tried against heartbeats that come in between."""


_MOST_AT_ONCE = 100_000
_OF_ONE_ROW = (psycopg.IntegrityError, psycopg.errors.RaiseException)
"""Errors that are about one row: a constraint, a partition that is not there, a trigger."""
# What triggers do at the end of a transaction is to be seen before it.
_TRIGGERS_NOW = b"SET CONSTRAINTS ALL IMMEDIATE"
_WAITING = frozenset({State.PENDING, State.SCHEDULED})
_SWEPT_TO = frozenset({*_WAITING, State.FAILED, State.STUCK})
_AFTER: Mapping[str, Collection[State | None]] = {
    "requeue": _WAITING,
    "release": _WAITING,
    "run_now": _WAITING,
    "park": {State.STUCK},
    # Some queues delete what is not to be run, or have one word for it and for what failed.
    "discard": {State.CANCELLED, State.FAILED, State.COMPLETED, None},
    "undo_requeue": {State.STUCK, State.FAILED},
}
"""Act -> the states that a job may be in after it; None: it may be gone."""


class Queue(Reads):
    """One queue, through its profile."""

    async def requeue(self, seen: Job, actor: str, reason: str, force: bool = False) -> Outcome:
        """Returns one job to Pending, if it is still as it was seen. Never raises for a refusal by the guard.

        `force` takes a lease that is not over: an act of its own, which the caller asks for separately.
        Raises Unreachable (whether it happened is then unknown: look again) or Refused.
        """
        action = self._way_back(seen)
        given = self._key(seen.key) | {"fence": seen.fence, "actor": actor, "reason": reason, "force": force}
        for _ in range(_FORCED if force else 1):
            async with self.database.acting() as connection:
                changed = await self._carry_out(connection, action, given)
                if len(changed) > 1:
                    raise Refused(f"the requeue met {len(changed)} rows of that key and was rolled back")
                now, current = await self._as_it_is(connection, seen.key)
                if changed:
                    _must_be("requeue", current)
                outcome = self._requeued(seen, changed, current, now)
                left = await self._trace(connection, "requeue", action, actor, reason, [(outcome, journal.seen(seen))])
            if changed or current is None or not refusals.only_renewed(seen, current):
                break
            # Who forces a live lease means this owner and attempt, however often it beats meanwhile.
            given["fence"] = current.fence
        return replace(outcome, words=outcome.words + _to_file(left))

    async def act(self, name: str, seen: Job, actor: str, reason: str, **more: object) -> Outcome:
        """Another act on one job, if it is still as it was seen: discard, park, run_now, release, undo_requeue.

        Never raises for a refusal by the guard. Raises Unreachable (whether it happened is then unknown) or Refused.
        """
        action = self._action(name)
        given = self._key(seen.key) | {"fence": seen.fence, "actor": actor, "reason": reason, **more}
        async with self.database.acting() as connection:
            changed = await self._carry_out(connection, action, given)
            if len(changed) > 1:
                raise Refused(f"the act met {len(changed)} rows of that key and was rolled back")
            now, current = await self._as_it_is(connection, seen.key)
            if changed:
                _must_be(name, current)
                outcome = Outcome(seen.key, True, f"job {text.safe(seen.id)}: {journal.PAST[name]}", current)
            else:
                words = refusals.act(journal.PAST[name], seen, current, ServerClock(now, time.monotonic()))
                outcome = Outcome(seen.key, False, words)
            left = await self._trace(connection, name, action, actor, reason, [(outcome, journal.seen(seen))])
        return replace(outcome, words=outcome.words + _to_file(left))

    async def _as_it_is(self, connection: psycopg.AsyncConnection, key: Key) -> tuple[datetime, Job | None]:
        """The server's time and the job, in one round trip."""
        questions = [(_TRIGGERS_NOW, {}), (SERVER, {}), (self._one, self._key(key) | {"limit": 1})]
        _, *asked = await self._ask(connection, questions)
        server, jobs = [await rows_of(cursor) for cursor in asked]
        assert server is not None
        return server[0]["now"], self._job(jobs[0]) if jobs else None

    def _requeued(self, seen: Job, changed: Sequence[Row], current: Job | None, now: datetime) -> Outcome:
        if not changed:
            needs = getattr(self.profile.way_back(seen.state), "needs", None)
            return Outcome(seen.key, False, refusals.requeue(seen, current, ServerClock(now, time.monotonic()), needs))
        most = changed[0].get("max_attempts")
        used = f", attempt {changed[0]['attempts'] + 1} of {most} next" if most is not None else ""
        return Outcome(seen.key, True, f"job {text.safe(seen.id)}: requeued{used}", current)

    async def _trace(
        self,
        connection: psycopg.AsyncConnection,
        act: str,
        action: Action,
        actor: str,
        reason: str | None,
        came: Sequence[tuple[Outcome, Mapping[str, object]]],
    ) -> list[journal.Entry]:
        """Journals what came of an act on jobs that were seen so, where the queue's own history does not tell it.

        Written into the journal's table, where there is one that may be written; else returned, for the file.
        """
        untold = [(outcome, seen) for outcome, seen in came if not (outcome.done and _traces(action))]
        if not untold:
            return []
        now, site = (await self._fetch(connection, SERVER, {}))[0]["now"], await self._site(connection)
        entries = [
            journal.Entry(
                at=now,
                actor=actor,
                site=site,
                queue=self.profile.title,
                act=act,
                job=outcome.key,
                reason=reason,
                seen=seen,
                done=outcome.done,
                result=outcome.words,
            )
            for outcome, seen in untold
        ]
        if not (await self._fetch(connection, JOURNAL, {}))[0]["writable"]:
            return entries
        for entry in entries:
            await connection.execute(statements.load("journal_write"), entry.parameters())
        return []

    async def sweep(
        self,
        policy: Policy,
        actor: str,
        seen: Sequence[Job] | None = None,
        backoff: Backoff | None = None,
    ) -> tuple[Swept, ...]:
        """Ends expired leases in bounded batches; with `seen`, only those that a preview showed and that still qualify.

        Raises Unreachable or Refused; what earlier batches did stays.
        """
        action, backoff = self._action("sweep"), backoff or Backoff()
        swept: list[Swept] = []
        ended: dict[tuple[Key, int | None], Swept] = {}
        if not _traces(action):
            # An act that would leave no trace is not begun.
            _must_be_writable()
        if policy is Policy.PARK and "policy" not in statements.parameters(action.statement):
            raise Refused(f"{self.profile.title} has no state for parked jobs: it cannot be swept with the policy park")
        # What was seen is cut to batches here; without it the LIMIT of the statement does it.
        rest = None if seen is None else list(seen)
        refused: list[str] = []
        given = {
            "policy": policy.value,
            "actor": actor,
            "batch": PAGE,
            "backoff": backoff.base,
            "backoff_cap": backoff.cap,
        }
        while True:
            batch = None if rest is None else rest[:PAGE]
            try:
                done = await self._sweep_once(action, given, batch, ended)
            except Refused as error:
                if not _is_of_one_row(error):
                    raise
                # One job that a constraint or a trigger holds back is not to keep the others: one by one.
                if rest is None or batch is None:
                    rest = list(await self.expired(_MOST_AT_ONCE))
                    batch = rest[:PAGE]
                done = await self._sweep_singly(action, given, batch, ended, refused)
            swept += done
            if rest is not None:
                rest = rest[PAGE:]
            if not rest and (rest is not None or len(done) < PAGE):
                break
        if refused:
            more = f"; and {len(refused) - 5} more" if len(refused) > 5 else ""
            raise Refused(f"{text.plural(len(swept), 'job')} swept; {len(refused)} not: {'; '.join(refused[:5])}{more}")
        return tuple(swept)

    async def _sweep_once(
        self,
        action: Action,
        given: Mapping[str, object],
        seen: Sequence[Job] | None,
        ended: dict[tuple[Key, int | None], Swept],
    ) -> list[Swept]:
        """One batch, in one transaction: of the jobs that were seen, or of whichever are expired; added to `ended`."""
        chosen: dict[str, object] = {
            "ids": None if seen is None else [job.id for job in seen],
            "attempts": None if seen is None else [job.attempts for job in seen],
            "fences": None if seen is None else [job.fence for job in seen],
        }
        async with self.database.acting() as connection:
            rows = await self._carry_out(connection, action, {**given, **chosen})
            done = list(map(_swept, rows))
            # At home a job may be claimed meanwhile, and lose that lease as well; that is another attempt.
            tokens = {(one.key, one.attempts if self.profile.is_home else None): one for one in done}
            if twice := next((one for token, one in tokens.items() if token in ended), None):
                # Left alone, it would go on for ever: a trigger, or a default, makes the job expired again.
                raise Refused(
                    f"job {text.safe(written(twice.key))} was swept and is expired again at once; "
                    f"the sweep stops after {text.plural(len(ended), 'job')}: see its triggers and defaults"
                )
            if done and not self.profile.is_home:
                await self._must_be_swept(connection, [one.key for one in done])
            left = await self._trace(connection, "sweep", action, str(given["actor"]), None, list(map(_came, done)))
        if trouble := _to_file(left):
            raise Refused(f"{text.plural(len(done), 'job')} swept{trouble}; the sweep stops here")
        ended |= tokens
        return done

    async def _must_be_swept(self, connection: psycopg.AsyncConnection, keys: Sequence[Key]) -> None:
        """Raises Undone, for the first of these jobs of which a trigger made something else than a sweep does."""
        sql, given = self._these(keys)
        _, asked = await self._ask(connection, [(_TRIGGERS_NOW, {}), (sql, given)])
        found = {job.key: job for job in self._jobs_of(await rows_of(asked) or ())}
        for key in keys:
            job = found.get(key)
            found_in = None if job is None else job.state
            again = job is not None and job.state is State.STUCK and job.reason is not Reason.PARKED
            if found_in not in _SWEPT_TO or again:
                state = "gone" if job is None else job.reason or job.state
                raise Undone(
                    f"it is {state} after the sweep: a trigger, or a default, of the table did something else; "
                    "its sweep was rolled back"
                )

    async def _sweep_singly(
        self,
        action: Action,
        given: Mapping[str, object],
        jobs: Sequence[Job],
        ended: dict[tuple[Key, int | None], Swept],
        refused: list[str],
    ) -> list[Swept]:
        """Each job in a transaction of its own; what was refused is added to `refused`, in words."""
        done: list[Swept] = []
        for job in jobs:
            try:
                done += await self._sweep_once(action, given, [job], ended)
            except Refused as error:
                if not _is_of_one_row(error):
                    raise
                refused.append(f"job {text.safe(job.id)}: {error}")
        return done

    async def enqueue(self, payments: Iterable[Mapping[str, Any]]) -> list[int | None]:
        """Enqueues payments (the parameters of sql/enqueue.sql); None where the idempotency key is taken."""
        sql = self._bind(self._action("enqueue").statement)
        made: list[int | None] = []
        async with self.database.acting() as connection:
            for payment in payments:
                given = {"max_attempts": 5, "delay": timedelta(), **payment}
                given["payload"] = json.dumps(given.get("payload", {}))
                rows = await self._fetch(connection, sql, given)
                made.append(rows[0]["id"] if rows else None)
        return made

    def can(self, action: str) -> bool:
        """Whether the profile knows this act, be it only as a command of the queue's own tool."""
        return action in self.profile.actions or (action == "requeue" and "retry" in self.profile.actions)

    def _action(self, name: str) -> Action:
        action = self.profile.actions.get(name)
        if action is None or action.sql is None:
            raise Refused(f"{self.profile.title} cannot {name}: its profile has no such action")
        return action

    async def _carry_out(
        self, connection: psycopg.AsyncConnection, action: Action, given: Mapping[str, object]
    ) -> list[Row]:
        """The act's locks, one by one, then the act."""
        found: dict[str, list[object]] = {"locked": [], "owners": []}
        if action.lock:
            # An owner that this role may not see would look like one that is gone: an error is better.
            await connection.execute(b"SET LOCAL row_security = off")
        for lock in action.lock:
            for row in await self._fetch(connection, self._bind(lock), _only({**given, **found}, lock)):
                for column, values in (("id", found["locked"]), ("owner", found["owners"])):
                    if column in row:
                        values.append(row[column])
        sql = action.statement
        return await self._fetch(connection, self._bind(sql), _only({**given, **found}, sql))

    def _way_back(self, job: Job) -> Action:
        """The act that requeues a job in its state. Raises Refused, with the command where there is one."""
        action = self.profile.way_back(job.state)
        if action is None:
            raise Refused(f"{self.profile.title}: its profile has no act that returns a {job.state} job to waiting")
        if action.sql is None:
            command = action.command(self.profile.key_of(job.key))
            raise Refused(f"{self.profile.title}: only its own tool can do that right: {command}")
        return action


class Undone(Refused):
    """A trigger made something else of an act: it was rolled back."""


def _is_of_one_row(error: Refused) -> bool:
    return isinstance(error, Undone) or isinstance(error.__cause__, _OF_ONE_ROW)


def _must_be(act: str, current: Job | None) -> None:
    """Raises Refused, so that all is rolled back, where a job is not what the act was to make of it."""
    if (None if current is None else current.state) not in _AFTER[act]:
        found = "gone" if current is None else current.reason or current.state
        raise Refused(
            f"the act was written, but the job is {found} then, not {journal.PAST[act]}: a trigger of the table did "
            "something else; all of it was rolled back"
        )


def _swept(row: Row) -> Swept:
    key = tuple(row["key"]) if "key" in row else (str(row["id"]),)
    return Swept(key, row["status"], row["attempts"], row["max_attempts"], row["owner"])


def _came(swept: Swept) -> tuple[Outcome, Mapping[str, object]]:
    seen = {"owner": swept.owner, "attempts": swept.attempts}
    return Outcome(swept.key, True, f"swept: {swept.status}"), seen


def _traces(action: Action) -> bool:
    """Whether an act writes who and why into the queue's own history."""
    return "actor" in statements.parameters(action.statement)


def _must_be_writable() -> None:
    """Raises Refused where the journal's file could not be written."""
    try:
        journal.write([])
    except OSError as error:
        raise Refused(f"not swept, since it would leave no trace: {journal.file()}: {error.strerror}") from None


def _to_file(entries: list[journal.Entry]) -> str:
    """Writes what no table took; in words what went wrong: an act stands, and that it left no trace must be known."""
    if not entries:
        return ""
    try:
        journal.write(entries)
    except OSError as error:
        return f" (not in the journal {journal.file()}: {error.strerror})"
    return ""


def _only(given: Mapping[str, object], sql: str) -> dict[str, object]:
    wanted = statements.parameters(sql)
    return {name: value for name, value in given.items() if name in wanted}
