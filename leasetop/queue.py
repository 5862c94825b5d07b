"""Every read and every guarded write that the screen and the commands have, for one queue.

Reads come out as model objects, all of a refresh from one transaction. Acts are guarded by what the operator saw (the
`Job` that was on the screen), run in one transaction, say how many rows they changed, and where that is none read the
row again and say what is different. Nothing here compares a lease with this machine's clock.
"""

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import psycopg
from psycopg.rows import dict_row

from leasetop import answers, journal, paging, reading, refusals, statements, text
from leasetop import profile as profiles
from leasetop.anomalies import KNOWN, Findings, Late
from leasetop.clock import ServerClock
from leasetop.database import Database, Row
from leasetop.errors import Refused
from leasetop.filter import Filter, parse
from leasetop.model import (
    Backoff,
    Detail,
    Job,
    Key,
    Noisy,
    Outcome,
    Payload,
    Poison,
    Policy,
    Reason,
    Snapshot,
    State,
    Swept,
    Tally,
    Trends,
    View,
    parsed,
    written,
)
from leasetop.paging import Place
from leasetop.profile import Action, Profile

PAGE = 500
"""Jobs of a view in one snapshot."""
_LOOK = 5_000
TRENDS_WINDOW = timedelta(hours=1)
_TRENDS_LOOK = 200_000
_WORST = 20
"""Poison jobs and noisy owners, at most."""
_OWNERS = 200
_HISTORY = 200
_FORCED = 5
"""How often a forced requeue is tried against heartbeats that come in between."""
_WHOLE = 20_000
"""Characters of one text of one job."""

_END = b"SELECT clock_timestamp() AS now"
_JOURNAL = b"""
    SELECT coalesce(has_table_privilege(to_regclass('leasetop_journal'), 'INSERT'), false) AS writable,
           coalesce(has_table_privilege(to_regclass('leasetop_journal'), 'SELECT'), false) AS readable
"""
PAST = {
    "requeue": "requeued",
    "discard": "discarded",
    "park": "parked",
    "run_now": "made ready",
    "release": "released",
    "undo_requeue": "put back",
}
"""Act -> what a job is after it."""
# What a key of a type looks like: another text is no such key, and no reason for an error.
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_NO_KEY = re.compile(r"(?!)")
_KEYS = {
    "bigint": _NUMBER,
    "integer": re.compile(r"-?[0-9]{1,9}"),
    "uuid": re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    "text": re.compile(r".*", re.DOTALL),
}
_SWEPT = (Reason.EXPIRED, Reason.GONE)
_NO_SUCH_VALUE = ("22P02", "22003", "22007", "22008", "23514")
"""What the server says of a text that is no value of a type, or of a domain."""

_SERVER = b"""
    SELECT clock_timestamp() AS now, current_setting('server_version') AS version, current_database()::text AS database,
           current_user::text AS "user", pg_is_in_recovery() AS standby
"""


