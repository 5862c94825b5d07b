"""The watcher: sweeps again and again, says that it lives, and outlives the server."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from leasetop import schema
from leasetop.demo.postgres import EmbeddedPostgres
from leasetop.errors import LeasetopError
from leasetop.model import Policy
from leasetop.session import SettingsError
from leasetop.watcher import Watcher, sweep
from tests import world
from tests.conftest import SETTINGS
from tests.waiting import until
from tests.workers import Events, running

QUICK = timedelta(milliseconds=100)


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as made:
        yield made


def watching(connection: psycopg.Connection) -> list[tuple[object, ...]]:
    return connection.execute("SELECT name, policy, swept FROM leasetop_watchers").fetchall()


def test_it_sweeps_and_says_so_in_a_row_of_its_own(dsn: str, connection: psycopg.Connection) -> None:
    job, events = world.held(connection, lease_s=-5), Events()
    with running(made := Watcher(dsn, interval=QUICK, observer=events)):
        until(lambda: world.row(connection, job)[0] == "Pending")
        events.wait("swept", times=2)
        assert watching(connection) == [(made.name, "requeue", 1)]
    assert watching(connection) == []


def test_an_expired_lease_is_parked_where_the_policy_says_so(dsn: str, connection: psycopg.Connection) -> None:
    job = world.held(connection, lease_s=-5)
    with running(Watcher(dsn, interval=QUICK, policy=Policy.PARK)):
        until(lambda: world.row(connection, job)[0] == "Stuck")


def test_many_watchers_at_once_end_each_lease_once(dsn: str, connection: psycopg.Connection) -> None:
    jobs = [world.held(connection, lease_s=-5) for _ in range(200)]
    with running(*(Watcher(dsn, interval=QUICK, batch=7) for _ in range(5))):
        until(lambda: all(world.row(connection, job)[0] == "Pending" for job in jobs))
    assert all(world.events(connection, job) == ["expired"] for job in jobs)


def test_a_sweep_is_one_transaction_a_batch(connection: psycopg.Connection) -> None:
    for _ in range(7):
        world.held(connection, lease_s=-5)
    assert len(sweep(connection, Policy.REQUEUE, "w", batch=3)) == 7
    batches = connection.execute("SELECT count(DISTINCT xmin::text) FROM payment_job_history").fetchone()
    assert batches == (3,)


def test_it_stops_after_the_batch_that_runs(connection: psycopg.Connection) -> None:
    for _ in range(7):
        world.held(connection, lease_s=-5)
    assert len(sweep(connection, Policy.REQUEUE, "w", batch=3, stop=lambda: True)) == 3


def test_it_outlives_a_restart_of_the_server(short_directory: Path) -> None:
    with EmbeddedPostgres(short_directory / "watched", SETTINGS | {"synchronous_commit": "on"}) as server:
        with psycopg.connect(server.dsn()) as connection:
            schema.apply(connection)
        events = Events()
        with running(Watcher(server.dsn(), interval=QUICK, observer=events)):
            events.wait("swept")
            server.restart(immediate=True)
            events.wait("outage")
            events.wait("swept", times=events.count("swept") + 1)
            with psycopg.connect(server.dsn(), autocommit=True) as connection:
                job = world.held(connection, lease_s=-5)
                until(lambda: world.row(connection, job)[0] == "Pending")


def test_a_database_without_the_table_is_said_at_once(blank_dsn: str) -> None:
    with pytest.raises(LeasetopError, match="leasetop init"):
        Watcher(blank_dsn, interval=QUICK).run()


def test_an_interval_that_cannot_be_is_refused(dsn: str) -> None:
    with pytest.raises(SettingsError, match="interval"):
        Watcher(dsn, interval=timedelta(0))


def test_the_command_logs_a_json_object_a_line_and_ends_on_sigterm(dsn: str, connection: psycopg.Connection) -> None:
    job = world.held(connection, lease_s=-5)
    words = ["watch", "--dsn", dsn, "--interval", "0.1", "--json"]
    process = subprocess.Popen([sys.executable, "-m", "leasetop", *words], stderr=subprocess.PIPE, text=True)
    until(lambda: world.row(connection, job)[0] == "Pending" and watching(connection))
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=15)
    assert process.returncode == 0
    facts = [json.loads(line) for line in log.splitlines()]
    assert [fact["event"] for fact in facts] == ["started", "swept", "stopped"]
    assert facts[1]["job"] == job
    assert watching(connection) == []
