"""Rows by hand for the tables of queues whose engines cannot be installed, and what leasetop is to say of them.

One row at least for each state that the engine knows.
"""

from dataclasses import dataclass, field
from datetime import timedelta

from leasetop.model import Reason, State

Seen = tuple[State, Reason | None, str | None, int | None, int | None]
"""State, reason, owner, attempts, max attempts."""

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
A, B, C, D, E, F, G = (f"00000000-0000-4000-8000-{n:012d}" for n in range(1, 8))


@dataclass(frozen=True)
class Case:
    """One engine; `tables` are those that an act may change."""

    profile: str
    file: str
    tables: tuple[str, ...]
    insert: str
    seen: dict[str, Seen]
    live: str
    """A job that a worker has."""
    back: dict[str, Seen] = field(default_factory=dict)
    """Jobs that can be returned to waiting, and what they are then."""
    claimed: dict[str, timedelta] = field(default_factory=dict)
    """How long ago a job was claimed."""
    leases: dict[str, timedelta] = field(default_factory=dict)
    """How long a job's lease still lasts; negative: how long it is over."""
    errors: dict[str, str] = field(default_factory=dict)
    kinds: frozenset[str | None] = frozenset({"ChargeCard"})
    session: str | None = None
    """What a worker's session does that holds jobs by its locks. `{pid}` in an owner is the pid of its backend."""


RIVER = Case(
    profile="river",
    file="river",
    tables=("river_job",),
    insert="""
    INSERT INTO river_job (id, state, kind, attempt, max_attempts, attempted_by, attempted_at, scheduled_at,
                           finalized_at, errors) VALUES
      (1, 'available', 'ChargeCard', 0, 25, NULL, NULL, now(), NULL, NULL),
      (2, 'scheduled', 'ChargeCard', 0, 25, NULL, NULL, now() + interval '1 hour', NULL, NULL),
      (3, 'retryable', 'ChargeCard', 1, 25, '{one}', now(), now() + interval '1 hour', NULL,
       ARRAY['{"attempt": 1, "error": "refused"}'::jsonb]),
      (4, 'pending', 'ChargeCard', 0, 25, NULL, NULL, now(), NULL, NULL),
      (5, 'running', 'ChargeCard', 2, 25, '{one,two}', now() - interval '1 minute', now(), NULL, NULL),
      (6, 'running', 'ChargeCard', 25, 25, '{one,three}', now() - interval '2 hours', now(), NULL, NULL),
      (7, 'running', 'ChargeCard', 1, 25, '{one}', NULL, now(), NULL, NULL),
      (8, 'completed', 'ChargeCard', 1, 25, '{one}', now(), now(), now(), NULL),
      (9, 'discarded', 'ChargeCard', 25, 25, '{one}', now(), now(), now(),
       ARRAY['{"attempt": 24, "error": "first"}'::jsonb, '{"attempt": 25, "error": "last"}'::jsonb]),
      (10, 'cancelled', 'ChargeCard', 1, 25, '{one}', now(), now(), now(), NULL)""",
    seen={
        "1": (State.PENDING, None, None, 0, 25),
        "2": (State.SCHEDULED, None, None, 0, 25),
        "3": (State.SCHEDULED, None, None, 1, 25),
        "4": (State.SCHEDULED, None, None, 0, 25),
        "5": (State.PROCESSING, None, "two", 2, 25),
        "6": (State.STUCK, Reason.AGE, "three", 25, 25),
        "7": (State.STUCK, Reason.NO_LEASE, "one", 1, 25),
        "8": (State.COMPLETED, None, None, 1, 25),
        "9": (State.FAILED, None, None, 25, 25),
        "10": (State.CANCELLED, None, None, 1, 25),
    },
    live="5",
    back={
        "6": (State.PENDING, None, None, 25, 26),
        "7": (State.PENDING, None, None, 1, 25),
        "9": (State.PENDING, None, None, 25, 26),
    },
    claimed={"5": MINUTE, "6": 2 * HOUR},
    errors={"3": "refused", "9": "last"},
)

