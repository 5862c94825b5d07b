"""The command line: what it prints, and its exit status. Each command is run as a person runs it, as a process."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests import world

Leasetop = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as made:
        yield made


def run(*words: str, env: dict[str, str] | None = None, typed: str | None = None) -> "subprocess.CompletedProcess[str]":
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return subprocess.run(
        [sys.executable, "-m", "leasetop", *words],
        capture_output=True,
        text=True,
        env=clean | (env or {}),
        input=typed or "",
        timeout=60,
    )


@pytest.fixture
def leasetop(dsn: str) -> Leasetop:
    """`leasetop ...` on the test's database."""
    return lambda *words, **more: run(words[0], "--dsn", dsn, *words[1:], **more)


def one_line(done: "subprocess.CompletedProcess[str]") -> str:
    """The error, which is one line and no traceback."""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]


def test_status_as_json_maps_every_state_and_owner(leasetop: Leasetop, connection: psycopg.Connection) -> None:
    world.put(connection)
    world.held(connection, "a/1/x")
    world.held(connection, "a/1/x", lease_s=-5)
    shown = json.loads(leasetop("status", "--json").stdout)
    assert shown["states"] == {
        **{"pending": 1, "scheduled": 0, "processing": 1, "stuck": 1, "failed": 0, "completed": 0},
        **{"cancelled": 0, "other": 0},
    }
    assert shown["owners"] == {"a/1/x": 2}


def test_status_fits_one_screen(leasetop: Leasetop, connection: psycopg.Connection) -> None:
    for number in range(40):
        world.held(connection, f"a/{number}/x")
    done = leasetop("status")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) <= 30
    assert any(line.startswith("processing") and "40" in line for line in lines)


def test_list_as_json_is_an_object_a_line(leasetop: Leasetop, connection: psycopg.Connection) -> None:
    job = world.held(connection, "a/1/x", lease_s=-5)
    world.put(connection)
    lines = leasetop("list", "--state", "stuck", "--json").stdout.splitlines()
    assert len(lines) == 1
    shown = json.loads(lines[0])
    assert (shown["id"], shown["state"], shown["reason"], shown["owner"]) == (str(job), "stuck", "expired", "a/1/x")
    assert shown["attempts"] == 1
    assert -10 < shown["lease_remaining_s"] < -4


def test_a_state_that_does_not_exist_is_a_mistake_in_the_command(leasetop: Leasetop) -> None:
    done = leasetop("list", "--state", "lost")
    assert done.returncode == 2
    assert "'lost' is none of stuck, processing" in done.stderr


def test_a_dry_sweep_changes_nothing(leasetop: Leasetop, connection: psycopg.Connection) -> None:
    job = world.held(connection, lease_s=-5)
    done = leasetop("sweep", "--dry-run")
    assert "1 expired lease would be swept" in done.stdout
    assert world.row(connection, job)[0] == "Processing"


def test_a_sweep_says_what_it_did(leasetop: Leasetop, connection: psycopg.Connection) -> None:
    world.held(connection, lease_s=-5)
    world.held(connection, lease_s=-5, attempts=5)
    done = leasetop("sweep")
    assert done.returncode == 0
    assert done.stdout.strip() == "2 expired leases swept: 1 Failed, 1 Pending"


def test_requeue_without_a_terminal_needs_yes(leasetop: Leasetop, connection: psycopg.Connection) -> None:
    job = world.held(connection, lease_s=-5)
    done = leasetop("requeue", str(job), "--reason", "x")
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert world.row(connection, job)[0] == "Processing"


def test_a_partly_refused_requeue_exits_with_1_and_does_the_rest(
    leasetop: Leasetop, connection: psycopg.Connection
) -> None:
    dead, live = world.held(connection, lease_s=-5), world.held(connection, "a/1/x")
    done = leasetop("requeue", str(dead), str(live), "999", "--reason", "pod died", "--yes")
    assert done.returncode == 1
    assert f"job {dead}: requeued" in done.stdout
    assert f"job {live}: a/1/x holds its lease for another" in done.stderr
    assert "job 999: there is none" in done.stderr
    assert world.row(connection, dead)[0] == "Pending"
    assert world.row(connection, live)[0] == "Processing"


