"""Looks at a table: its columns, key, indexes, and a bounded number of its values. It does not judge what they mean.

Names come back both as they are and quoted by the server, so that nothing here or later pastes a raw name into SQL.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from leasetop import text
from leasetop.database import Database
from leasetop.errors import NoQueue

# Values are looked at in so many rows only: enough to meet every state in use, and no more than a moment's work.
_SAMPLE = 50_000
_MOST_VALUES = 20

_TABLE = b"""
    SELECT c.oid, format('%%I.%%I', n.nspname, c.relname) AS quoted,
           c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid) AS has_children
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
       AND (c.oid = to_regclass(%(name)s) OR (n.nspname = %(schema)s AND c.relname = %(table)s))
     ORDER BY c.oid = to_regclass(%(name)s) DESC NULLS LAST
     LIMIT 1
"""
# A key is the primary one, or the narrowest unique one whose columns cannot be NULL: two rows may share a NULL. What an
# index only INCLUDEs is not its key, and one that is not valid proves nothing.
_COLUMNS = b"""
    SELECT a.attname AS name, quote_ident(a.attname) AS quoted, format_type(a.atttypid, a.atttypmod) AS type,
           (WITH RECURSIVE under AS (
                SELECT a.atttypid AS oid UNION ALL
                SELECT t.typbasetype FROM pg_type t JOIN under u ON t.oid = u.oid WHERE t.typtype = 'd')
            SELECT format_type(u.oid, NULL) FROM under u JOIN pg_type t ON t.oid = u.oid
             WHERE t.typtype <> 'd') AS base,
           a.attnotnull OR (SELECT typnotnull FROM pg_type WHERE oid = a.atttypid) AS required,
           a.atthasdef AS has_default, a.attgenerated <> '' AS generated,
           coalesce(a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]), false) AS key
      FROM pg_attribute a
      LEFT JOIN LATERAL (
           SELECT x.indkey, x.indnkeyatts FROM pg_index x
            WHERE x.indrelid = a.attrelid AND x.indisunique AND x.indisvalid
              AND x.indpred IS NULL AND x.indexprs IS NULL
              AND NOT EXISTS (SELECT FROM pg_attribute k
                               WHERE k.attrelid = x.indrelid AND NOT k.attnotnull
                                 AND k.attnum = ANY ((x.indkey::int2[])[0:x.indnkeyatts - 1]))
            ORDER BY x.indisprimary DESC, x.indnkeyatts LIMIT 1) i ON true
     WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped
     ORDER BY a.attnum
"""
_INDEXES = b"SELECT pg_get_indexdef(indexrelid) AS definition FROM pg_index WHERE indrelid = %(oid)s AND indisvalid"


_REFERENCES = b"""
    SELECT a.attname AS column, format('%%I.%%I', n.nspname, c.relname) AS table, quote_ident(r.attname) AS key
      FROM pg_constraint f
      JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = f.conkey[1]
      JOIN pg_attribute r ON r.attrelid = f.confrelid AND r.attnum = f.confkey[1]
      JOIN pg_class c ON c.oid = f.confrelid
      JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE f.conrelid = %(oid)s AND f.contype = 'f' AND cardinality(f.conkey) = 1
"""


_NEIGHBOURS = b"""
    SELECT DISTINCT format('%%I.%%I', n.nspname, c.relname) AS table, a.attname AS column,
           format_type(a.atttypid, NULL) AS type, f.confrelid = %(oid)s AS refers
      FROM pg_constraint f
      JOIN pg_class c ON c.oid = CASE WHEN f.conrelid = %(oid)s THEN f.confrelid ELSE f.conrelid END
      JOIN pg_namespace n ON n.oid = c.relnamespace
      JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
     WHERE f.contype = 'f' AND (f.conrelid = %(oid)s OR f.confrelid = %(oid)s) AND c.oid <> %(oid)s
     ORDER BY 1, 2
     LIMIT 1000
