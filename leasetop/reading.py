"""A profile -> the statements that read through it. Text in, text out; nothing here is executed.

Each state is an arm of its own, with its predicate in WHERE as written and its own bounded, ordered LIMIT, so that
every arm can use the index made for it. Arms are joined by UNION ALL, in the order asked for. A fragment of a profile
is followed by a line break: it may end in a comment.
"""

from collections.abc import Iterable

from leasetop.model import Reason, State
from leasetop.profile import COLUMNS, Profile

# A count stops here and says so: nothing that the screen asks may grow with the table.
CAP = 10_000
# Longer texts are cut in the database: a list of jobs must not carry megabytes.
_CUT = {"error": 300, "owner": 200, "stage": 80, "kind": 80, "idempotency_key": 200, "status": 80}

Arm = tuple[State, Reason | None]


def arms(profile: Profile, states: Iterable[State]) -> list[Arm]:
    """The arms of these states, in their order; those that the profile does not tell are left out."""
    return [arm for state in states for arm in profile.states if arm[0] is state]


def jobs(profile: Profile, chosen: Iterable[Arm], condition: str = "", longest: int | None = None) -> str:
    """Rows of jobs, at most `:limit`: state, reason, key_0..n, and each canonical column.

    Texts are cut, and end in an ellipsis then; `longest` is for a single job, of which one wants to see more.
    """
    selected = [f"({column.sql})::text AS key_{n}" for n, column in enumerate(profile.key)]
    for name, kind in COLUMNS.items():
        expression = f"({profile.columns[name]})::{kind}" if name in profile.columns else f"NULL::{kind}"
        if name in _CUT:
            expression = _cut(expression, longest or _CUT[name])
        selected.append(f"{expression} AS {name}")
    return _union(
        f"SELECT '{state}' AS state, {_literal(reason)} AS reason, {', '.join(selected)} "
        f"FROM {profile.source} WHERE ({profile.states[state, reason]}\n){condition} "
        f"{_order(profile, state)} LIMIT :limit"
        for state, reason in chosen
    )


def tallies(profile: Profile) -> str:
    """One row an arm: state, reason, count (at most CAP + 1), oldest and newest."""
    return _union(
        f"SELECT '{state}' AS state, {_literal(reason)} AS reason, count(*) AS count, "
        f"min(since) AS oldest, max(since) AS newest FROM ("
        f"SELECT ({profile.since.get(state, 'NULL')})::timestamptz AS since FROM {profile.source} "
        f"WHERE ({predicate}\n) {_order(profile, state)} LIMIT {CAP + 1}) AS few"
        for (state, reason), predicate in profile.states.items()
    )


def owners(profile: Profile) -> str:
    """One row an owner, the one with most expired leases first, at most `:limit`; `owners` counts them all."""
    held = _union(
        f"SELECT ({profile.columns['owner']})::text AS owner, "
        f"({profile.columns.get('lease_until', 'NULL')})::timestamptz AS lease_until, "
        f"({profile.columns.get('claimed_at', 'NULL')})::timestamptz AS claimed_at, "
        f"{'true' if state is State.STUCK else 'false'} AS expired "
        f"FROM {profile.source} WHERE ({profile.states[state, reason]}\n) LIMIT {CAP + 1}"
        for state, reason in arms(profile, (State.PROCESSING, State.STUCK))
        if reason is not Reason.PARKED
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


def key_condition(profile: Profile) -> str:
    """` AND key = :key_NAME`, typed, for each column of the key."""
    return "".join(f" AND {column.sql} = :key_{column.name}::{column.type}" for column in profile.key)


def _cut(expression: str, longest: int) -> str:
    return f"CASE WHEN length({expression}) > {longest} THEN left({expression}, {longest}) || '…' ELSE {expression} END"


def _order(profile: Profile, state: State) -> str:
    return f"ORDER BY {profile.order[state]}" if state in profile.order else ""


def _literal(reason: Reason | None) -> str:
    return f"'{reason}'" if reason else "NULL"


def _union(selects: Iterable[str]) -> str:
    return " UNION ALL ".join(f"({select})" for select in selects)
