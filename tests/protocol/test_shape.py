"""What no run can show, since two clocks never meet to the microsecond: the statements agree where a lease ends."""

import re
from pathlib import Path

import pytest

from leasetop import statements

FILES = sorted(file.stem for file in (Path(statements.__file__).parents[1] / "sql").glob("*.sql"))
HOME = (Path(statements.__file__).parent / "profiles" / "payment_jobs.toml").read_text()


def compared(sql: str) -> set[str]:
    """How lease_until is compared anywhere in some SQL."""
    return set(re.findall(r"lease_until\s*(<=|>=|<|>)", statements.bind(sql).decode()))


@pytest.mark.parametrize("name", FILES)
def test_a_lease_is_live_up_to_and_including_its_end_in_every_statement(name: str) -> None:
    assert compared(statements.text(name)) <= {"<", ">="}


def test_the_screen_draws_the_same_line() -> None:
    assert compared(HOME) == {"<", ">="}


@pytest.mark.parametrize(
    "name",
    [
        *("claim", "claim_by_id", "heartbeat", "complete", "fail", "release", "sweep", "requeue"),
        *("discard", "park", "run_now", "release_parked", "undo_requeue"),
    ],
)
def test_no_lease_or_end_counts_from_the_start_of_a_transaction(name: str) -> None:
    assert "now()" not in statements.bind(statements.text(name)).decode()


@pytest.mark.parametrize("name", ["claim", "sweep", "heartbeat", "complete"])
def test_what_runs_all_the_time_waits_for_no_row(name: str) -> None:
    locks = re.findall(r"FOR UPDATE[^)\n]*", statements.bind(statements.text(name)).decode())
    assert locks
    assert all("SKIP LOCKED" in lock for lock in locks)


@pytest.mark.parametrize("name", ["claim", "claim_by_id", "sweep"])
def test_the_condition_is_stated_again_in_the_update(name: str) -> None:
    sql = statements.bind(statements.text(name)).decode()
    update = sql[sql.index("UPDATE payment_jobs") :]
    assert re.search(r"j\.status = 'Processing'\s+AND j\.lease_until < clock_timestamp\(\)", update)


def test_no_candidates_are_chosen_by_a_subquery_with_a_limit() -> None:
    for name in FILES:
        assert not re.search(r"IN\s*\(\s*SELECT[^()]*LIMIT", statements.bind(statements.text(name)).decode()), name
