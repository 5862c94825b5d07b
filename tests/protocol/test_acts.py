"""The operator's further acts: discard, park, run now, release what is parked, undo a requeue. Only as it was seen."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.rows import dict_row

from leasetop import profile, schema, statements
from tests import world
from tests.protocol import test_history as history
from tests.protocol.conftest import Connect
from tests.protocol.statement import (
    Rows,
    act,
    claim,
    complete,
    expire,
    fail,
    fence,
    heartbeat,
    release,
    requeue,
    sweep,
    undo_requeue,
)
from tests.waiting import until

OWNER = "w/1/a"
Put = Callable[[psycopg.Connection], int]
Columns = dict[str, Any]

EVENTS = {
    "discard": "discarded",
    "park": "parked",
    "run_now": "run now",
    "release_parked": "released by an operator",
    "undo_requeue": "requeue undone",
}

# A job in each shown state. All but the first wait for a time to come, so that the status alone decides.
STATES: dict[str, Put] = {
    "pending": lambda c: world.put(c, attempts=1, stage="capture", error="timeout"),
    "scheduled": lambda c: world.put(c, attempts=1, delay_s=600, stage="capture", error="timeout"),
    "processing": lambda c: world.held(c, OWNER, delay_s=600, stage="capture", error="timeout"),
    "expired": lambda c: world.held(c, OWNER, lease_s=-5, delay_s=600, stage="capture", error="timeout"),
    "no lease": lambda c: world.put(
        c, "Processing", owner=OWNER, attempts=1, delay_s=600, stage="capture", error="timeout"
    ),
    "parked": lambda c: world.put(c, "Stuck", attempts=1, delay_s=600, stage="capture", error="timeout"),
    "failed": lambda c: world.put(c, "Failed", attempts=1, delay_s=600, stage="capture", error="timeout"),
    "completed": lambda c: world.put(c, "Completed", attempts=1, delay_s=600, stage="settle"),
    "cancelled": lambda c: world.put(c, "Cancelled", attempts=1, delay_s=600, stage="capture"),
}

NOW = object()
NO_LEASE: Columns = {"lease_owner": None, "lease_until": None, "lease_ttl": None, "claimed_at": None}
DISCARDED: Columns = {"status": "Cancelled", "finished_at": NOW, **NO_LEASE}
PARKED: Columns = {"status": "Stuck", "finished_at": None, **NO_LEASE}

# What each act makes of the states from which it is allowed. From all others it is refused.
ALLOWED: dict[str, dict[str, Columns]] = {
    "discard": dict.fromkeys(["pending", "scheduled", "expired", "no lease", "parked", "failed"], DISCARDED),
    "park": dict.fromkeys(["pending", "scheduled", "expired", "no lease", "failed"], PARKED),
    "run_now": {"scheduled": {"run_after": NOW}},
    "release_parked": {"parked": {"status": "Pending", "run_after": NOW}},
    # Where the history knows of a requeue: see requeued_before.
    "undo_requeue": {"pending": {"status": "Stuck"}, "scheduled": {"status": "Stuck"}},
}
POSSIBLE = [(name, state) for name, states in ALLOWED.items() for state in states]
REFUSED = [(name, state) for name in ALLOWED for state in STATES if state not in ALLOWED[name]]


def perform(connection: psycopg.Connection, name: str, job: int, seen: str | None = None) -> Rows:
    """Any of the acts."""
    if name == "undo_requeue":
        return undo_requeue(connection, job, "Stuck", seen=seen)
    return act(connection, name, job, seen)


def put(connection: psycopg.Connection, name: str, state: str) -> int:
    """A job in a state, and whatever else that act needs to be possible."""
    job = STATES[state](connection)
    if name == "undo_requeue":
        requeued_before(connection, job)
    return job


def requeued_before(connection: psycopg.Connection, job: int, status: str = "Stuck") -> None:
    """The history knows of a requeue in the current attempt; the row is left as it is."""
    connection.execute(
        "INSERT INTO payment_job_history (job_id, event, attempt, seen) "
        "SELECT id, 'requeued', attempts, jsonb_build_object('status', %s::text) FROM payment_jobs WHERE id = %s",
        [status, job],
    )


def whole(connection: psycopg.Connection, job: int) -> Columns:
    """Every column of one job."""
    with connection.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute("SELECT * FROM payment_jobs WHERE id = %s", [job]).fetchone()
    assert found is not None
    return found


def all_history(connection: psycopg.Connection) -> Rows:
    return connection.execute("SELECT payment_job_history::text FROM payment_job_history ORDER BY id").fetchall()


def server_time(connection: psycopg.Connection) -> datetime:
    ((now,),) = connection.execute("SELECT clock_timestamp()").fetchall()
    assert isinstance(now, datetime)
    return now


# From every state.


@pytest.mark.parametrize(("name", "state"), POSSIBLE)
def test_an_act_changes_what_it_says_and_nothing_else(connection: psycopg.Connection, name: str, state: str) -> None:
    job, twin = put(connection, name, state), put(connection, name, state)
    connection.execute(
        "UPDATE payment_jobs t SET run_after = j.run_after, lease_until = j.lease_until "
        "FROM payment_jobs j WHERE j.id = %s AND t.id = %s",
        [job, twin],
    )
    before, other = whole(connection, job), whole(connection, twin)
    began = server_time(connection)
    assert perform(connection, name, job) == [(job, ALLOWED[name][state].get("status", before["status"]), 1, 5)]
    after = whole(connection, job)
    changed = {column: after[column] for column in after if after[column] != before[column]}
    expected = {column: value for column, value in ALLOWED[name][state].items() if before[column] != value}
    for column in [column for column, value in expected.items() if value is NOW]:
        assert began <= after[column] <= server_time(connection)
        expected[column] = after[column]
    assert changed == expected
    assert whole(connection, twin) == other


@pytest.mark.parametrize(("name", "state"), REFUSED)
def test_from_any_other_state_it_is_refused(connection: psycopg.Connection, name: str, state: str) -> None:
    job = put(connection, name, state)
    before, history = whole(connection, job), all_history(connection)
    assert perform(connection, name, job) == []
    assert (whole(connection, job), all_history(connection)) == (before, history)


@pytest.mark.parametrize("name", EVENTS)
def test_a_status_that_nobody_knows_is_left_alone(connection: psycopg.Connection, name: str) -> None:
    with connection.transaction(force_rollback=True):
        connection.execute("ALTER TABLE payment_jobs DROP CONSTRAINT payment_jobs_known_status")
        job = put(connection, name, "scheduled")
        connection.execute("UPDATE payment_jobs SET status = 'Paused' WHERE id = %s", [job])
        assert perform(connection, name, job) == []
        assert whole(connection, job)["status"] == "Paused"


# What they saw.

UNSEEN = {
    "discard": ("expired", "status = 'Stuck'"),
    "park": ("expired", "status = 'Failed'"),
    "run_now": ("scheduled", "status = 'Stuck'"),
    "release_parked": ("parked", "status = 'Failed'"),
    "undo_requeue": ("pending", "status = 'Failed'"),
}
LEASE = [
    "lease_owner = 'another'",
    "attempts = attempts + 1",
    "lease_until = coalesce(lease_until, clock_timestamp()) - interval '1 microsecond'",
]


@pytest.mark.parametrize(
    ("name", "state", "change"),
    [
        *((name, state, change) for name, (state, status) in UNSEEN.items() for change in [status, *LEASE]),
        *((name, "expired", "lease_until = NULL") for name in ("discard", "park")),
    ],
)
def test_a_job_that_is_not_as_it_was_seen_is_left_alone(
    connection: psycopg.Connection, name: str, state: str, change: str
) -> None:
    job = put(connection, name, state)
    seen = fence(connection, job)
    connection.execute(f"UPDATE payment_jobs SET {change} WHERE id = %s".encode(), [job])
    if name == "undo_requeue":
        requeued_before(connection, job)
    before, history = whole(connection, job), all_history(connection)
    assert perform(connection, name, job, seen) == []
    assert (whole(connection, job), all_history(connection)) == (before, history)


@pytest.mark.parametrize(("name", "state"), POSSIBLE)
def test_the_same_screen_acts_once(connection: psycopg.Connection, name: str, state: str) -> None:
    job = put(connection, name, state)
    seen = fence(connection, job)
    assert perform(connection, name, job, seen) != []
    before = whole(connection, job)
    assert perform(connection, name, job, seen) == []
    assert whole(connection, job) == before
    assert world.events(connection, job).count(EVENTS[name]) == 1


# The trace.


@pytest.mark.parametrize(("name", "state"), POSSIBLE)
def test_who_why_and_what_they_saw_is_in_the_history(connection: psycopg.Connection, name: str, state: str) -> None:
    job = put(connection, name, state)
    before, earlier = whole(connection, job), len(all_history(connection))
    perform(connection, name, job)
    with connection.cursor(row_factory=dict_row) as cursor:
        *ends, last = cursor.execute("SELECT * FROM payment_job_history ORDER BY id OFFSET %s", [earlier]).fetchall()
    about = {"job_id": job, "attempt": 1, "owner": before["lease_owner"], "stage": "capture", "actor": "ops@box"}
    words = "the wrong job" if name == "undo_requeue" else "the customer asked"
    assert last.items() >= {**about, "event": EVENTS[name], "reason": words, "error": None, "started_at": None}.items()
    seen = last["seen"]
    for column in ("lease_until", "run_after"):
        written = seen.pop(column)
        assert (written and datetime.fromisoformat(written)) == before[column]
    assert seen.pop("max_attempts", None) == (5 if name == "undo_requeue" else None)
    status = before["status"]
    assert seen == {
        "status": status,
        "owner": before["lease_owner"],
        "attempt": 1,
        "stage": "capture",
        "error": "timeout",
    }
    # An attempt that was open has its end, before the act.
    assert [end["event"] for end in ends] == {"expired": ["expired"], "no lease": ["revoked"]}.get(state, [])
    for end in ends:
        why = f"{EVENTS[name]} by an operator"
        assert end.items() >= {**about, "reason": why, "seen": None, "started_at": before["claimed_at"]}.items()


@pytest.mark.parametrize(("name", "state"), POSSIBLE)
def test_a_long_error_is_cut_in_the_history(connection: psycopg.Connection, name: str, state: str) -> None:
    job = put(connection, name, state)
    connection.execute("UPDATE payment_jobs SET last_error = repeat('x', 9000)")
    perform(connection, name, job)
    last = connection.execute("SELECT length(seen ->> 'error') FROM payment_job_history ORDER BY id DESC LIMIT 1")
    assert last.fetchone() == (500,)


# What each is for.


@pytest.mark.parametrize("name", ["discard", "park"])
def test_whoever_still_works_at_it_cannot_finish_it(connection: psycopg.Connection, name: str) -> None:
    job = world.held(connection, OWNER, lease_s=-5)
    act(connection, name, job)
    before = whole(connection, job)
    assert heartbeat(connection, [(job, 1)]) == [(job, 1, False, False)]
    assert complete(connection, [(job, 1)]) == [(job, 1, "refused")]
    assert (fail(connection, (job, 1)), release(connection, [(job, 1)])) == ([], [])
    assert whole(connection, job) == before
    assert world.events(connection, job) == ["expired", EVENTS[name], "late completion refused"]


@pytest.mark.parametrize("name", ["discard", "park"])
@pytest.mark.parametrize("state", ["pending", "expired"])
def test_what_is_discarded_or_parked_is_claimed_and_swept_by_nobody(
    connection: psycopg.Connection, name: str, state: str
) -> None:
    job = put(connection, name, state)
    act(connection, name, job)
    assert (claim(connection), sweep(connection)) == ([], [])


def test_what_is_run_now_is_claimed_at_once(connection: psycopg.Connection) -> None:
    job = world.put(connection, attempts=1, delay_s=600)
    assert claim(connection) == []
    act(connection, "run_now", job)
    assert claim(connection) == [(job, 2)]


def test_what_is_released_is_claimed_at_once(connection: psycopg.Connection) -> None:
    job = world.held(connection, lease_s=-5)
    sweep(connection, "park")
    act(connection, "release_parked", job)
    assert claim(connection) == [(job, 2)]
    assert world.events(connection, job) == ["expired", "released by an operator"]


def test_used_up_attempts_are_not_released_but_requeued(connection: psycopg.Connection) -> None:
    job = world.put(connection, "Stuck", attempts=5, max_attempts=5)
    before = whole(connection, job)
    assert act(connection, "release_parked", job) == []
    assert (whole(connection, job), world.events(connection, job)) == (before, [])
    assert requeue(connection, job) == [(job, "Pending", 5, 6)]


def test_the_last_attempt_is_released(connection: psycopg.Connection) -> None:
    job = world.put(connection, "Stuck", attempts=4, max_attempts=5)
    assert act(connection, "release_parked", job) == [(job, "Pending", 4, 5)]
    assert claim(connection) == [(job, 5)]


def test_a_lease_s_remains_do_not_outlive_an_act(connection: psycopg.Connection) -> None:
    """Only a writer from outside the protocol leaves them."""
    for name, status in (("discard", "Failed"), ("park", "Failed"), ("release_parked", "Stuck")):
        job = world.put(connection, status, owner=OWNER, lease_s=20, attempts=1)
        connection.execute("UPDATE payment_jobs SET lease_ttl = '30 s', claimed_at = now() WHERE id = %s", [job])
        assert act(connection, name, job) != []
        assert whole(connection, job).items() >= NO_LEASE.items()


# Undo.


@pytest.mark.parametrize(
    ("state", "back"),
    [
        ("parked", "Stuck"),
        ("failed", "Failed"),
        ("expired", "Stuck"),
        ("no lease", "Stuck"),
        # Taken by force: it is not given back.
        ("processing", "Stuck"),
    ],
)
@pytest.mark.parametrize(("attempts", "max_attempts"), [(1, 5), (5, 5), (6, 4)])
def test_a_requeue_is_taken_back(
    connection: psycopg.Connection, state: str, back: str, attempts: int, max_attempts: int
) -> None:
    job = STATES[state](connection)
    connection.execute("UPDATE payment_jobs SET attempts = %s, max_attempts = %s", [attempts, max_attempts])
    before = whole(connection, job)
    requeue(connection, job, force=state == "processing")
    requeued, earlier = whole(connection, job), world.events(connection, job)
    began = server_time(connection)
    undone = undo_requeue(connection, job, before["status"], max_attempts=max_attempts)
    assert undone == [(job, back, attempts, max_attempts)]
    after = whole(connection, job)
    finished = after.pop("finished_at")
    assert (finished is not None) == (back == "Failed")
    assert finished is None or began <= finished <= server_time(connection)
    expected = before | NO_LEASE | {"status": back, "run_after": requeued["run_after"]}
    expected.pop("finished_at")
    assert after == expected
    assert world.events(connection, job) == [*earlier, "requeue undone"]
    assert claim(connection) == []


def _claimed(connection: psycopg.Connection, job: int) -> None:
    assert claim(connection) == [(job, 2)]


def _given_back(connection: psycopg.Connection, job: int) -> None:
    _claimed(connection, job)
    assert release(connection, [(job, 2)]) == [job]


def _failed_back(connection: psycopg.Connection, job: int) -> None:
    _claimed(connection, job)
    assert fail(connection, (job, 2)) != []


def _completed(connection: psycopg.Connection, job: int) -> None:
    _claimed(connection, job)
    assert complete(connection, [(job, 2)]) == [(job, 2, "completed")]


def _parked_and_released(connection: psycopg.Connection, job: int) -> None:
    assert act(connection, "park", job) != []
    assert act(connection, "release_parked", job) != []


def _set(change: str) -> Callable[[psycopg.Connection, int], object]:
    return lambda c, job: c.execute(f"UPDATE payment_jobs SET {change} WHERE id = %s".encode(), [job])


TOUCHES: dict[str, Callable[[psycopg.Connection, int], object]] = {
    "claimed": _claimed,
    "claimed and given back": _given_back,
    "claimed and failed": _failed_back,
    "claimed and completed": _completed,
    "parked": lambda c, job: act(c, "park", job),
    "discarded": lambda c, job: act(c, "discard", job),
    # Its fence is again what the requeue left: the time tells.
    "parked and released": _parked_and_released,
    "delayed": _set("run_after = run_after + interval '1 microsecond'"),
    "granted more attempts": _set("max_attempts = max_attempts + 1"),
}


@pytest.mark.parametrize("touch", TOUCHES)
@pytest.mark.parametrize("again", [False, True], ids=["as left", "looked at again"])
def test_a_job_that_was_touched_since_stays_as_it_is(connection: psycopg.Connection, touch: str, again: bool) -> None:
    """`again`: with a fence that was read after the touch, so that the other guards stand alone."""
    job = world.put(connection, "Stuck", attempts=1)
    requeue(connection, job)
    seen, since = fence(connection, job), whole(connection, job)["run_after"]
    TOUCHES[touch](connection, job)
    before, history = whole(connection, job), all_history(connection)
    assert undo_requeue(connection, job, "Stuck", since=since, seen=None if again else seen) == []
    assert (whole(connection, job), all_history(connection)) == (before, history)


@pytest.mark.parametrize("max_attempts", [2, 4, 6])
def test_another_limit_than_that_from_before_is_refused(connection: psycopg.Connection, max_attempts: int) -> None:
    job = world.put(connection, "Stuck", attempts=1, max_attempts=5)
    requeue(connection, job)
    assert undo_requeue(connection, job, "Stuck", max_attempts=max_attempts) == []
    assert whole(connection, job).items() >= {"status": "Pending", "max_attempts": 5}.items()


@pytest.mark.parametrize("status", ["Completed", "Cancelled", "Pending", "nonsense", None])
def test_no_other_status_is_ever_set(connection: psycopg.Connection, status: str | None) -> None:
    job = STATES["pending"](connection)
    if status is not None:
        requeued_before(connection, job, status)
    assert undo_requeue(connection, job, status) == []
    assert whole(connection, job)["status"] == "Pending"


@pytest.mark.parametrize("status", ["Failed", "Processing"])
def test_a_status_that_the_requeue_did_not_see_is_refused(connection: psycopg.Connection, status: str) -> None:
    job = world.put(connection, "Stuck", attempts=1)
    requeue(connection, job)
    assert undo_requeue(connection, job, status) == []
    assert undo_requeue(connection, job, "Stuck") != []


@pytest.mark.parametrize("status", ["Stuck", "Failed", "Processing"])
def test_a_job_that_nobody_requeued_is_left_alone(connection: psycopg.Connection, status: str) -> None:
    job, other = world.put(connection), world.put(connection, status, attempts=0)
    requeue(connection, other)
    assert undo_requeue(connection, job, status) == []


def test_another_act_than_a_requeue_is_not_taken_back(connection: psycopg.Connection) -> None:
    job = world.put(connection, "Stuck", attempts=1)
    assert act(connection, "release_parked", job) != []
    assert undo_requeue(connection, job, "Stuck") == []


def test_a_requeue_of_an_earlier_attempt_is_not_taken_back(connection: psycopg.Connection) -> None:
    job = world.put(connection, "Stuck", attempts=1)
    requeue(connection, job)
    _given_back(connection, job)
    assert undo_requeue(connection, job, "Stuck") == []


def test_a_late_completion_since_is_no_hindrance(connection: psycopg.Connection) -> None:
    """It is the best reason to take the requeue back: the payment may have been made."""
    job = world.held(connection, OWNER, lease_s=-5)
    requeue(connection, job)
    assert complete(connection, [(job, 1)]) == [(job, 1, "refused")]
    assert undo_requeue(connection, job, "Processing") == [(job, "Stuck", 1, 5)]


def test_a_job_that_is_requeued_again_is_undone_again(connection: psycopg.Connection) -> None:
    job = world.put(connection, "Failed", attempts=5)
    for _ in range(2):
        assert requeue(connection, job) == [(job, "Pending", 5, 6)]
        assert undo_requeue(connection, job, "Failed") == [(job, "Failed", 5, 5)]
    assert world.events(connection, job) == ["requeued", "requeue undone"] * 2


# At the same moment.


def _take(connection: psycopg.Connection, job: int) -> None:
    """Another worker claims it, whatever has to happen before."""
    status, until_ = whole(connection, job)["status"], whole(connection, job)["lease_until"]
    if status == "Processing" and until_ is None:
        expire(connection, job)
    if status in ("Stuck", "Failed"):
        requeue(connection, job)
    connection.execute("UPDATE payment_jobs SET run_after = now() - interval '1 s' WHERE id = %s", [job])
    assert claim(connection, "w/2/b") == [(job, 2)]


def _sweep(connection: psycopg.Connection, job: int) -> None:
    assert len(sweep(connection)) == 1


def _beat(connection: psycopg.Connection, job: int) -> None:
    assert heartbeat(connection, [(job, 1)], OWNER) == [(job, 1, True, True)]


def _finish(connection: psycopg.Connection, job: int) -> None:
    assert complete(connection, [(job, 1)], OWNER) == [(job, 1, "completed")]


RIVALS: dict[str, Callable[[psycopg.Connection, int], object]] = {
    "claim": _take,
    "heartbeat": _beat,
    "complete": _finish,
    "sweep": _sweep,
    "discard": lambda c, job: act(c, "discard", job),
}
MEETINGS = [
    *((name, state, rival) for name, state in POSSIBLE for rival in ("claim", "discard")),
    *((name, state, rival) for name in ("discard", "park") for state in ("expired", "no lease")
      for rival in ("heartbeat", "complete")),
    *((name, "expired", "sweep") for name in ("discard", "park")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "state", "rival"), MEETINGS)
def test_an_act_that_waits_for_a_row_sees_what_became_of_it(
    connection: psycopg.Connection, connect: Connect, name: str, state: str, rival: str
) -> None:
    job = put(connection, name, state)
    seen, since = fence(connection, job), whole(connection, job)["run_after"]
    operator, worker = connect(), connect()

    def wanted() -> Rows:
        if name == "undo_requeue":
            return undo_requeue(operator, job, "Stuck", since=since, seen=seen)
        return act(operator, name, job, seen)

    waiting = "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
    with ThreadPoolExecutor(1) as pool:
        with worker.transaction():
            RIVALS[rival](worker, job)
            running = pool.submit(wanted)
            until(lambda: running.done() or connection.execute(waiting, [operator.info.backend_pid]).fetchall())
            assert not running.done(), "it should wait for the row"
            left, history = whole(worker, job), all_history(worker)
        assert running.result(timeout=10) == []
    assert (whole(connection, job), all_history(connection)) == (left, history)


@pytest.mark.parametrize(("name", "state"), POSSIBLE)
def test_no_worker_waits_for_an_act_or_takes_the_job_from_under_it(
    connection: psycopg.Connection, connect: Connect, name: str, state: str
) -> None:
    job = put(connection, name, state)
    operator, open_attempt = connect(), state in ("expired", "no lease")
    connection.execute("SET lock_timeout = '2 s'")
    with operator.transaction():
        assert perform(operator, name, job) != []
        assert (claim(connection, "w/2/b"), sweep(connection)) == ([], [])
        # What it answers is true until the act commits: the next one knows.
        assert heartbeat(connection, [(job, 1)]) == [(job, 1, False, open_attempt)]
        if open_attempt:
            assert complete(connection, [(job, 1)]) == [(job, 1, "busy")]
    assert heartbeat(connection, [(job, 1)]) == [(job, 1, False, False)]
    assert complete(connection, [(job, 1)]) == [(job, 1, "refused")]
    runs = name in ("run_now", "release_parked")
    assert claim(connection, "w/2/b") == ([(job, 2)] if runs else [])


@pytest.mark.parametrize(("name", "state"), POSSIBLE)
def test_two_operators_at_once_act_once(
    connection: psycopg.Connection, connect: Connect, name: str, state: str
) -> None:
    job = put(connection, name, state)
    one, two = connect(), connect()
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda operator: perform(operator, name, job, fence(operator, job)), [one, two]))
    # The second looked before or after the first was done; either way there is nothing left to do.
    assert sorted(map(len, answers)) == [0, 1]
    assert world.events(connection, job).count(EVENTS[name]) == 1


# Who may.


def test_an_operator_may_and_a_viewer_may_not(connection: psycopg.Connection) -> None:
    with connection.transaction(force_rollback=True):
        schema.apply(connection)
        schema.apply_roles(connection)
        for name, state in POSSIBLE:
            job = put(connection, name, state)
            connection.execute("SET LOCAL ROLE leasetop_viewer")
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                perform(connection, name, job)
            connection.execute("SET LOCAL ROLE leasetop_operator")
            assert perform(connection, name, job) != []
            connection.execute("RESET ROLE")


def test_the_profile_of_the_home_table_has_them_all() -> None:
    actions = profile.shipped()[0].actions
    for action, name in {
        "release": "release_parked",
        **{name: name for name in EVENTS if "release" not in name},
    }.items():
        assert actions[action].sql == statements.text(name)
        assert actions[action].effect


# Any order.


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    acts=st.lists(
        st.tuples(
            st.one_of(history.ACTS, st.sampled_from([*EVENTS, *EVENTS])),
            st.integers(-1, 0),
            st.sampled_from(["w/1/a", "w/2/b"]),
        ),
        max_size=25,
    )
)
def test_acts_in_any_order_leave_one_end_for_each_attempt(
    connection: psycopg.Connection, acts: list[tuple[str, int, str]]
) -> None:
    connection.execute("TRUNCATE payment_jobs, payment_job_history")
    job, before = world.put(connection, max_attempts=4), None
    for what, back, owner in acts:
        now = whole(connection, job)
        live = now["lease_until"] is not None and now["lease_until"] > server_time(connection)
        if what == "undo_requeue":
            if before is not None:
                undo_requeue(connection, job, before["status"], max_attempts=before["max_attempts"])
        elif what in EVENTS:
            act(connection, what, job)
        else:
            before = now if what == "requeue" else before
            history.act(connection, what, job, (job, now["attempts"] + back), owner)
        history.check(connection, job)
        after = whole(connection, job)
        if now["status"] in ("Completed", "Cancelled"):
            assert after == now
        if what in EVENTS and live:
            assert after == now
