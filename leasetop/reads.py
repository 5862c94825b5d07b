"""Every read that the screen and the commands have, for one queue, through its profile.

They come out as model objects, all of a refresh from one transaction. Nothing here compares a lease with this machine's
clock.
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property

import psycopg
from psycopg.rows import dict_row

from leasetop import answers, journal, paging, reading, statements
from leasetop import profile as profiles
from leasetop.anomalies import KNOWN, Findings, Late
from leasetop.clock import ServerClock
from leasetop.database import Database, Question, Row
from leasetop.errors import Refused
from leasetop.filter import Filter, parse
from leasetop.journal import Site
from leasetop.model import (
    Detail,
    Job,
    Key,
    Noisy,
    Payload,
    Poison,
    Reason,
    Snapshot,
    State,
    Tally,
    Trends,
    View,
    parsed,
)
from leasetop.paging import Place
from leasetop.profile import Profile

PAGE = 500
"""Jobs of a view in one snapshot."""
_LOOK = 5_000
TRENDS_WINDOW = timedelta(hours=1)
_TRENDS_LOOK = 200_000
_WORST = 20
"""Poison jobs and noisy owners, at most."""
_OWNERS = 200
_HISTORY = 200
_WHOLE = 20_000
"""Characters of one text of one job."""

_END = b"SELECT clock_timestamp() AS now"
CLUSTER = b"SELECT system_identifier::text AS cluster FROM pg_control_system()"
JOURNAL = b"""
    SELECT coalesce(has_table_privilege(to_regclass('leasetop_journal'), 'INSERT'), false) AS writable,
           coalesce(has_table_privilege(to_regclass('leasetop_journal'), 'SELECT'), false) AS readable
"""
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

SERVER = b"""
    SELECT clock_timestamp() AS now, current_setting('server_version') AS version, current_database()::text AS database,
           current_user::text AS "user", pg_is_in_recovery() AS standby
