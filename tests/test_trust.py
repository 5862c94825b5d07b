"""A profile of the operator's own is SQL that leasetop runs: nobody runs it unseen."""

from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from leasetop import profile, trust
from leasetop.cli import main

_TABLE = """CREATE TABLE tasks (id bigint PRIMARY KEY, status text, owner text, lease_until timestamptz, attempts int);
INSERT INTO tasks VALUES (1, 'pending', NULL, NULL, 0), (2, 'running', 'w', now() - interval '1 hour', 1)"""


@pytest.fixture
def file(blank_dsn: str, tmp_path: Path) -> Path:
    with psycopg.connect(blank_dsn, autocommit=True) as connection:
        connection.execute(_TABLE.encode())
    made = tmp_path / "tasks.toml"
    done = CliRunner().invoke(main, ["profile", "--dsn", blank_dsn, "--table", "tasks", "--output", str(made)])
    assert done.exit_code == 0, done.output
    return made


def test_what_leasetop_wrote_itself_is_used_at_once(blank_dsn: str, file: Path) -> None:
    done = CliRunner().invoke(main, ["status", "--dsn", blank_dsn, "--profile", str(file)])
    assert done.exit_code == 0, done.output
    assert "stuck               1" in done.output


def test_a_changed_profile_is_refused_until_somebody_has_looked(blank_dsn: str, file: Path) -> None:
    file.write_text(file.read_text() + "\n# changed\n")
    command = ["status", "--dsn", blank_dsn, "--profile", str(file)]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 1
    assert f"leasetop profile --trust {file}" in done.output
    assert CliRunner().invoke(main, ["profile", "--trust", str(file)]).exit_code == 0
    assert CliRunner().invoke(main, command).exit_code == 0
    assert trust.file().stat().st_mode & 0o777 == 0o600


def test_nonsense_is_not_trusted(tmp_path: Path) -> None:
    file = tmp_path / "nonsense.toml"
    file.write_text("id = 'x'")
    done = CliRunner().invoke(main, ["profile", "--trust", str(file)])
    assert done.exit_code == 1
    assert "evidence is missing" in done.output
    assert not trust.is_trusted(file)


def test_every_shipped_profile_says_how_far_it_is_proven() -> None:
    for shipped in profile.shipped():
        assert shipped.label in ("verified-live", "verified-schema", "read-only")
        assert shipped.detect is not None
        if shipped.label == "read-only":
            assert not any(action.sql for action in shipped.actions.values())
