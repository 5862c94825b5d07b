"""The doctor: what it finds on a queue that is well, and on ones that are not."""

import json

import psycopg
import pytest
from click.testing import CliRunner

from leasetop.cli import main
from tests import world


def findings(*words: str) -> tuple[int, dict[str, tuple[str, str]]]:
    done = CliRunner().invoke(main, ["doctor", "--json", *words])
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return done.exit_code, {line["what"]: (line["grade"], line["said"]) for line in lines}


def test_a_healthy_home_table_has_nothing_bad(dsn: str) -> None:
    status, found = findings("--dsn", dsn)
    assert status == 0
    assert found["requeue"] == ("ok", "this role may do it")
    assert found["indexes"][0] == "ok"
    assert found["watcher"] == ("warn", "none")


def test_an_odd_row_is_bad(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        world.put(connection, "Processing", owner="w", attempts=1)
    status, found = findings("--dsn", dsn)
    assert status == 1
    assert found["held without a lease"][0] == "bad"


def test_a_missing_privilege_and_row_security_are_told(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE ROLE onlooker")
        try:
            connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO onlooker")
            connection.execute("ALTER TABLE payment_jobs ENABLE ROW LEVEL SECURITY")
            status, found = findings("--dsn", f"{dsn} options='-c role=onlooker'")
            assert status == 1
            assert found["requeue"][0] == "bad" and "no privilege" in found["requeue"][1]
            assert found["row security"][0] == "bad"
        finally:
            connection.execute("DROP OWNED BY onlooker")
            connection.execute("DROP ROLE onlooker")


@pytest.mark.parametrize("indexed", [False, True])
def test_a_large_table_that_is_read_whole_wants_an_index(blank_dsn: str, indexed: bool) -> None:
    with psycopg.connect(blank_dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE tasks (id int PRIMARY KEY, status text, owner text, lease_until timestamptz)")
        connection.execute("INSERT INTO tasks SELECT n, 'done' FROM generate_series(1, 60000) n")
        connection.execute("INSERT INTO tasks VALUES (60001, 'pending', NULL, NULL), (60002, 'running', 'w', now())")
        if indexed:
            connection.execute("CREATE INDEX ON tasks (status)")
        connection.execute("ANALYZE tasks")
    _, found = findings("--dsn", blank_dsn, "--table", "tasks")
    assert ("index for pending" in found) is not indexed