@pytest.fixture
def aged(connection: psycopg.Connection, tmp_path: Path) -> Path:
    """A profile of a table that says only since when its jobs are held; a trigger forbids to write one of them."""
    connection.execute(b"CREATE TABLE tasks (id int PRIMARY KEY, status text, worker text, locked_at timestamptz)")
    connection.execute(
        b"INSERT INTO tasks SELECT n, 'running', 'w', now() - interval '1 day' FROM generate_series(1, 3) n"
    )
    connection.execute(b"INSERT INTO tasks VALUES (4, 'pending', NULL, NULL)")
    connection.execute(
        b"""CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN IF OLD.id = 2 THEN RAISE 'job 2 is under legal hold'; END IF; RETURN NEW; END $$"""
    )
    connection.execute(b"CREATE TRIGGER no BEFORE UPDATE ON tasks FOR EACH ROW EXECUTE FUNCTION no()")
    file = tmp_path / "tasks.toml"
    words = ["profile", "--dsn", connection.info.dsn, "--table", "tasks", "--set", "lease=locked_at + 4 hours"]
    assert run(*words, "--output", str(file)).returncode == 0
    return file


def test_where_age_is_all_the_evidence_one_must_be_sure(leasetop: Leasetop, aged: Path) -> None:
    words = ["requeue", "1", "--profile", str(aged), "--reason", "x", "--yes"]
    unsure = leasetop(*words)
    assert unsure.returncode == 1
    assert "nothing but its age says so; then say --sure" in one_line(unsure)
    assert "job 1: requeued" in leasetop(*words, "--sure").stdout
    swept = leasetop("sweep", "--profile", str(aged))
    assert swept.returncode == 1
    assert "say --sure" in one_line(swept)
    assert len(leasetop("sweep", "--profile", str(aged), "--dry-run").stdout.splitlines()) == 4


def test_one_job_that_the_server_refuses_does_not_keep_the_others(leasetop: Leasetop, aged: Path) -> None:
    done = leasetop("requeue", "1", "2", "3", "--profile", str(aged), "--reason", "x", "--yes", "--sure")
    assert done.returncode == 1
    assert [line[:15] for line in done.stdout.splitlines()] == ["job 1: requeued", "job 3: requeued"]
    assert "job 2: job 2 is under legal hold" in one_line(done)


def test_a_sweep_that_may_end_nothing_says_what_is_left(leasetop: Leasetop, connection: psycopg.Connection) -> None:
    world.held(connection, lease_s=-5)
    with psycopg.connect(connection.info.dsn) as other:
        other.execute(b"SELECT FROM payment_jobs FOR UPDATE")
        done = leasetop("sweep")
    assert "nothing was changed: 1 expired lease left, locked by others, not this role's to write" in done.stdout


def test_an_empty_reason_is_refused(leasetop: Leasetop) -> None:
    assert leasetop("requeue", "1", "--reason", "  ", "--yes").returncode == 2


def test_the_same_payment_is_not_enqueued_twice(leasetop: Leasetop) -> None:
    words = ["enqueue", "--amount", "12.30", "--currency", "EUR", "--key", "order-1"]
    assert leasetop(*words).returncode == 0
    again = leasetop(*words)
    assert again.returncode == 1
    assert "order-1: refused" in one_line(again)


@pytest.mark.parametrize(
    ("option", "value"),
    [("--amount", "-1"), ("--amount", "NaN"), ("--currency", "euro"), ("--payload", "{"), ("--max-attempts", "0")],
)
def test_a_payment_that_is_none_is_a_mistake_in_the_command(leasetop: Leasetop, option: str, value: str) -> None:
    words = {"--amount": "1", "--currency": "EUR"} | {option: value}
    done = leasetop("enqueue", *(word for pair in words.items() for word in pair))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_init_makes_the_table_once(blank_dsn: str) -> None:
    assert "made" in run("init", "--dsn", blank_dsn).stdout
    assert "there already" in run("init", "--dsn", blank_dsn).stdout


