"""Which queues does a database hold? Known ones by their tables and columns, in every schema that the user may use.

One query over the catalogs answers for all profiles; a profile that names no schema is looked for on the search_path.
Where a queue is a set of tables for each name (pgmq, absurd), the profile's own `discover` lists those. A table called
payment_jobs that is not the home table is understood by its columns, where that can be done without a question.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.rows import dict_row

from leasetop import guess, naming, statements, text
from leasetop import profile as profiles
from leasetop.database import Database, in_words
from leasetop.errors import CommandError, LeasetopError, NoQueue
from leasetop.profile import Profile, ProfileError

_PLAIN = "payment_jobs"

_TABLES = b"""
    SELECT n.nspname AS schema, c.relname AS name, pg_table_is_visible(c.oid) AS visible,
           array_agg(a.attname::text) AS columns
      FROM pg_class c
      JOIN pg_namespace n ON n.oid = c.relnamespace
      JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
     WHERE c.relname = ANY (%(names)s)
       AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
       AND NOT pg_is_other_temp_schema(n.oid)
       AND has_schema_privilege(n.oid, 'USAGE')
     GROUP BY n.nspname, c.relname, c.oid
     ORDER BY n.nspname, c.relname
"""


class SeveralQueues(CommandError):
    """More than one queue, and nobody said which."""

    def __init__(self, found: "Survey") -> None:
        self.found = found
        titles = ", ".join(f"'{text.safe(profile.title)}'" for profile in found.profiles)
        super().__init__(f"there are {len(found.profiles)} queues here: {titles}; say which with --queue")


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found."""

    profiles: tuple[Profile, ...]
    """A profile for each queue, with the names that are true here."""
    troubles: tuple[str, ...]
    """What was there and could not be understood or read, in words."""


@dataclass(frozen=True, slots=True)
class _Table:
    schema: str
    name: str
    visible: bool
    columns: frozenset[str]


async def find(
    database: Database,
    *,
    table: str | None = None,
    profile: Path | None = None,
    name: str | None = None,
    params: Mapping[str, str] | None = None,
) -> Profile:
    """The profile of a queue of this database: the one given, one made for the table given, or a known one that fits.

    `name` chooses where several fit.

    Raises NoQueue with what was looked for, SeveralQueues, ProfileError, MappingError, Unreachable or Refused.
    """
    if profile is not None:
        chosen = profiles.load(profile)
    elif table is not None:
        chosen = await _understood(database, table)
    else:
        chosen = await _only(database, name)
    if params:
        chosen = await _with_params(database, chosen, params)
    return chosen


async def _only(database: Database, name: str | None) -> Profile:
    found = await survey(database)
    if name is not None:
        for chosen in found.profiles:
            if name in (chosen.title, chosen.id):
                return chosen
        there = ", ".join(f"'{text.safe(profile.title)}'" for profile in found.profiles) or "none"
        raise NoQueue(f"there is no queue '{text.safe(name)}' here; found: {there}")
    if len(found.profiles) > 1:
        raise SeveralQueues(found)
    if found.profiles:
        return found.profiles[0]
    raise await _nothing(database, found)


async def _nothing(database: Database, found: Survey) -> LeasetopError:
    if found.troubles:
        return NoQueue("; ".join(found.troubles))
    async with database.reading() as connection:
        cursor = await connection.execute(b"SELECT current_database(), current_setting('search_path')")
        row = await cursor.fetchone()
    assert row is not None
    known = ", ".join(profile.title for profile in profiles.shipped())
    return NoQueue(
        f"no queue that this user can see in {text.safe(row[0])} (search_path {text.safe(row[1])}): "
        f"looked for {known}. "
        "Make the home table with leasetop init, name a table of your own with --table, "
        "or give the right database in --dsn"
    )


