"""Queues whose engines cannot be installed everywhere: their tables, rows by hand, and what leasetop makes of them.

The tables are our own words for what the engines document; they prove the profiles' SQL, not the engines.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
import pytest_asyncio

from leasetop.database import Database
from leasetop.errors import Refused
from leasetop.model import Job, Snapshot, State, View
from leasetop.profile import shipped
from leasetop.queue import Queue
from tests.engines.hands import CASES, GOOD_JOB, HANGFIRE, OBAN_PY, QUE, RIVER, B, Case, E, G, Seen
from tests.engines.looking import (
    acts_only_on_what_waits,
    beats_count,
    counts,
    execute,
    only_one_of_many_is_done,
    requeue,
    rows,
)
from tests.queues import open_queue
from tests.waiting import until

TABLES = Path(__file__).parent / "tables"
BACK = [pytest.param(case, id_, id=f"{case.profile}-{id_}") for case in CASES for id_ in case.back]
every_case = pytest.mark.parametrize("case", CASES, ids=[case.profile for case in CASES])


@dataclass(frozen=True)
class World:
    """A database with the rows of a case, and the session that holds some of them."""

    case: Case
    dsn: str
    queue: Queue
    pid: int

    async def jobs(self) -> dict[str, Job]:
        return {job.key[0]: job for job in (await self.snapshot()).jobs}

    async def snapshot(self) -> Snapshot:
        return await self.queue.snapshot(View.ALL)

    def rows(self) -> Counter[str]:
        """All that an act may change."""
        return Counter(row for table in self.case.tables for row in rows(self.dsn, *table.split(".")))

    def seen(self, job: Job) -> Seen:
        owner = job.owner and job.owner.replace(f"backend {self.pid}", "backend {pid}")
        return job.state, job.reason, owner, job.attempts, job.max_attempts


@contextmanager
def session(dsn: str, case: Case) -> Iterator[int]:
    """A worker's connection, with its locks; the pid of its backend."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        if case.session:
            connection.execute(case.session.encode())
        yield connection.info.backend_pid


@pytest_asyncio.fixture
async def world(case: Case, database: Database, blank_dsn: str) -> AsyncIterator[World]:
    await made(case, blank_dsn)
    with session(blank_dsn, case) as pid:
        yield World(case, blank_dsn, await found(database, case), pid)


async def made(case: Case, dsn: str) -> None:
    execute(dsn, (TABLES / f"{case.file}.sql").read_text())
    execute(dsn, case.insert)


async def found(database: Database, case: Case) -> Queue:
    queue = await open_queue(database)
    assert queue.profile.id == case.profile
    return queue


@every_case
async def test_every_row_is_in_its_state(world: World) -> None:
    jobs = await world.jobs()
    assert {id_: world.seen(job) for id_, job in jobs.items()} == world.case.seen
    assert await counts(world.queue) == Counter(state for state, *_ in world.case.seen.values())
    assert {job.kind for job in jobs.values()} == world.case.kinds
    assert {id_: job.error for id_, job in jobs.items() if job.error} == world.case.errors


@every_case
async def test_instants_are_on_the_servers_clock(world: World) -> None:
    """Most of these tables have instants without a zone."""
    snapshot, jobs = await world.snapshot(), await world.jobs()
    for id_, ago in world.case.claimed.items():
        claimed = jobs[id_].claimed_at
        assert claimed and about(snapshot.now - claimed, ago)
    for id_, left in world.case.leases.items():
        lease = jobs[id_].lease_until
        assert lease and about(lease - snapshot.now, left)


def about(span: timedelta, expected: timedelta) -> bool:
    return abs(span - expected) < timedelta(seconds=8)


@pytest.mark.parametrize(("case", "id_"), BACK)
async def test_a_job_that_has_changed_since_it_was_seen_stays(world: World, id_: str) -> None:
    before = world.rows()
    seen = replace((await world.jobs())[id_], fence="(other)")
    assert not (await requeue(world.queue, seen)).done
    assert world.rows() == before