OBAN_ELIXIR = Case(
    profile="oban-elixir",
    file="oban_elixir",
    tables=("oban_jobs",),
    insert="""
    INSERT INTO oban_jobs (id, state, worker, attempt, max_attempts, attempted_by, attempted_at, scheduled_at,
                           completed_at, discarded_at, cancelled_at, errors)
    SELECT id, state::oban_job_state, 'ChargeCard', attempt, 20, attempted_by::text[],
           timezone('UTC', now() - ago::interval), timezone('UTC', now() + due::interval),
           CASE state WHEN 'completed' THEN timezone('UTC', now()) END,
           CASE state WHEN 'discarded' THEN timezone('UTC', now()) END,
           CASE state WHEN 'cancelled' THEN timezone('UTC', now()) END,
           errors::jsonb[]
      FROM (VALUES
      (1, 'available', 0, NULL, NULL, '0', '{}'),
      (2, 'scheduled', 0, NULL, NULL, '1 hour', '{}'),
      (3, 'retryable', 1, '{web@1,p1}', '1 minute', '1 hour', ARRAY['{"attempt": 1, "error": "refused"}']::text),
      (4, 'suspended', 0, NULL, NULL, '0', '{}'),
      (5, 'executing', 2, '{web@1,p1}', '1 minute', '0', '{}'),
      (6, 'executing', 20, '{web@2,p2}', '2 hours', '0', '{}'),
      (7, 'executing', 1, '{web@2,p2}', NULL, '0', '{}'),
      (8, 'completed', 1, '{web@1,p1}', '1 minute', '0', '{}'),
      (9, 'discarded', 20, '{web@1,p1}', '1 minute', '0',
       ARRAY['{"attempt": 19, "error": "first"}', '{"attempt": 20, "error": "last"}']::text),
      (10, 'cancelled', 0, NULL, NULL, '0', '{}')
    ) AS made (id, state, attempt, attempted_by, ago, due, errors)""",
    seen={
        "1": (State.PENDING, None, None, 0, 20),
        "2": (State.SCHEDULED, None, None, 0, 20),
        "3": (State.SCHEDULED, None, None, 1, 20),
        "4": (State.SCHEDULED, None, None, 0, 20),
        "5": (State.PROCESSING, None, "web@1", 2, 20),
        "6": (State.STUCK, Reason.AGE, "web@2", 20, 20),
        "7": (State.STUCK, Reason.NO_LEASE, "web@2", 1, 20),
        "8": (State.COMPLETED, None, None, 1, 20),
        "9": (State.FAILED, None, None, 20, 20),
        "10": (State.CANCELLED, None, None, 0, 20),
    },
    live="5",
    back={
        "6": (State.PENDING, None, None, 20, 21),
        "7": (State.PENDING, None, None, 1, 20),
        "9": (State.PENDING, None, None, 20, 21),
    },
    claimed={"5": MINUTE, "6": 2 * HOUR},
    errors={"3": "refused", "9": "last"},
)

OBAN_PY = Case(
    profile="oban-py",
    file="oban_py",
    tables=("oban_jobs",),
    insert=f"""
    INSERT INTO oban_producers VALUES
      ('{A}', 'web@1', 'default', timezone('UTC', now() - interval '10 seconds')),
      ('{B}', 'web@2', 'default', timezone('UTC', now() - interval '10 minutes'));
    INSERT INTO oban_jobs (id, state, worker, attempt, max_attempts, attempted_by, attempted_at, scheduled_at,
                           completed_at, discarded_at, cancelled_at, errors)
    SELECT id, state::oban_job_state, 'ChargeCard', attempt, 20, attempted_by::text[],
           timezone('UTC', now() - ago::interval), timezone('UTC', now() + due::interval),
           CASE state WHEN 'completed' THEN timezone('UTC', now()) END,
           CASE state WHEN 'discarded' THEN timezone('UTC', now()) END,
           CASE state WHEN 'cancelled' THEN timezone('UTC', now()) END,
           errors::jsonb
      FROM (VALUES
      (1, 'available', 0, '{{}}', NULL, '0', '[]'),
      (2, 'scheduled', 0, '{{}}', NULL, '1 hour', '[]'),
      (3, 'retryable', 1, '{{web@1,{A}}}', '1 minute', '1 hour', '[{{"attempt": 1, "error": "refused"}}]'),
      (4, 'suspended', 0, '{{}}', NULL, '0', '[]'),
      (5, 'executing', 2, '{{web@1,{A}}}', '2 hours', '0', '[]'),
      (6, 'executing', 20, '{{web@2,{B}}}', '1 minute', '0', '[]'),
      (7, 'executing', 1, '{{web@3,{C}}}', '1 minute', '0', '[]'),
      (8, 'completed', 1, '{{web@1,{A}}}', '1 minute', '0', '[]'),
      (9, 'discarded', 20, '{{web@1,{A}}}', '1 minute', '0',
       '[{{"attempt": 19, "error": "first"}}, {{"attempt": 20, "error": "last"}}]'),
      (10, 'cancelled', 0, '{{}}', NULL, '0', '[]')
    ) AS made (id, state, attempt, attempted_by, ago, due, errors)""",
    seen={
        "1": (State.PENDING, None, None, 0, 20),
        "2": (State.SCHEDULED, None, None, 0, 20),
        "3": (State.SCHEDULED, None, None, 1, 20),
        "4": (State.SCHEDULED, None, None, 0, 20),
        # Two hours old and yet alive: its producer beats.
        "5": (State.PROCESSING, None, "web@1", 2, 20),
        "6": (State.STUCK, Reason.EXPIRED, "web@2", 20, 20),
        "7": (State.STUCK, Reason.GONE, "web@3", 1, 20),
        "8": (State.COMPLETED, None, None, 1, 20),
        "9": (State.FAILED, None, None, 20, 20),
        "10": (State.CANCELLED, None, None, 0, 20),
    },
    live="5",
    back={
        "6": (State.PENDING, None, None, 20, 21),
        "7": (State.PENDING, None, None, 1, 20),
        "9": (State.PENDING, None, None, 20, 21),
    },
    claimed={"5": 2 * HOUR, "6": MINUTE},
    leases={"5": timedelta(seconds=50), "6": -9 * MINUTE},
    errors={"3": "refused", "9": "last"},
)