async def survey(database: Database) -> Survey:
    """All queues of the database. Raises Unreachable or Refused."""
    known = profiles.shipped()
    wanted = {name for profile in known if profile.detect for name in profile.detect.tables}
    wanted |= {name.split(".")[0] for profile in known if profile.detect for name in profile.detect.without}
    tables = await _tables(database, wanted | {_PLAIN})
    found: list[Profile] = []
    troubles: list[str] = []
    for profile in known:
        for names in _places(profile, tables):
            named = profiles.with_names(profile, names, _title(profile, names))
            if named.discover is None:
                found.append(named)
                continue
            try:
                found += [profiles.with_names(named, more, title) for more, title in await _discovered(database, named)]
            except LeasetopError as error:
                troubles.append(f"{named.title}: {error}")
    plain = any(table.name == _PLAIN and table.visible for table in tables)
    if plain and not any(profile.live.relation == f"{_PLAIN} j" for profile in found):
        try:
            found.insert(0, await _understood(database, _PLAIN))
        except naming.MappingError as error:
            troubles.append(str(error))
    return Survey(tuple(found), tuple(troubles))


def _title(profile: Profile, names: Mapping[str, str]) -> str:
    """With the schema, where that is another than usual."""
    schema = names.get("schema")
    return profile.title if schema == profile.names.get("schema") else f"{profile.title} in {schema}"


async def _tables(database: Database, names: Iterable[str]) -> list[_Table]:
    async with database.reading() as connection, connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(_TABLES, {"names": sorted(names)})
        return [
            _Table(row["schema"], row["name"], row["visible"], frozenset(row["columns"]))
            for row in await cursor.fetchall()
        ]


def _places(profile: Profile, tables: Sequence[_Table]) -> Iterator[dict[str, str]]:
    """The names under which this queue is here: one set for each schema that has all its tables."""
    if profile.detect is None:
        return
    if "schema" not in profile.names:
        if _fits(profile, [table for table in tables if table.visible]):
            yield {}
        return
    for schema in dict.fromkeys(table.schema for table in tables):
        if _fits(profile, [table for table in tables if table.schema == schema]):
            yield {"schema": schema}


def _fits(profile: Profile, tables: Sequence[_Table]) -> bool:
    assert profile.detect is not None
    there = {table.name: table.columns for table in tables}
    for name, columns in profile.detect.tables.items():
        if name not in there or not there[name].issuperset(columns):
            return False
    for barred in profile.detect.without:
        name, _, column = barred.partition(".")
        if name in there and (not column or column in there[name]):
            return False
    return True


async def _discovered(database: Database, profile: Profile) -> list[tuple[dict[str, str], str]]:
    """Names and title of each queue that the profile's own query lists. Raises Unreachable, Refused or ProfileError."""
    assert profile.discover is not None
    async with database.reading() as connection, connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statements.bind(profile.discover))
        rows = await cursor.fetchall()
    found = []
    for row in rows:
        names = {name: str(value) for name, value in row.items() if name != "title"}
        found.append((names, f"{profile.title}: {row['title']}"))
    return found


async def _understood(database: Database, table: str) -> Profile:
    try:
        meaning = await guess.guess(database, table)
    except naming.MappingError as error:
        if "--set" not in str(error):
            raise
        raise naming.MappingError(
            f"{error} (to: leasetop profile --table {text.safe(table)} --output FILE; then: leasetop --profile FILE)"
        ) from None
    return profiles.read(meaning.document(), table)


async def _with_params(database: Database, profile: Profile, params: Mapping[str, str]) -> Profile:
    """Sets parameters, once the server has said that each is a value of its type."""
    chosen = profile.given(params)
    for name, value in params.items():
        kind = profile.params[name].type
        # A time-out below zero makes live jobs look dead.
        check = {
            "interval": b"SELECT %s::interval > interval '0'",
            "integer": b"SELECT %s::integer > 0",
            "text": b"SELECT %s::text IS NOT NULL",
        }[kind]
        async with database.reading() as connection:
            try:
                await connection.execute(b"SAVEPOINT value")
                row = await (await connection.execute(check, [value])).fetchone()
            except psycopg.DataError as error:
                await connection.execute(b"ROLLBACK TO SAVEPOINT value")
                raise ProfileError(f"parameter {name}: {in_words(error)}") from None
            if row is None or not row[0]:
                raise ProfileError(f"parameter {name}: '{text.safe(value)}' is not above zero")
    return chosen