def test_init_refuses_a_table_that_is_not_ours(blank_dsn: str) -> None:
    with psycopg.connect(blank_dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE payment_jobs (id int, status text)")
        done = run("init", "--dsn", blank_dsn)
        assert done.returncode == 1
        assert "is not leasetop's" in one_line(done)
        assert connection.execute("SELECT to_regclass('payment_job_history')").fetchone() == (None,)


def test_init_prints_the_schema() -> None:
    assert "CREATE TABLE IF NOT EXISTS payment_jobs" in run("init", "--print").stdout


def test_a_dsn_before_the_command_counts(dsn: str) -> None:
    assert run("--dsn", dsn, "status").returncode == 0


@pytest.mark.parametrize(
    "dsn", ["postgresql//u:secret@h/db", "host=db1 password=secret nonsense", "postgresql://u:secret@h:x/d"]
)
def test_a_dsn_that_is_none_exits_with_2_and_never_shows_the_password(dsn: str) -> None:
    done = run("status", "--dsn", dsn)
    assert done.returncode in (1, 2)
    assert "secret" not in one_line(done)


def test_no_server_is_one_line_with_what_to_do(tmp_path: object) -> None:
    done = run("status", "--dsn", f"host={tmp_path} dbname=x user=y")
    assert done.returncode == 1
    assert "no connection to PostgreSQL" in one_line(done)


def test_without_a_dsn_the_line_names_the_demo(tmp_path: object) -> None:
    done = run("status", env={"PGHOST": str(tmp_path)})
    assert done.returncode == 1
    assert "leasetop demo" in one_line(done)


def test_libpqs_environment_counts(dsn: str) -> None:
    given = psycopg.conninfo.conninfo_to_dict(dsn)
    env = {"PGHOST": str(given["host"]), "PGDATABASE": str(given["dbname"]), "PGUSER": str(given["user"])}
    assert run("status", env=env).returncode == 0


def test_a_database_that_does_not_exist_is_said(dsn: str) -> None:
    done = run("status", "--dsn", psycopg.conninfo.make_conninfo(dsn, dbname="nowhere"))
    assert done.returncode == 1
    assert 'database "nowhere" does not exist' in one_line(done)


def test_a_database_without_our_table_says_what_was_looked_for(blank_dsn: str) -> None:
    done = run("status", "--dsn", blank_dsn)
    assert done.returncode == 1
    assert "payment_jobs" in one_line(done)
    assert "leasetop init" in one_line(done)


def test_the_screen_without_a_terminal_offers_status(dsn: str) -> None:
    done = run("--dsn", dsn)
    assert done.returncode == 1
    assert "leasetop status" in one_line(done)


@pytest.mark.parametrize("handler", ["nonsense", "leasetop.nothing:pay", "leasetop.text:nothing"])
def test_a_handler_that_is_none_is_said(leasetop: Leasetop, handler: str) -> None:
    done = leasetop("worker", "--handler", handler)
    assert done.returncode == 2
    assert handler in one_line(done)


@pytest.mark.parametrize("words", [["--ttl", "0"], ["--ttl", "nan"], ["--heartbeat", "-1"], ["--concurrency", "0"]])
def test_a_worker_that_cannot_be_is_a_mistake_in_the_command(leasetop: Leasetop, words: list[str]) -> None:
    done = leasetop("worker", *words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_roles_make_the_history_append_only_and_let_each_do_its_work(dsn: str, connection: psycopg.Connection) -> None:
    dead, live = world.held(connection, lease_s=-5), world.held(connection)
    for _ in range(2):
        assert run("init", "--roles", "--dsn", dsn).returncode == 0
    for role in ("viewer", "operator", "worker"):
        connection.execute(f"DROP ROLE IF EXISTS test_{role}")
        connection.execute(f"CREATE ROLE test_{role} LOGIN IN ROLE leasetop_{role}")
    as_role = {
        role: psycopg.conninfo.make_conninfo(dsn, user=f"test_{role}") for role in ("viewer", "operator", "worker")
    }
    try:
        assert run("status", "--dsn", as_role["viewer"]).returncode == 0
        words = ["requeue", str(dead), "--reason", "x", "--yes", "--dsn"]
        assert "no privilege" in one_line(run(*words, as_role["viewer"]))
        assert run(*words, as_role["operator"]).returncode == 0
        assert run("sweep", "--dsn", as_role["worker"]).returncode == 0
        for dsn_of in as_role.values():
            with psycopg.connect(dsn_of) as one, pytest.raises(psycopg.errors.InsufficientPrivilege):
                one.execute("DELETE FROM payment_job_history")
            with psycopg.connect(dsn_of) as one, pytest.raises(psycopg.errors.InsufficientPrivilege):
                one.execute("UPDATE payment_job_history SET event = 'completed'")
    finally:
        for role in as_role:
            connection.execute(f"DROP ROLE test_{role}")
    assert world.row(connection, live)[0] == "Processing"


def test_a_table_of_ones_own_is_profiled_and_then_used(blank_dsn: str, tmp_path: Path) -> None:
    cases = Path(__file__).parent / "cases"
    with psycopg.connect(blank_dsn, autocommit=True) as connection:
        connection.execute((cases / "smallint_uuid.sql").read_bytes())
    words = ["profile", "--dsn", blank_dsn, "--table", "billing.charge_queue"]
    asked = run(*words)
    assert asked.returncode == 1
    assert "--set pending=VALUE" in one_line(asked)
    file = tmp_path / "charges.toml"
    states = [word for pair in ("pending=0", "processing=1", "completed=2", "failed=9") for word in ("--set", pair)]
    done = run(*words, *states, "--output", str(file))
    assert done.returncode == 0, done.stderr
    assert "note: status 7 is not in the profile: 1 job" in done.stderr
    shown = json.loads(run("status", "--dsn", blank_dsn, "--profile", str(file), "--json").stdout)
    assert (shown["states"]["stuck"], shown["states"]["other"]) == (2, 1)
    assert run(*words, *states, "--output", str(file)).returncode == 2


def test_a_plain_table_is_listed_by_its_name(blank_dsn: str) -> None:
    with psycopg.connect(blank_dsn, autocommit=True) as connection:
        connection.execute((Path(__file__).parent / "cases" / "mixed_case_enum.sql").read_bytes())
    done = run("list", "--dsn", blank_dsn, "--table", "Pay.PaymentJobs", "--state", "stuck", "--json")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["3000000003"]


def test_payments_are_enqueued_into_the_home_table_only(blank_dsn: str) -> None:
    with psycopg.connect(blank_dsn, autocommit=True) as connection:
        connection.execute((Path(__file__).parent / "cases" / "plain_payment_jobs.sql").read_bytes())
    done = run("enqueue", "--dsn", blank_dsn, "--amount", "1", "--currency", "EUR")
    assert done.returncode == 1
    assert "cannot enqueue" in one_line(done)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["enqueue", "--amount", "1", "--currency", "EUR", "--delay", "nan"], 2),
        (["enqueue", "--amount", "1", "--currency", "EUR", "--delay", "1e20"], 2),
        (["enqueue", "--amount", "1", "--currency", "EUR", "--payload", "[" * 5000], 2),
        (["worker", "--ttl", "5", "--heartbeat", "4"], 2),
        (["worker", "--name", "a/b"], 2),
        (["status", "--dsn", "host=x connect_timeout=abc"], 1),
        (["status", "--dsn", "postgresql://ops:pa@Secret99@127.0.0.1:1/x"], 2),
    ],
)
def test_wrong_input_is_said_without_a_traceback(dsn: str, words: list[str], status: int) -> None:
    done = run(*words, *([] if "--dsn" in words else ["--dsn", dsn]))
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert "Secret99" not in done.stderr