DELAYED_JOB = Case(
    profile="delayed-job",
    file="delayed_job",
    tables=("delayed_jobs",),
    insert=r"""
    INSERT INTO delayed_jobs (id, handler, attempts, run_at, locked_at, locked_by, failed_at, last_error)
    SELECT id, E'--- !ruby/object:ChargeCard\namount: 7\n', attempts, timezone('UTC', now() + due::interval),
           timezone('UTC', now() - ago::interval), locked_by,
           CASE WHEN failed THEN timezone('UTC', now()) END, last_error
      FROM (VALUES
      (1, 0, '0', NULL, NULL, false, NULL),
      (2, 1, '1 hour', NULL, NULL, false, E'refused\nin line 7'),
      (3, 2, '0', '1 minute', 'host:web1 pid:7', false, NULL),
      (4, 3, '0', '5 hours', 'host:web2 pid:8', false, NULL),
      (5, 25, '0', NULL, NULL, true, E'dead\nin line 8')
    ) AS made (id, attempts, due, ago, locked_by, failed, last_error)""",
    seen={
        "1": (State.PENDING, None, None, 0, 25),
        "2": (State.SCHEDULED, None, None, 1, 25),
        "3": (State.PROCESSING, None, "host:web1 pid:7", 2, 25),
        "4": (State.STUCK, Reason.EXPIRED, "host:web2 pid:8", 3, 25),
        "5": (State.FAILED, None, None, 25, 25),
    },
    live="3",
    back={"4": (State.PENDING, None, None, 3, 25), "5": (State.PENDING, None, None, 0, 25)},
    claimed={"3": MINUTE, "4": 5 * HOUR},
    leases={"3": 239 * MINUTE, "4": -HOUR},
    errors={"2": "refused", "5": "dead"},
)

HANGFIRE = Case(
    profile="hangfire",
    file="hangfire",
    tables=("hangfire.job", "hangfire.jobqueue", "hangfire.state"),
    insert="""
    INSERT INTO hangfire.server VALUES
      ('web:1', '{}', now() - interval '10 seconds'), ('web:2', '{}', now() - interval '1 hour');
    INSERT INTO hangfire.job (id, stateid, statename, invocationdata)
    SELECT id, id + 100, name, '{"Type": "ChargeCard, Shop", "Method": "Run"}' FROM (VALUES
      (1, 'Enqueued'), (2, 'Scheduled'), (3, 'Awaiting'), (4, 'Processing'), (5, 'Processing'), (6, 'Processing'),
      (7, 'Succeeded'), (8, 'Failed'), (9, 'Deleted')) AS made (id, name);
    INSERT INTO hangfire.state (id, jobid, name, createdat, data)
    SELECT id + 100, id, statename, now() - interval '1 minute', CASE id
        WHEN 4 THEN '{"ServerId": "web:1"}' WHEN 5 THEN '{"ServerId": "web:2"}' WHEN 6 THEN '{"ServerId": "web:3"}'
        WHEN 8 THEN '{"ExceptionMessage": "refused"}' ELSE '{"Queue": "default"}' END::jsonb
      FROM hangfire.job;
    INSERT INTO hangfire.jobqueue (jobid, queue, fetchedat) VALUES
      (1, 'default', NULL), (4, 'default', now() - interval '1 minute'), (5, 'default', now() - interval '1 minute'),
      (6, 'default', now() - interval '1 minute');
    INSERT INTO hangfire.jobparameter (jobid, name, value) VALUES
      (5, 'RetryCount', '2'), (5, 'CurrentCulture', 'en'), (8, 'RetryCount', '10')""",
    seen={
        "1": (State.PENDING, None, None, None, None),
        "2": (State.SCHEDULED, None, None, None, None),
        "3": (State.SCHEDULED, None, None, None, None),
        "4": (State.PROCESSING, None, "web:1", None, None),
        "5": (State.STUCK, Reason.EXPIRED, "web:2", 3, None),
        "6": (State.STUCK, Reason.GONE, "web:3", None, None),
        "7": (State.COMPLETED, None, None, None, None),
        "8": (State.FAILED, None, None, 11, None),
        "9": (State.CANCELLED, None, None, None, None),
    },
    live="4",
    # The queue row is free again; the state is Processing until a server fetches it.
    back={
        "5": (State.PENDING, None, None, 3, None),
        "6": (State.PENDING, None, None, None, None),
    },
    claimed={"4": MINUTE},
    leases={"4": timedelta(minutes=4, seconds=50), "5": -55 * MINUTE},
    errors={"8": "refused"},
    kinds=frozenset({"ChargeCard.Run"}),
)