"""


class Reads:
    """What can be asked of one queue, through its profile."""

    def __init__(self, database: Database, profile: Profile) -> None:
        self.profile = profile
        self.database = database
        self._bound: dict[str, bytes] = {}
        self._closed: tuple[str, ...] | None = None
        """What this role may not read, of what can be done without; None: not looked at yet."""
        self._cluster: str | None = ""
        """What tells this server from others, wherever it is reached; None: not told; empty: not asked yet."""

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
        if self._closed is None:
            async with self.database.reading() as connection:
                self._closed = await self._closed_to_us(connection)
            asked = time.monotonic()
        server, tallies, jobs, held, watchers, throughput, end = await self._ask_at_once(
            (SERVER, {}),
            (self._bind(reading.tallies(self.profile)), {}),
            (
                self._jobs(view, wanted, sort, descending, after, everywhere),
                {"limit": limit, **wanted.values, **(paging.parameters(after.values) if after else {})},
            ),
            (self._owners, {"limit": owners}),
            (self._watchers, {}),
            (self._throughput, _throughput_parameters()),
            (_END, {}),
        )
        answered, here = time.monotonic(), datetime.now(UTC)
        assert server and tallies and end
        now = server[0]["now"]
        counted: dict[tuple[State, Reason | None], Tally] = {}
        for row in tallies:
            counted[answers.state(row)] = counted.get(answers.state(row), Tally()) + answers.tally(row)
        return Snapshot(
            server=answers.server(server[0], self.database.host),
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
        server, jobs, history, journal_table = await self._ask_at_once(
            (SERVER, {}),
            (self._one, self._key(key) | {"limit": 1}),
            (self._history, self._key(key) | {"limit": _HISTORY}),
            (JOURNAL, {}),
        )
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
        (rows,) = await self._ask_at_once((self._bind(sql), self._key(key) | {"longest": _WHOLE}))
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
        wanted, found = list(keys), dict[Key, Job | None]()
        # A transaction for each page: on a slow line the screen's own question comes in between.
        for begin in range(0, len(wanted), PAGE):
            page = wanted[begin : begin + PAGE]
            (rows,) = await self._ask_at_once(self._these(page))
            jobs = self._jobs_of(rows or ())
            found |= dict.fromkeys(page) | {job.key: job for job in jobs}
        return found

    def _these(self, keys: Sequence[Key]) -> Question:
        """The question for the jobs of these keys."""
        sql = self._bind(reading.these_jobs(reading.arms(self.profile, State), _WHOLE))
        return sql, {f"keys_{column.name}": [key[n] for key in keys] for n, column in enumerate(self.profile.live.key)}

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
            now = (await self._fetch(connection, SERVER, {}))[0]["now"]
            minutes = await self._fetch(connection, self._bind(looks.minutes), given)
            given["first"] = minutes[0]["first"] if minutes else None
            questions = [(self._bind(sql) if sql else None, given) for sql in (looks.poison, looks.noisy)]
            cursors = await self._ask(connection, [*questions, (_END, {})])
            poison, noisy, end = [await rows_of(cursor) or [] for cursor in cursors]
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
        sql = reading.jobs(reading.arms(self.profile, states))
        server, rows = await self._ask_at_once((SERVER, {}), (self._bind(sql) if sql else None, {"limit": limit}))
        assert server is not None
        return self._jobs_of(rows or ())[:limit], ServerClock.read(server[0]["now"], asked, time.monotonic())

    async def expired(self, limit: int = PAGE) -> tuple[Job, ...]:
        """The preview of a sweep: the jobs whose lease is over, oldest first, at most `limit`."""
        # That the owner of a job in a table of one's own is not to be found proves nothing: no sweep takes it.
        swept = (Reason.EXPIRED,) if self.profile.label == "own" else _SWEPT
        sql = reading.jobs([arm for arm in reading.arms(self.profile, [State.STUCK]) if arm.reason in swept])
        (rows,) = await self._ask_at_once((self._bind(sql), {"limit": limit}))
        return tuple(map(self._job, rows or ()))

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
        rows = await self._ask_at_once(*questions, (late, {"limit": PAGE}))
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
            site = await self._site(connection)
            rows = []
            if self.profile.journal is not None:
                rows += await self._fetch(connection, self._bind(self.profile.journal), {"limit": limit})
            if (await self._fetch(connection, JOURNAL, {}))[0]["readable"]:
                given = {"queue": self.profile.title, "limit": limit}
                rows += await self._fetch(connection, statements.load("journal_read"), given)
        found = [
            journal.Entry(
                row["at"],
                row["actor"],
                site,
                self.profile.title,
                journal.act_of(row["act"]),
                tuple(row["job"]),
                row["reason"],
                row["seen"] or {},
                row["done"],
                row["result"],
            )
            for row in rows
        ]
        try:
            found += journal.read(site, self.profile.title, limit)
        except OSError as error:
            raise Refused(f"the journal {journal.file()} cannot be read: {error.strerror}") from None
        return tuple(sorted(found, key=lambda entry: entry.at, reverse=True)[:limit])

    async def _site(self, connection: psycopg.AsyncConnection) -> Site:
        """Which database this is, for a file in which there are acts on several."""
        if self._cluster == "":
            await connection.execute(b"SAVEPOINT site")
            try:
                self._cluster = (await self._fetch(connection, CLUSTER, {}))[0]["cluster"]
            except psycopg.errors.InsufficientPrivilege:
                await connection.execute(b"ROLLBACK TO SAVEPOINT site")
                self._cluster = None
        info = connection.info
        return Site(info.dbname, f"{info.host}:{info.port}", self._cluster)

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

    async def _ask_at_once(self, *questions: Question) -> list[list[Row] | None]:
        """All of it in one transaction and one round trip; None for those that this profile cannot answer."""
        return await self.database.ask([(sql, {**self.profile.values, **given}) for sql, given in questions])

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
            **{name: reading.whole_or_cut(row[name]) for name in profiles.COLUMNS},
        )


async def rows_of(cursor: psycopg.AsyncCursor[Row] | None) -> list[Row] | None:
    """What a question was answered; None where it was none."""
    return None if cursor is None else list(await cursor.fetchall())


def _throughput_parameters() -> dict[str, object]:
    return {"bucket_s": answers.BUCKET.total_seconds(), "window": answers.WINDOW, "look": _LOOK}