"""
_LABELS = b"SELECT enumlabel FROM pg_enum WHERE enumtypid = to_regtype(%(type)s) ORDER BY enumsortorder"
_RULES = b"""
    SELECT pg_get_expr(d.adbin, d.adrelid)
      FROM pg_attrdef d JOIN pg_attribute a ON (a.attrelid, a.attnum) = (d.adrelid, d.adnum)
     WHERE d.adrelid = to_regclass(%(table)s) AND a.attname = %(column)s
     UNION ALL
    SELECT pg_get_constraintdef(c.oid) FROM pg_constraint c JOIN pg_attribute a ON a.attrelid = c.conrelid
     WHERE c.conrelid = to_regclass(%(table)s) AND c.contype = 'c' AND c.conkey = ARRAY[a.attnum]
       AND a.attname = %(column)s
     UNION ALL
    SELECT pg_get_constraintdef(c.oid) FROM pg_constraint c WHERE c.contypid = to_regtype(%(type)s) AND c.contype = 'c'
"""
_LITERAL = re.compile(r"'((?:[^']|'')*)'")


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key of one column."""

    column: str
    table: str
    """schema.name, quoted by the server."""
    key: str
    """The column there, quoted."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A column of a table that this one refers to by a foreign key, or that refers to it."""

    table: str
    """schema.name, quoted by the server."""
    column: str
    type: str
    refers: bool
    """Whether it is that table that refers to this one."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column."""

    name: str
    quoted: str
    type: str
    base: str
    """The type under a domain, without its length; else the same type."""
    required: bool
    """NOT NULL."""
    has_default: bool
    generated: bool
    """Made from other columns: nobody can write it."""
    key: bool
    """Part of the primary key, or of the narrowest unique one that holds no NULL."""
    ticks: int | None = None
    """A number that is an instant: how many of it are a second since 1970."""

    @property
    def is_number(self) -> bool:
        return self.base in ("smallint", "integer", "bigint")

    @property
    def is_instant(self) -> bool:
        return self.ticks is not None or (self.base.startswith("timestamp") and not self.base.endswith("[]"))

    @property
    def has_zone(self) -> bool:
        return self.ticks is not None or self.base.endswith("with time zone")


