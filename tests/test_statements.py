"""Parameters are found where they are meant, and nowhere else."""

import psycopg
import pytest

from leasetop import statements
from leasetop.statements import bind, parameters


@pytest.mark.parametrize(
    ("sql", "bound"),
    [
        ("SELECT :id::bigint", "SELECT %(id)s::bigint"),
        ("SELECT ':id', \":id\", x::text", "SELECT ':id', \":id\", x::text"),
        ("SELECT 'it''s :id' || :id", "SELECT 'it''s :id' || %(id)s"),
        ("SELECT $$ :id $$, $q$ :id $q$", "SELECT $$ :id $$, $q$ :id $q$"),
        ("SELECT 1 -- :id\n, :id", "SELECT 1 \n, %(id)s"),
        ("SELECT 1 /* :id */ , :id", "SELECT 1  , %(id)s"),
        ("SELECT 'a%' LIKE :x", "SELECT 'a%%' LIKE %(x)s"),
        ("SELECT 5 % 2", "SELECT 5 %% 2"),
    ],
)
def test_only_real_parameters_are_bound(sql: str, bound: str) -> None:
    assert bind(sql).decode() == bound


def test_parameters_of_a_statement_are_named() -> None:
    assert parameters("SELECT :a, ':b', c::d, :e::int -- :f") == {"a", "e"}


def test_a_missing_statement_names_its_file() -> None:
    with pytest.raises(FileNotFoundError, match=r"sql/nothing\.sql"):
        statements.text("nothing")


def test_every_column_and_table_of_the_schema_has_a_comment(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        bare = connection.execute(
            """SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
                WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND a.attnum > 0
                  AND (col_description(c.oid, a.attnum) IS NULL OR obj_description(c.oid) IS NULL)"""
        ).fetchall()
    assert bare == []