@pytest.mark.parametrize(("case", "id_"), BACK)
async def test_a_job_goes_back_once_and_alone(world: World, id_: str) -> None:
    before = world.rows()
    seen = (await world.jobs())[id_]
    outcome = await requeue(world.queue, seen)
    assert outcome.done, outcome.words
    after = world.rows()
    assert (before - after).total() == (after - before).total() == 1
    others = {key: known for key, known in world.case.seen.items() if key != id_}
    shown = {key: world.seen(job) for key, job in (await world.jobs()).items()}
    assert shown == others | {id_: world.case.back[id_]}

    assert not (await requeue(world.queue, seen)).done
    assert world.rows() == after


@every_case
async def test_a_live_job_is_not_taken(world: World) -> None:
    before = world.rows()
    seen = (await world.jobs())[world.case.live]
    if world.queue.profile.way_back(State.PROCESSING) is None:
        with pytest.raises(Refused, match="no act"):
            await requeue(world.queue, seen)
    else:
        outcome = await requeue(world.queue, seen)
        assert not outcome.done
    assert world.rows() == before


@every_case
async def test_what_is_over_or_waits_already_is_left_alone(world: World) -> None:
    jobs, before = await world.jobs(), world.rows()
    for job in jobs.values():
        if job.state in (State.PENDING, State.SCHEDULED, State.COMPLETED, State.CANCELLED):
            try:
                outcome = await requeue(world.queue, job)
            except Refused:
                continue
            assert not outcome.done, outcome.words
    assert world.rows() == before


@pytest.mark.parametrize(("case", "id_"), [(HANGFIRE, "8"), (GOOD_JOB, G)], ids=["hangfire", "good-job"])
async def test_what_only_the_queues_own_tool_can_do_is_named(world: World, id_: str) -> None:
    before = world.rows()
    with pytest.raises(Refused, match=rf"only its own tool.*{id_}"):
        await requeue(world.queue, (await world.jobs())[id_])
    assert world.rows() == before


@pytest.mark.parametrize("case", [GOOD_JOB], ids=["good-job"])
async def test_a_queue_that_heals_itself_has_no_requeue(world: World) -> None:
    before = world.rows()
    with pytest.raises(Refused, match="no act"):
        await requeue(world.queue, (await world.jobs())[E])
    assert world.rows() == before


@pytest.mark.parametrize(("case", "freed"), [(QUE, State.PENDING), (GOOD_JOB, State.STUCK)], ids=["que", "good-job"])
async def test_the_end_of_a_session_frees_its_jobs(
    case: Case, freed: State, database: Database, blank_dsn: str
) -> None:
    await made(case, blank_dsn)
    queue = await found(database, case)
    with session(blank_dsn, case) as pid:
        assert await state_of(queue, case.live) is State.PROCESSING
    until(lambda: not execute(blank_dsn, f"SELECT FROM pg_stat_activity WHERE pid = {pid}"))
    assert await state_of(queue, case.live) is freed


async def state_of(queue: Queue, id_: str) -> State:
    job = (await queue.find_jobs([id_]))[id_]
    assert job is not None
    return job.state


@pytest.mark.parametrize("case", [HANGFIRE], ids=["hangfire"])
async def test_a_queue_row_that_is_free_already_is_not_freed_again(world: World) -> None:
    """Stuck is all that the state says until a server fetches it, so that an operator may well press twice."""
    assert (await requeue(world.queue, (await world.jobs())["5"])).done
    after = world.rows()
    assert not (await requeue(world.queue, (await world.jobs())["5"])).done
    assert world.rows() == after


@pytest.mark.parametrize("case", [RIVER], ids=["river"])
async def test_a_job_that_is_being_cancelled_is_not_requeued(world: World) -> None:
    execute(world.dsn, """UPDATE river_job SET metadata = '{"cancel_attempted_at": "2026-01-01"}' WHERE id = 6""")
    before = world.rows()
    assert not (await requeue(world.queue, (await world.jobs())["6"])).done
    assert world.rows() == before


