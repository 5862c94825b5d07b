"""A profile -> the statements that read through it. Text in, text out; nothing here is executed.

Each state is an arm of its own, with its predicate in WHERE as written and its own bounded, ordered LIMIT, so that
every arm can use the index made for it. Arms are joined by UNION ALL, in the order asked for. A fragment of a profile
is followed by a line break: it may end in a comment.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leasetop import paging
from leasetop.model import Reason, State
from leasetop.paging import Place, Term
from leasetop.profile import COLUMNS, Profile, Source

# A count stops here and says so: nothing that the screen asks may grow with the table.
CAP = 10_000
# Longer texts are cut in the database: a list of jobs must not carry megabytes.
_REST = "\x03"
"""Ends a text that was cut."""
_CUT = {"error": 300, "owner": 200, "stage": 80, "queue": 80, "kind": 80, "idempotency_key": 200, "status": 80}


@dataclass(frozen=True, slots=True)
class Arm:
    """The rows of one source that are in one state, for one reason."""

    source: Source
    state: State
    reason: Reason | None

    @property
    def rows(self) -> str:
        """FROM and WHERE, for lists and counts."""
        window = self.source.window.get(self.state)
        return self.everywhere + (f" AND ({window}\n)" if window else "")

    @property
    def one(self) -> str:
        """FROM and WHERE, for the job of `:key_NAME`."""
        return self.everywhere + _is_the_one(self.source)

    @property
    def everywhere(self) -> str:
        """FROM and WHERE, beyond the window, too: for what an index finds."""
        return f"FROM {self.source.relation}\nWHERE ({self.source.states[self.state, self.reason]}\n)"

    @property
    def labels(self) -> str:
        """Two columns: state and reason."""
        reason = f"'{self.reason}'" if self.reason else "NULL"
        return f"'{self.state}' AS state, {reason} AS reason"

    @property
    def terms(self) -> tuple[Term, ...]:
        """Its order made total; none where the profile has none: sorting might cost more than it is worth."""
        order = self.source.order.get(self.state)
        return () if order is None else paging.terms(order, [column.sql for column in self.source.key])

    @property
    def order(self) -> str:
        """ORDER BY, where the profile has one."""
        return f"ORDER BY {', '.join(term.written for term in self.terms)}" if self.terms else ""

    @property
    def job_id(self) -> str:
        """The key as one text, as SQL."""
        return job_id([column.sql for column in self.source.key])

    @property
    def place(self) -> str:
        """Where a row stands in that order, as SQL."""
        return paging.place(self.terms) if self.terms else "NULL::text[]"


def arms(profile: Profile, states: Iterable[State]) -> list[Arm]:
    """The arms of these states, in their order; those that the profile does not tell are left out."""
    return [
        Arm(source, known, reason)
        for state in states
        for source in profile.sources
        for known, reason in source.states
        if known is state
    ]


def job(chosen: Iterable[Arm], longest: int) -> str:
    """The job of `:key_NAME`: state, reason, key_0..n, and each canonical column, with texts of at most that length."""
    return _union(
        f"SELECT {arm.labels}, {', '.join(_columns(arm.source, longest))}, NULL::integer AS arm, NULL::text[] AS place "
        f"{arm.one} LIMIT :limit"
        for arm in chosen
    )


def these_jobs(chosen: Iterable[Arm], longest: int) -> str:
    """The same of all jobs of `:keys_NAME`, an array for each column of the key, which belong together by place."""
    return _union(
        f"SELECT {arm.labels}, {', '.join(_columns(arm.source, longest))}, NULL::integer AS arm, NULL::text[] AS place "
        f"{arm.everywhere}{_are_these(arm.source)}"
        for arm in chosen
    )


def _are_these(source: Source) -> str:
    arrays = [f":keys_{column.name}::{column.type}[]" for column in source.key]
    if len(source.key) == 1:
        return f" AND {source.key[0].sql} = ANY ({arrays[0]})"
    parts = ", ".join(column.sql for column in source.key)
    return f" AND ({parts}) IN (SELECT * FROM unnest({', '.join(arrays)}))"


def jobs(chosen: Sequence[Arm], after: Place | None = None) -> str:
    """Rows of jobs, at most `:limit`: state, reason, key_0..n, each canonical column, and its place (arm, place).

    Texts are cut, and end in an ellipsis then. `after` begins behind a place that such a row had.
    """
    found = _union(
        f"SELECT {arm.labels}, {', '.join(_columns(arm.source, None))}, {n} AS arm, {arm.place} AS place "
        f"{rows} {arm.order} LIMIT :limit"
        for n, arm in enumerate(chosen)
        for rows in _beyond(n, arm, arm.rows, after)
    )
    return f"SELECT * FROM ({found}) AS found LIMIT :limit" if found else ""


def _beyond(n: int, arm: Arm, rows: str, after: Place | None) -> list[str]:
    """The rows of an arm behind a place: all of those that come later, none of those before."""
    if after is None or after.arm is None or n > after.arm:
        return [rows]
    if n < after.arm:
        return []
    return [f"{rows} AND ({only})" for only in paging.after(arm.terms, after.values)]


# Canonical columns by which a list can be sorted, as the screen names them.
SORTS = {
    "id": "key_0",
    "state": "state",
    "queue": "queue",
    "kind": "kind",
    "amount": "substring(amount from '^-?[0-9]+(?:[.][0-9]+)?')::numeric",
    "stage": "stage",
    "owner": "owner",
    "lease": "lease_until",
    "try": "attempts",
    "age": "-extract(epoch FROM created_at)",
    "error": "error",
    "priority": "priority",
}


def chosen_jobs(
    chosen: Sequence[Arm],
    conditions: Sequence[str],
    sort: str | None = None,
    descending: bool = False,
    exact: Mapping[str, str] | None = None,
    after: Place | None = None,
    everywhere: bool = False,
) -> str:
    """As `jobs`, but only those that fulfil conditions over the canonical columns, or sorted by one of them.

    Looks at the first CAP rows of each arm: a refresh must not grow with the table. Whether that was all of them the
    tallies say, whose counts stop at the same number. `exact` are canonical columns, with the parameters that they
    equal, which an index serves: those are looked for in all rows. `everywhere` looks at all rows for the others, too.
    """
    by = _sorting(sort, descending, len(chosen[0].source.key)) if sort is not None and chosen else ()
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    found = _union(
        f"SELECT * FROM (SELECT {arm.labels}, {', '.join(_columns(arm.source, None))}, {n} AS arm, "
        f"{'NULL::text[]' if by else arm.place} AS place, {arm.job_id} AS job_id "
        f"{rows} {arm.order} {'' if everywhere else f'LIMIT {CAP}'}) AS few {where} {'' if by else 'LIMIT :limit'}"
        for n, arm in enumerate(chosen)
        for rows in _beyond(n, arm, _exactly(arm, exact or {}), after)
    )
    if not found or not by:
        return f"SELECT * FROM ({found}) AS found LIMIT :limit" if found else ""
    beyond = f"WHERE {' OR '.join(f'({only})' for only in paging.after(by, after.values))}" if after else ""
    names = ["state", "reason", *(f"key_{n}" for n in range(len(chosen[0].source.key))), *COLUMNS]
    return (
        f"SELECT {', '.join(names)}, NULL::integer AS arm, {paging.place(by)} AS place "
        f"FROM ({found}) AS found {beyond} "
        f"ORDER BY {', '.join(term.written for term in by)} LIMIT :limit"
    )


def _sorting(sort: str, descending: bool, keys: int) -> tuple[Term, ...]:
    """The total order of a sorted list."""
    column = SORTS[sort]
    # Numbers that are written as texts are sorted as numbers.
    by = [f"length({column})", column] if column == "key_0" else [column]
    first = [Term(part, descending, nulls_first=False) for part in by]
    last = [name for name in ["state", *(f"key_{n}" for n in range(keys))] if name not in by]
    return (*first, *(Term(name) for name in last))


def _exactly(arm: Arm, exact: Mapping[str, str]) -> str:
    known = {name: value for name, value in exact.items() if name == "job_id" or name in arm.source.columns}
    if not known:
        return arm.rows
    rows = arm.everywhere
    for name, value in known.items():
        if name == "job_id":
            rows += "".join(f" AND {key.sql} = :{value}::{key.type}" for key in arm.source.key)
        else:
            rows += f" AND ({arm.source.columns[name]}) = :{value}::text"
    return rows


def job_id(key: Sequence[str]) -> str:
    """A key as one text, as model.written writes it."""
    if len(key) == 1:
        return f"({key[0]})::text"
    # chr(92) is the backslash, in whichever way the server reads literals.
    return " || '/' || ".join(
        f"replace(replace(({column})::text, chr(92), chr(92) || chr(92)), '/', chr(92) || '/')" for column in key
    )


def _is_the_one(source: Source) -> str:
    return "".join(f" AND {column.sql} = :key_{column.name}::{column.type}" for column in source.key)


def _columns(source: Source, longest: int | None) -> Iterator[str]:
    for n, column in enumerate(source.key):
        yield f"({column.sql})::text AS key_{n}"
    for name, kind in COLUMNS.items():
        expression = f"({source.columns[name]})::{kind}" if name in source.columns else f"NULL::{kind}"
        if name == "fence" and name not in source.columns:
            # A row of an archive: no act changes it, so nothing ever equals its fence.
            expression = "'archived'::text"
        if name in _CUT:
            expression = _cut(expression, longest or _CUT[name])
        yield f"{expression} AS {name}"


def payload(profile: Profile) -> str | None:
    """The payload of one live job as text, at most `:longest` characters, and its whole length."""
    if profile.payload is None:
        return None
    return (
        f"SELECT left(payload, :longest) AS payload, length(payload) AS length FROM ("
        f"SELECT ({profile.payload})::text AS payload FROM {profile.live.relation} "
        f"WHERE true{_is_the_one(profile.live)} LIMIT 1) AS one"
    )


def tallies(profile: Profile) -> str:
    """One row an arm: state, reason, count (at most CAP + 1), oldest and newest."""
    return _union(
        f"SELECT {arm.labels}, count(*) AS count, min(since) AS oldest, max(since) AS newest FROM ("
        f"SELECT ({arm.source.since.get(arm.state, 'NULL')})::timestamptz AS since "
        f"{arm.rows} {arm.order} LIMIT {CAP + 1}) AS few"
        for arm in arms(profile, State)
    )


def owners(profile: Profile) -> str:
    """One row an owner, the one with most expired leases first, at most `:limit`; `owners` counts them all."""
    live = profile.live
    held = _union(
        f"SELECT ({live.columns['owner']})::text AS owner, "
        f"({live.columns.get('lease_until', 'NULL')})::timestamptz AS lease_until, "
        f"({live.columns.get('claimed_at', 'NULL')})::timestamptz AS claimed_at, "
        f"{'true' if arm.state is State.STUCK and arm.reason is not Reason.NO_LEASE else 'false'} AS expired "
        f"{arm.rows} LIMIT {CAP + 1}"
        for arm in arms(profile, (State.PROCESSING, State.STUCK))
        if arm.source is live and arm.reason is not Reason.PARKED
    )
    return (
        f"SELECT {_cut('owner', _CUT['owner'])} AS owner, "
        "count(*) AS held, count(*) FILTER (WHERE expired) AS expired, "
        "min(claimed_at) AS oldest_claim, min(lease_until) AS next_expiry, "
        "count(*) OVER () AS owners, sum((NOT bool_and(expired))::integer) OVER ()::bigint AS live_owners, "
        "sum(count(*)) OVER ()::bigint AS leases "
        f"FROM ({held}) AS held GROUP BY owner ORDER BY expired DESC, held DESC, owner LIMIT :limit"
    )


def throughput(profile: Profile) -> str | None:
    """One row a bucket of `:bucket_s` seconds: at, completed, known_since. Looks at the newest `:look` rows only."""
    if profile.throughput is None:
        return None
    return (
        f"WITH recent AS MATERIALIZED ({profile.throughput}\n) "
        "SELECT to_timestamp(floor(extract(epoch FROM at) / :bucket_s) * :bucket_s) AS at, "
        "count(*) FILTER (WHERE completed) AS completed, "
        "(SELECT CASE WHEN count(*) >= :look THEN min(at) END FROM recent) AS known_since "
        "FROM recent WHERE at > now() - :window::interval GROUP BY 1 ORDER BY 1"
    )


def _cut(expression: str, longest: int) -> str:
    # What stands for the rest is in every encoding that a database can have; `whole_or_cut` makes it readable.
    cut = f"left({expression}, {longest}) || chr({ord(_REST)})"
    return f"CASE WHEN length({expression}) > {longest} THEN {cut} ELSE {expression} END"


def whole_or_cut(value: Any) -> Any:
    """A value of an answer as it is shown: a text that was cut ends with …"""
    return value[:-1] + "…" if isinstance(value, str) and value.endswith(_REST) else value


def _union(selects: Iterable[str]) -> str:
    return " UNION ALL ".join(f"({select})" for select in selects)