class Queue:
    """One queue, through its profile."""

    def __init__(self, database: Database, profile: Profile) -> None:
        self.profile = profile
        self.database = database
        self._bound: dict[str, bytes] = {}
        self._closed: tuple[str, ...] | None = None
        """What this role may not read, of what can be done without; None: not looked at yet."""

    async def snapshot(
        self,
        view: View = View.ACTIVE,
        limit: int = PAGE,
        owners: int = _OWNERS,
        chosen: Filter | None = None,
        sort: str | None = None,
        descending: bool = False,
        after: Place | None = None,
        everywhere: bool = False,
    ) -> Snapshot:
        """All that a refresh shows, in one transaction: at most `limit` jobs and `owners` owners.

        `chosen` and `sort` (a name of reading.SORTS) are about the first reading.CAP jobs of each state, or with
        `everywhere` about all, however long that takes. `after` begins the list behind the place of an earlier one.
        Raises Unreachable or Refused.
        """
        wanted = chosen or Filter()
        asked = time.monotonic()
        async with self.database.reading() as connection:
            if self._closed is None:
                self._closed = await self._closed_to_us(connection)
            cursors = await self._ask(
                connection,
                [
                    (_SERVER, {}),
                    (self._bind(reading.tallies(self.profile)), {}),
                    (
                        self._jobs(view, wanted, sort, descending, after, everywhere),
                        {"limit": limit, **wanted.values, **(paging.parameters(after.values) if after else {})},
                    ),
                    (self._owners, {"limit": owners}),
                    (self._watchers, {}),
                    (self._throughput, _throughput_parameters()),
                    (_END, {}),
                ],
            )
            server, tallies, jobs, held, watchers, throughput, end = [await _rows(cursor) for cursor in cursors]
            host = connection.info.host
        answered, here = time.monotonic(), datetime.now(UTC)
        assert server and tallies and end
        now = server[0]["now"]
        counted: dict[tuple[State, Reason | None], Tally] = {}
        for row in tallies:
            counted[answers.state(row)] = counted.get(answers.state(row), Tally()) + answers.tally(row)
        return Snapshot(
            server=answers.server(server[0], host),
            clock=ServerClock.read(now, asked, answered),
            queue=self.profile.title,
            view=view,
            jobs=self._jobs_of(jobs or ()),
            chosen=wanted,
            sort=sort,
            descending=descending,
            limit=limit,
            after=after,
            # An index finds what it serves wherever that is.
            everywhere=everywhere or any(self._serves(name, wanted.values[at]) for name, at in wanted.exact.items()),
            tallies={
                state: sum((tally for (known, _), tally in counted.items() if known is state), Tally())
                for state in State
                if self.profile.keeps(state)
            },
            reasons={reason: tally for (_, reason), tally in counted.items() if reason},
            owners=tuple(map(answers.owner, held or ())),
            watchers=None if watchers is None else tuple(map(answers.watcher, watchers)),
            throughput=None if throughput is None else answers.throughput(throughput, now),
            took=timedelta(seconds=answered - asked),
            cost=end[0]["now"] - now,
            skew=here - timedelta(seconds=(answered - asked) / 2) - now,
            has_owners=held is not None,
            owner_count=held[0]["owners"] if held else 0,
            live_owner_count=held[0]["live_owners"] if held else 0,
            lease_count=held[0]["leases"] if held else 0,
            owners_capped=bool(held and held[0]["leases"] > reading.CAP),
            notes=(*self.profile.notes, *(f"{name}: this role may not read them" for name in self._closed)),
            evidence=self.profile.evidence,
            completion_fenced=self.profile.completion_fenced,
        )

    async def detail(self, key: Key) -> Detail:
        """One job and its history. Raises Unreachable or Refused."""
        asked = time.monotonic()
        async with self.database.reading() as connection:
            server, jobs, history, journal_table = [
                await _rows(cursor)
                for cursor in await self._ask(
                    connection,
                    [
                        (_SERVER, {}),
                        (self._one, self._key(key) | {"limit": 1}),
                        (self._history, self._key(key) | {"limit": _HISTORY}),
                        (_JOURNAL, {}),
                    ],
                )
            ]
        assert server is not None
        return Detail(
            job=self._job(jobs[0]) if jobs else None,
            history=None if history is None else tuple(map(answers.event, history)),
            clock=ServerClock.read(server[0]["now"], asked, time.monotonic()),
            journaled=bool(journal_table and journal_table[0]["writable"]),
        )

    async def payload(self, key: Key) -> Payload | None:
        """What a live job is to be done with, cut after some length; None where it is not kept, or the job is gone.

        Raises Unreachable or Refused.
        """
        sql = reading.payload(self.profile)
        if sql is None:
            return None
        async with self.database.reading() as connection:
            rows = await self._fetch(connection, self._bind(sql), self._key(key) | {"longest": _WHOLE})
        if not rows or rows[0]["payload"] is None:
            return None
        return Payload(rows[0]["payload"], rows[0]["length"])

    async def find_jobs(self, ids: Sequence[str]) -> dict[str, Job | None]:
        """Jobs by their id, exactly as the screen writes it; None where there is none.

        Raises Unreachable or Refused.
        """
        found: dict[str, Job | None] = {}
        async with self.database.reading() as connection:
            for given in ids:
                key = parsed(given, len(self.profile.live.key))
                job = await self._read(connection, key) if key else None
                # A type may cut or round what it is given: only who wrote a job's id means that job.
                found[given] = job if job is not None and job.id in (given, self._lowered(given)) else None
        return found

    def _lowered(self, given: str) -> str:
        # In a uuid capitals are as good.
        return given.lower() if [key.type for key in self.profile.live.key] == ["uuid"] else given

    async def read_jobs(self, keys: Iterable[Key]) -> dict[Key, Job | None]:
        """Jobs by their keys, as they are now; None where there is none. Raises Unreachable or Refused."""
        async with self.database.reading() as connection:
            return {key: await self._read(connection, key) for key in keys}

    async def _read(self, connection: psycopg.AsyncConnection, key: Key) -> Job | None:
        await connection.execute(b"SAVEPOINT parse")
        try:
            rows = await self._fetch(connection, self._one, self._key(key) | {"limit": 1})
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            if error.sqlstate not in _NO_SUCH_VALUE:
                raise
            # '12x' is no bigint: then there is no such job.
            await connection.execute(b"ROLLBACK TO SAVEPOINT parse")
            return None
        return self._job(rows[0]) if rows else None

    async def trends(self, look: int = _TRENDS_LOOK) -> Trends:
        """The last hour by the minute, from the newest `look` rows of the history at most.

        Raises Unreachable, or Refused where the queue keeps no history.
        """
        looks = self.profile.trends
        if looks is None:
            raise Refused(f"no trends: {self.profile.title} keeps no history that its profile tells of")
        given: dict[str, object] = {"window": TRENDS_WINDOW, "look": look, "limit": _WORST}
        asked = time.monotonic()
        async with self.database.reading() as connection:
            now = (await self._fetch(connection, _SERVER, {}))[0]["now"]
            minutes = await self._fetch(connection, self._bind(looks.minutes), given)
            given["first"] = minutes[0]["first"] if minutes else None
            questions = [(self._bind(sql) if sql else None, given) for sql in (looks.poison, looks.noisy)]
            cursors = await self._ask(connection, [*questions, (_END, {})])
            poison, noisy, end = [await _rows(cursor) or [] for cursor in cursors]
        known = minutes[0]["known_since"] if minutes else None
        return Trends(
            clock=ServerClock.read(now, asked, time.monotonic()),
            # A minute of which a part is known is none; but the last one is all that there is where the look is short.
            minutes=tuple(
                answers.minute(row) for row in minutes if known is None or row["at"] >= known or row is minutes[-1]
            ),
            known_since=known,
            look=look,
            poison=tuple(map(self._poison, poison)),
            noisy=tuple(Noisy(row["owner"], row["expired"], row["failed"], row["completed"]) for row in noisy),
            cost=end[0]["now"] - now,
        )

    async def list_jobs(self, state: State | None, limit: int) -> tuple[tuple[Job, ...], ServerClock]:
        """Jobs of one state (None: all), for the command line."""
        states = (state,) if state else View.ALL.states
        asked = time.monotonic()
        async with self.database.reading() as connection:
            now = (await self._fetch(connection, _SERVER, {}))[0]["now"]
            sql = reading.jobs(reading.arms(self.profile, states))
            rows = await self._fetch(connection, self._bind(sql), {"limit": limit}) if sql else []
        return self._jobs_of(rows)[:limit], ServerClock.read(now, asked, time.monotonic())

    async def expired(self, limit: int = PAGE) -> tuple[Job, ...]:
        """The preview of a sweep: the jobs whose lease is over, oldest first, at most `limit`."""
        # That the owner of a job in a table of one's own is not to be found proves nothing: no sweep takes it.
        swept = (Reason.EXPIRED,) if self.profile.label == "own" else _SWEPT
        sql = reading.jobs([arm for arm in reading.arms(self.profile, [State.STUCK]) if arm.reason in swept])
        async with self.database.reading() as connection:
            return tuple(map(self._job, await self._fetch(connection, self._bind(sql), {"limit": limit})))

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
                server = (await self._fetch(connection, _SERVER, {}))[0]
                found = await self._fetch(connection, self._one, self._key(seen.key) | {"limit": 1})
                current = self._job(found[0]) if found else None
                if changed and current is not None and current.state in (State.PROCESSING, State.STUCK):
                    raise Refused(
                        f"the requeue was written, but the job is {current.reason or current.state} still: a "
                        "trigger of the table undid it; nothing was changed"
                    )
                outcome = self._requeued(seen, changed, current, server["now"])
                entry = self._entry(server, "requeue", seen.key, actor, reason, journal.seen(seen), outcome)
                left = await self._journaled(connection, [] if _traces(action) else [entry])
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
            server = (await self._fetch(connection, _SERVER, {}))[0]
            found = await self._fetch(connection, self._one, self._key(seen.key) | {"limit": 1})
            current = self._job(found[0]) if found else None
            if changed:
                outcome = Outcome(seen.key, True, f"job {text.safe(seen.id)}: {PAST[name]}", current)
            else:
                words = refusals.act(PAST[name], seen, current, ServerClock(server["now"], time.monotonic()))
                outcome = Outcome(seen.key, False, words)
            entry = self._entry(server, name, seen.key, actor, reason, journal.seen(seen), outcome)
            left = await self._journaled(connection, [] if _traces(action) else [entry])
        return replace(outcome, words=outcome.words + _to_file(left))

    def _requeued(self, seen: Job, changed: Sequence[Row], current: Job | None, now: datetime) -> Outcome:
        if not changed:
            needs = getattr(self.profile.way_back(seen.state), "needs", None)
            return Outcome(seen.key, False, refusals.requeue(seen, current, ServerClock(now, time.monotonic()), needs))
        most = changed[0].get("max_attempts")
        used = f", attempt {changed[0]['attempts'] + 1} of {most} next" if most is not None else ""
        return Outcome(seen.key, True, f"job {text.safe(seen.id)}: requeued{used}", current)

    async def anomalies(self) -> Findings:
        """Rows that should not be there, among the first reading.CAP of each state. For now and then, not each refresh.

        Raises Unreachable or Refused.
        """
        told = [one for one in KNOWN if all(self.profile.has(column) for column in one.needs)]
        questions: list[tuple[bytes | None, Mapping[str, object]]] = []
        for one in told:
            chosen = parse(one.line)
            jobs = self._jobs(View.ALL, chosen, "id", False)
            counted = b"SELECT count(*) AS count FROM (%b) AS these" % jobs if jobs else None
            questions.append((counted, {**chosen.values, "limit": reading.CAP}))
        late = self._bind(self.profile.late) if self.profile.late else None
        async with self.database.reading() as connection:
            cursors = await self._ask(connection, [*questions, (late, {"limit": PAGE})])
            rows = [await _rows(cursor) for cursor in cursors]
        counts = {one: found[0]["count"] for one, found in zip(told, rows[:-1], strict=True) if found}
        return Findings(
            {one: number for one, number in counts.items() if number},
            tuple(Late(row["job"], row["attempt"], row["owner"], row["at"]) for row in rows[-1] or ()),
        )

    async def read_journal(self, limit: int = 500) -> tuple[journal.Entry, ...]:
        """What operators did here, newest first: from the queue's history, the journal's table and the file.

        Raises Unreachable or Refused.
        """
        async with self.database.reading() as connection:
            database = (await self._fetch(connection, _SERVER, {}))[0]["database"]
            rows = []
            if self.profile.journal is not None:
                rows += await self._fetch(connection, self._bind(self.profile.journal), {"limit": limit})
            if (await self._fetch(connection, _JOURNAL, {}))[0]["readable"]:
                given = {"queue": self.profile.title, "limit": limit}
                rows += await self._fetch(connection, statements.load("journal_read"), given)
        found = [
            journal.Entry(
                row["at"],
                row["actor"],
                database,
                self.profile.title,
                row["act"],
                tuple(row["job"]),
                row["reason"],
                row["seen"] or {},
                row["done"],
                row["result"],
            )
            for row in rows
        ]
        try:
            found += journal.read(database, self.profile.title, limit)
        except OSError as error:
            raise Refused(f"the journal {journal.file()} cannot be read: {error.strerror}") from None
        return tuple(sorted(found, key=lambda entry: entry.at, reverse=True)[:limit])

    def _entry(
        self,
        server: Row,
        act: str,
        key: Key,
        actor: str,
        reason: str | None,
        seen: Mapping[str, object],
        outcome: Outcome,
    ) -> journal.Entry:
        return journal.Entry(
            *(server["now"], actor, server["database"], self.profile.title, act, key, reason, seen),
            outcome.done,
            outcome.words,
        )

    async def _journaled(
        self, connection: psycopg.AsyncConnection, entries: list[journal.Entry]
    ) -> list[journal.Entry]:
        """Writes into the journal's table, where there is one that may be written; else returns them for the file."""
        if not entries or not (await self._fetch(connection, _JOURNAL, {}))[0]["writable"]:
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
        ended: set[tuple[Key, int | None]] = set()
        if not _traces(action):
            # An act that would leave no trace is not begun.
            _must_be_writable()
        if policy is Policy.PARK and "policy" not in statements.parameters(action.statement):
            raise Refused(f"{self.profile.title} has no state for parked jobs: it cannot be swept with the policy park")
        # What was seen is cut to batches here; without it the LIMIT of the statement does it.
        rest = None if seen is None else list(seen)
        while True:
            batch = None if rest is None else rest[:PAGE]
            given = {
                "policy": policy.value,
                "actor": actor,
                "batch": PAGE,
                "ids": None if batch is None else [job.id for job in batch],
                "attempts": None if batch is None else [job.attempts for job in batch],
                "fences": None if batch is None else [job.fence for job in batch],
                "backoff": backoff.base,
                "backoff_cap": backoff.cap,
            }
            left: list[journal.Entry] = []
            async with self.database.acting() as connection:
                rows = await self._carry_out(connection, action, given)
                done = [
                    Swept(_swept_key(row), row["status"], row["attempts"], row["max_attempts"], row["owner"])
                    for row in rows
                ]
                # At home a job may be claimed meanwhile, and lose that lease as well; that is another attempt.
                tokens = {(one.key, one.attempts if self.profile.is_home else None): one for one in done}
                twice = next((one for token, one in tokens.items() if token in ended), None)
                if twice is not None:
                    # Left alone, it would go on for ever: a trigger, or a default, makes the job expired again.
                    raise Refused(
                        f"job {text.safe(written(twice.key))} was swept and is expired again at once; "
                        f"the sweep stops after {text.plural(len(swept), 'job')}: see its triggers and defaults"
                    )
                if done and not _traces(action):
                    server = (await self._fetch(connection, _SERVER, {}))[0]
                    entries = [self._swept_entry(server, one, actor) for one in done]
                    left = await self._journaled(connection, entries)
            trouble = _to_file(left)
            if trouble:
                raise Refused(f"{text.plural(len(done), 'job')} swept{trouble}; the sweep stops here")
            swept += done
            ended |= tokens.keys()
            if rest is not None:
                rest = rest[PAGE:]
            if not rest and (rest is not None or len(rows) < PAGE):
                return tuple(swept)

    def _swept_entry(self, server: Row, swept: Swept, actor: str) -> journal.Entry:
        outcome = Outcome(swept.key, True, f"swept: {swept.status}")
        return self._entry(server, "sweep", swept.key, actor, None, {"owner": swept.owner}, outcome)

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

    def _jobs(
        self,
        view: View,
        chosen: Filter,
        sort: str | None,
        descending: bool,
        after: Place | None = None,
        everywhere: bool = False,
    ) -> bytes | None:
        arms = [
            arm
            for arm in reading.arms(self.profile, view.states)
            if arm.state in chosen.states
            and (arm.state is not State.STUCK or chosen.reasons is None or arm.reason in chosen.reasons)
        ]
        if chosen.conditions or sort is not None:
            exact = {name: value for name, value in chosen.exact.items() if self._serves(name, chosen.values[value])}
            sql = reading.chosen_jobs(arms, chosen.conditions, sort, descending, exact, after, everywhere)
        else:
            sql = reading.jobs(arms, after)
        # Not remembered where it is the operator's typing that makes it: there is no end to that.
        return statements.bind(sql) if sql else None

    def _serves(self, column: str, value: object) -> bool:
        """Whether an index finds the rows where a column is exactly that."""
        if column != "job_id":
            return column in self.profile.indexed
        keys = self.profile.live.key
        return len(keys) == 1 and _KEYS.get(keys[0].type, _NO_KEY).fullmatch(str(value)) is not None

    @cached_property
    def _one(self) -> bytes:
        return self._bind(reading.job(reading.arms(self.profile, State), _WHOLE))

    @cached_property
    def _owners(self) -> bytes | None:
        return self._bind(reading.owners(self.profile)) if self.profile.has("owner") else None

    async def _closed_to_us(self, connection: psycopg.AsyncConnection) -> tuple[str, ...]:
        """Which of the optional questions this role may not ask: the screen opens without their answers."""
        closed = []
        given = {"key_" + column.name: None for column in self.profile.live.key}
        for name, sql in (("watchers", self._watchers), ("history", self._history), ("throughput", self._throughput)):
            if sql is None:
                continue
            await connection.execute(b"SAVEPOINT may")
            try:
                # Explained, not run: privileges are looked at all the same.
                explained = {**self.profile.values, **given, "limit": 1, **_throughput_parameters()}
                await connection.execute(b"EXPLAIN " + sql, explained)
            except psycopg.errors.InsufficientPrivilege:
                await connection.execute(b"ROLLBACK TO SAVEPOINT may")
                closed.append(name)
        return tuple(closed)

    def _open(self, name: str, sql: str | None) -> bytes | None:
        return self._bind(sql) if sql and name not in (self._closed or ()) else None

    @property
    def _watchers(self) -> bytes | None:
        return self._open("watchers", self.profile.watchers)

    @property
    def _history(self) -> bytes | None:
        return self._open("history", self.profile.history)

    @property
    def _throughput(self) -> bytes | None:
        return self._open("throughput", reading.throughput(self.profile))

    def _bind(self, sql: str) -> bytes:
        return self._bound.setdefault(sql, statements.bind(sql))

    def _key(self, key: Key) -> dict[str, object]:
        return {f"key_{column.name}": part for column, part in zip(self.profile.live.key, key, strict=True)}

    async def _ask(
        self,
        connection: psycopg.AsyncConnection,
        questions: Sequence[tuple[bytes | None, Mapping[str, object]]],
    ) -> list[psycopg.AsyncCursor[Row] | None]:
        """All questions in one round trip; None for those that this profile cannot answer."""
        cursors: list[psycopg.AsyncCursor[Row] | None] = []
        async with connection.pipeline():
            for sql, given in questions:
                if sql is None:
                    cursors.append(None)
                    continue
                cursor = connection.cursor(row_factory=dict_row)
                await cursor.execute(sql, {**self.profile.values, **given})
                cursors.append(cursor)
        return cursors

    async def _fetch(self, connection: psycopg.AsyncConnection, sql: bytes, given: Mapping[str, object]) -> list[Row]:
        async with connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(sql, {**self.profile.values, **given})
            return list(await cursor.fetchall())

    def _jobs_of(self, rows: Iterable[Row]) -> tuple[Job, ...]:
        """Each job once, in its first state: an archive may have a row for every attempt."""
        found: dict[Key, Job] = {}
        for job in map(self._job, rows):
            found.setdefault(job.key, job)
        return tuple(found.values())

    def _poison(self, row: Row) -> Poison:
        key = tuple(row[f"key_{n}"] for n in range(len(self.profile.live.key)))
        return Poison(key, row["attempts"], row["owner"], row["since"])

    def _job(self, row: Row) -> Job:
        state, reason = answers.state(row)
        return Job(
            key=tuple(row[f"key_{n}"] for n in range(len(self.profile.live.key))),
            state=state,
            reason=reason,
            place=None if row["place"] is None else Place(row["arm"], tuple(row["place"])),
            **{name: row[name] for name in profiles.COLUMNS},
        )


def _swept_key(row: Row) -> Key:
    return tuple(row["key"]) if "key" in row else (str(row["id"]),)


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


async def _rows(cursor: psycopg.AsyncCursor[Row] | None) -> list[Row] | None:
    return None if cursor is None else list(await cursor.fetchall())


def _throughput_parameters() -> dict[str, object]:
    return {"bucket_s": answers.BUCKET.total_seconds(), "window": answers.WINDOW, "look": _LOOK}