QUE = Case(
    profile="que",
    file="que",
    tables=("que_jobs",),
    insert="""
    INSERT INTO que_jobs (id, job_class, args, error_count, last_error_message, run_at, finished_at, expired_at) VALUES
      (1, 'ChargeCard', '[]', 0, NULL, now(), NULL, NULL),
      (2, 'ChargeCard', '[]', 0, NULL, now() + interval '1 hour', NULL, NULL),
      (3, 'ActiveJob::QueueAdapters::QueAdapter::JobWrapper', '[{"job_class": "ChargeCard"}]', 1, 'refused',
       now() - interval '1 minute', NULL, NULL),
      -- Beyond what half of the lock's key can hold.
      (4294967297, 'ChargeCard', '[]', 0, NULL, now(), NULL, NULL),
      -- Completed ones are shown by their ids, the newest only.
      (4294967298, 'ChargeCard', '[]', 0, NULL, now(), now(), NULL),
      (6, 'ChargeCard', '[]', 15, 'dead', now(), NULL, now())""",
    session="""
    SELECT pg_advisory_lock(3), pg_advisory_lock(4294967297), pg_advisory_lock(1, 1);
    INSERT INTO que_lockers VALUES (pg_backend_pid(), 77, 'web1')""",
    seen={
        "1": (State.PENDING, None, None, 0, None),
        "2": (State.SCHEDULED, None, None, 0, None),
        "3": (State.PROCESSING, None, "web1:77", 1, None),
        "4294967297": (State.PROCESSING, None, "web1:77", 0, None),
        "4294967298": (State.COMPLETED, None, None, 0, None),
        "6": (State.FAILED, None, None, 15, None),
    },
    live="3",
    back={"6": (State.PENDING, None, None, 0, None)},
    errors={"3": "refused", "6": "dead"},
)

GOOD_JOB = Case(
    profile="good-job",
    file="good_job",
    tables=("good_jobs",),
    insert=f"""
    INSERT INTO good_job_processes (id, state, updated_at) VALUES
      ('{A}', '{{"hostname": "web1", "pid": 7}}', timezone('UTC', now() - interval '10 seconds')),
      ('{B}', '{{"hostname": "web2", "pid": 8}}', timezone('UTC', now() - interval '1 hour'));
    INSERT INTO good_jobs (id, job_class, scheduled_at, performed_at, finished_at, error, executions_count,
                           locked_by_id)
    SELECT id::uuid, 'ChargeCard', timezone('UTC', now() + due::interval), timezone('UTC', now() - ago::interval),
           CASE WHEN over THEN timezone('UTC', now()) END, error, executions, locked_by::uuid
      FROM (VALUES
      ('{A}', '0', NULL, false, NULL, 0, NULL),
      ('{B}', '1 hour', NULL, false, 'refused', 1, NULL),
      ('{C}', '0', '2 hours', false, NULL, 1, NULL),
      ('{D}', '0', '1 minute', false, NULL, 2, '{A}'),
      ('{E}', '0', '1 minute', false, NULL, 3, '{B}'),
      ('{F}', '0', '1 minute', true, NULL, 1, NULL),
      ('{G}', '0', '1 minute', true, 'dead', 5, NULL)
    ) AS made (id, due, ago, over, error, executions, locked_by)""",
    session=f"SELECT pg_advisory_lock(('x' || substr(md5('good_jobs-{C}'), 1, 16))::bit(64)::bigint)",
    seen={
        A: (State.PENDING, None, None, 0, None),
        B: (State.SCHEDULED, None, None, 1, None),
        C: (State.PROCESSING, None, "backend {pid}", 1, None),
        D: (State.PROCESSING, None, "web1:7", 2, None),
        E: (State.STUCK, Reason.GONE, "web2:8", 3, None),
        F: (State.COMPLETED, None, None, 1, None),
        G: (State.FAILED, None, None, 5, None),
    },
    live=C,
    claimed={C: 2 * HOUR, D: MINUTE},
    leases={D: timedelta(minutes=4, seconds=50), E: -55 * MINUTE},
    errors={B: "refused", G: "dead"},
)

CASES = (RIVER, QUE, HANGFIRE, GOOD_JOB, DELAYED_JOB, OBAN_ELIXIR, OBAN_PY)