@dataclass(frozen=True, slots=True)
class Table:
    """A table, as far as one can see it without knowing what it is for."""

    quoted: str
    """schema.name, quoted by the server."""
    columns: tuple[TableColumn, ...]
    indexes: tuple[str, ...]
    """Their definitions."""
    references: tuple[Reference, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    has_children: bool = False
    """Whether other tables inherit from it (partitions do not count)."""

    def column(self, name: str) -> TableColumn | None:
        """By its exact name."""
        return next((column for column in self.columns if column.name == name), None)


async def look(database: Database, name: str) -> Table:
    """The table of that name, as SQL writes it; `Pay.Jobs` finds "Pay"."Jobs", too.

    Raises NoQueue, Unreachable, Refused.
    """
    schema, _, table = name.rpartition(".")
    given = {"name": name, "schema": schema.strip('"') or "public", "table": table.strip('"')}
    async with database.reading() as connection, connection.cursor(row_factory=dict_row) as cursor:
        try:
            await cursor.execute(_TABLE, given)
            found = await cursor.fetchone()
        except (psycopg.ProgrammingError, psycopg.NotSupportedError):
            # No name at all, or one with too many dots.
            found = None
        if found is None:
            raise NoQueue(f"there is no table {text.safe(name)} that this user can see; give it as schema.table")
        await cursor.execute(_COLUMNS, {"oid": found["oid"]})
        columns = tuple(TableColumn(**row) for row in await cursor.fetchall())
        await cursor.execute(_INDEXES, {"oid": found["oid"]})
        indexes = tuple(row["definition"] for row in await cursor.fetchall())
        await cursor.execute(_REFERENCES, {"oid": found["oid"]})
        references = tuple(Reference(**row) for row in await cursor.fetchall())
        await cursor.execute(_NEIGHBOURS, {"oid": found["oid"]})
        neighbours = tuple(Neighbour(**row) for row in await cursor.fetchall())
    return Table(found["quoted"], columns, indexes, references, neighbours, found["has_children"])


async def values(
    database: Database, table: Table, column: TableColumn, sample: int = _SAMPLE
) -> Mapping[str | None, int]:
    """How often each value stands in a column, the most frequent first, in a bounded sample. Raises as `look`."""
    keys = [one.quoted for one in table.columns if one.key]
    # Of a large table from both ends, by the index of the key: what is old is done, what is new may be in any state.
    newest = f"ORDER BY {', '.join(f'{key} DESC' for key in keys)}" if keys else ""
    query = sql.SQL(
        "SELECT value, count(*) FROM ((SELECT {column}::text AS value FROM {table} LIMIT {sample}) UNION ALL "
        "(SELECT {column}::text FROM {table} "
        "WHERE (SELECT count(*) FROM (SELECT FROM {table} LIMIT {sample}) AS first) = {sample} "
        "{newest} LIMIT {sample})) AS few "
        "GROUP BY value ORDER BY count(*) DESC, value LIMIT {most}"
    ).format(
        column=_verbatim(column.quoted),
        table=_verbatim(table.quoted),
        newest=_verbatim(newest),
        sample=sql.Literal(sample),
        most=sql.Literal(_MOST_VALUES),
    )
    async with database.reading() as connection:
        return dict(await (await connection.execute(query)).fetchall())


async def declared(database: Database, table: Table, column: TableColumn) -> list[str]:
    """The values that the column's type, default and CHECK constraints name, in use or not. Raises as `look`."""
    given = {"table": table.quoted, "column": column.name, "type": column.type}
    async with database.reading() as connection:
        cursor = await connection.execute(_LABELS, given)
        labels = [label for (label,) in await cursor.fetchall()]
        cursor = await connection.execute(_RULES, given)
        rules = [rule for (rule,) in await cursor.fetchall()]
    # What a rule forbids is no value: status <> 'stuck'.
    named = [rule for rule in rules if rule and not re.search(r"<>|\bNOT\b|!~|<> ALL", rule)]
    return labels + [found.replace("''", "'") for rule in named for found in _LITERAL.findall(rule)]


async def exists(database: Database, table: Table, predicate: str) -> bool:
    """Whether a row of a bounded sample fulfils a predicate over `j`. Raises as `look`."""
    keys = [one.quoted for one in table.columns if one.key]
    newest = f"ORDER BY {', '.join(f'{key} DESC' for key in keys)}" if keys else ""
    query = (
        f"SELECT EXISTS (SELECT FROM (SELECT * FROM {table.quoted} LIMIT {_SAMPLE}) AS j WHERE {predicate}) "
        f"OR EXISTS (SELECT FROM (SELECT * FROM {table.quoted} {newest} LIMIT {_SAMPLE}) AS j WHERE {predicate})"
    )
    async with database.reading() as connection:
        row = await (await connection.execute(query.encode())).fetchone()
    return bool(row and row[0])


async def time_zone(database: Database, name: str) -> str | None:
    """A time zone as the server spells it; None where it knows none of that name. Raises as `look`."""
    query = b"""SELECT name FROM pg_timezone_names WHERE lower(name) = lower(%s) AND name <> 'Factory'
                 ORDER BY name = %s DESC LIMIT 1"""
    async with database.reading() as connection:
        row = await (await connection.execute(query, [name, name])).fetchone()
    return row[0] if row else None


async def own_zone(database: Database) -> str | None:
    """The time zone that the server gives to sessions like ours; None where the client's environment chose one.

    Raises as `look`.
    """
    if "PGTZ" in os.environ or "PGOPTIONS" in os.environ:
        return None
    async with database.reading() as connection:
        cursor = await connection.execute(b"SELECT reset_val FROM pg_settings WHERE name = 'TimeZone'")
        row = await cursor.fetchone()
    return text.safe(row[0]) if row else None


async def is_a(database: Database, value: str, kind: str) -> bool:
    """Whether a text is a value of a type, as it stands. Raises as `look`."""
    query = sql.SQL("SELECT (%s::{kind})::text = %s").format(kind=_verbatim(kind))
    return await _holds(database, query, [value, value])


async def is_a_span(database: Database, value: str) -> bool:
    """Whether a text is an interval above zero. Raises as `look`."""
    return await _holds(database, sql.SQL("SELECT %s::interval > interval '0'"), [value])


async def _holds(database: Database, query: sql.SQL | sql.Composed, given: list[str]) -> bool:
    async with database.reading() as connection:
        await connection.execute(b"SAVEPOINT look")
        try:
            row = await (await connection.execute(query, given)).fetchone()
        except psycopg.DataError:
            await connection.execute(b"ROLLBACK TO SAVEPOINT look")
            return False
    return bool(row and row[0])


def _verbatim(quoted: str) -> sql.SQL:
    """A name that the server has quoted already."""
    return sql.SQL(quoted)