@pytest.mark.parametrize("case", [RIVER], ids=["river"])
async def test_a_rescue_is_written_as_the_library_writes_it(world: World) -> None:
    assert (await requeue(world.queue, (await world.jobs())["6"])).done
    with psycopg.connect(world.dsn) as connection:
        row = connection.execute(
            "SELECT metadata->>'river:rescue_count', errors[1]->>'attempt', errors[1]->>'error' FROM river_job"
            " WHERE id = 6"
        ).fetchone()
    assert row == ("1", "25", "Requeued by leasetop (stuck)")


@pytest.mark.parametrize("case", [RIVER], ids=["river"])
async def test_a_retry_that_another_job_forbids_is_refused(world: World) -> None:
    """Another job with the same unique key waits already."""
    execute(world.dsn, r"UPDATE river_job SET unique_key = '\x07' WHERE id IN (1, 9)")
    before = world.rows()
    with pytest.raises(Refused):
        await requeue(world.queue, (await world.jobs())["9"])
    assert world.rows() == before


@pytest.mark.parametrize("case", [OBAN_PY], ids=["oban-py"])
async def test_a_producer_that_beats_again_keeps_its_job(world: World) -> None:
    """Between the look and the act; the fence, which knows only the job, would not have told."""
    seen = (await world.jobs())["6"]
    execute(world.dsn, "UPDATE oban_producers SET updated_at = timezone('UTC', now())")
    before = world.rows()
    assert not (await requeue(world.queue, seen)).done
    assert world.rows() == before


BEATS = {
    "oban-py": (
        "SELECT FROM oban_jobs WHERE id = 6 FOR UPDATE",
        f"UPDATE oban_producers SET updated_at = timezone('UTC', now()) WHERE uuid = '{B}'",
    ),
    "hangfire": (
        "SELECT FROM hangfire.jobqueue WHERE jobid = 5 FOR UPDATE",
        "UPDATE hangfire.server SET lastheartbeat = now() WHERE id = 'web:2'",
    ),
}


@pytest.mark.parametrize(("case", "id_"), [(OBAN_PY, "6"), (HANGFIRE, "5")], ids=BEATS)
async def test_a_heartbeat_made_meanwhile_counts(world: World, id_: str) -> None:
    job = (await world.jobs())[id_]
    await beats_count(world.queue, world.dsn, job, *BEATS[world.case.profile])


@pytest.mark.parametrize(("case", "id_"), BACK)
async def test_of_many_who_requeue_at_once_one_does(world: World, id_: str) -> None:
    await only_one_of_many_is_done(world.queue, world.dsn, (await world.jobs())[id_])


@every_case
async def test_windows_join_to_the_whole_list(world: World) -> None:
    whole = await world.jobs()
    size, after, found = 3, None, list[Job]()
    while True:
        jobs = (await world.queue.snapshot(View.ALL, limit=size, after=after)).jobs
        found += jobs
        if len(jobs) < size or jobs[-1].place is None:
            break
        after = jobs[-1].place
    # Where a state has no order, the list of windows ends: the screen says so.
    assert len({job.id for job in found}) == len(found)
    if len(jobs) < size:
        assert {job.id for job in found} == set(whole)


ACTS = [
    pytest.param(case, name, id=f"{case.profile}-{name}")
    for case in CASES
    for profile in shipped()
    for name in ("discard", "run_now")
    if profile.id == case.profile and name in profile.actions
]


@pytest.mark.parametrize(("case", "name"), ACTS)
async def test_acts_on_jobs_that_wait_touch_no_others(world: World, name: str) -> None:
    if name == "discard":
        waits, becomes = frozenset({State.PENDING, State.SCHEDULED}), State.CANCELLED
    else:
        waits, becomes = frozenset({State.SCHEDULED}), State.PENDING
        # Those that wait for something else than their time are no matter of time.
        execute(world.dsn, "DELETE FROM oban_jobs WHERE state = 'suspended'" if "oban" in world.case.file else "SELECT")
        execute(world.dsn, "DELETE FROM river_job WHERE state = 'pending'" if world.case is RIVER else "SELECT")
    await acts_only_on_what_waits(world.queue, name, waits, becomes)
