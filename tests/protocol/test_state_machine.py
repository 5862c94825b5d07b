"""The protocol against a model: any order of statements, by any owners, with any token, at any time.

The real SQL files run on the real server; the model is a few lines of Python that says what must come of each. Time is
moved by shifting the rows' timestamps, in steps far larger than a step of the test takes. After every step each job is
compared with its model, and the history with the attempts.
"""

import os
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta

import psycopg
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests import world
from tests.protocol import statement

TTL_S, BACKOFF_S = 100.0, 50.0
# Whoever claims under one of two names: the same name holds earlier and later attempts of the same job.
OWNERS = st.sampled_from(["w/1/a", "w/2/b"])
PICK = st.integers(0, 1_000_000)
ENDS = {"completed", "failed", "released", "expired", "revoked"}
EXAMPLES = int(os.environ.get("LEASETOP_EXAMPLES", "100"))


@dataclass
class Model:
    """What one job must be."""

    id: int
    max_attempts: int
    status: str = "Pending"
    owner: str | None = None
    attempts: int = 0
    lease_left_s: float | None = None
    wait_s: float = 0.0
    ends: Counter[int] = field(default_factory=Counter)
    refused: int = 0
    done_by: tuple[str, int] | None = None

    @property
    def expired(self) -> bool:
        return self.status == "Processing" and self.lease_left_s is not None and self.lease_left_s < 0

    def claimable(self, takeover: bool) -> bool:
        if self.attempts >= self.max_attempts:
            return False
        return (self.status == "Pending" and self.wait_s <= 0) or (takeover and self.expired)

    def held_by(self, owner: str, attempt: int) -> bool:
        return self.status == "Processing" and self.owner == owner and self.attempts == attempt

    def begin(self, owner: str) -> None:
        if self.status == "Processing":
            self.ends[self.attempts] += 1
        self.status, self.owner, self.lease_left_s = "Processing", owner, TTL_S
        self.attempts += 1

    def end(self, status: str) -> None:
        self.ends[self.attempts] += 1
        self.status, self.owner, self.lease_left_s = status, None, None

    def back(self) -> str:
        return "Pending" if self.attempts < self.max_attempts else "Failed"


class Protocol(RuleBasedStateMachine):
    """Rules are the statements; invariants compare the table with the model."""

    dsn = ""

    def __init__(self) -> None:
        super().__init__()
        self.connection = psycopg.connect(self.dsn, autocommit=True)
        self.connection.execute("TRUNCATE payment_jobs, payment_job_history")
        self.jobs: dict[int, Model] = {}
        self.tokens: list[tuple[str, int, int]] = []
        self.fences: list[tuple[int, str]] = []

    def teardown(self) -> None:
        self.connection.close()

    def job(self, pick: int) -> Model:
        return list(self.jobs.values())[pick % len(self.jobs)]

    def token(self, pick: int) -> tuple[str, int, int, Model]:
        # The latest tokens are the likelier: most steps are to matter.
        owner, job, attempt = self.tokens[-1 - pick % min(len(self.tokens), 12)]
        return owner, job, attempt, self.jobs[job]

    def waits(self, model: Model) -> None:
        """How long the back-off is, only the database knows: full jitter. It must be within its bounds."""
        row = self.connection.execute(
            "SELECT extract(epoch FROM run_after - clock_timestamp())::float FROM payment_jobs WHERE id = %s",
            [model.id],
        ).fetchone()
        assert row is not None
        model.wait_s = row[0]
        if model.status == "Pending":
            assert -5 < model.wait_s <= BACKOFF_S

    @rule(most=st.integers(1, 3))
    def enqueue(self, most: int) -> None:
        id_ = world.put(self.connection, max_attempts=most)
        self.jobs[id_] = Model(id_, most)

    @rule(owner=OWNERS, batch=st.integers(1, 3), takeover=st.booleans())
    def claim(self, owner: str, batch: int, takeover: bool) -> None:
        able = [model for model in self.jobs.values() if model.claimable(takeover)]
        claimed = statement.claim(self.connection, owner, batch, takeover=takeover, ttl=timedelta(seconds=TTL_S))
        assert len(claimed) == min(batch, len(able))
        for job, attempt in claimed:
            model = self.jobs[job]
            assert model in able
            model.begin(owner)
            assert model.attempts == attempt
            self.tokens.append((owner, job, attempt))

    @precondition(lambda self: self.jobs)
    @rule(pick=PICK, owner=OWNERS, takeover=st.booleans())
    def claim_by_id(self, pick: int, owner: str, takeover: bool) -> None:
        model = self.job(pick)
        able = model.claimable(takeover)
        claimed = statement.claim_by_id(self.connection, model.id, owner, takeover=takeover)
        assert bool(claimed) == able
        if able:
            model.begin(owner)
            model.lease_left_s = statement.TTL.total_seconds()
            self.tokens.append((owner, model.id, model.attempts))

    @precondition(lambda self: self.tokens)
    @rule(pick=PICK, revive=st.booleans())
    def heartbeat(self, pick: int, revive: bool) -> None:
        owner, job, attempt, model = self.token(pick)
        ((_, _, renewed, held),) = statement.heartbeat(self.connection, [(job, attempt)], owner, revive=revive)
        assert renewed == held == (model.held_by(owner, attempt) and (revive or not model.expired))
        if renewed:
            model.lease_left_s = statement.TTL.total_seconds()

    @precondition(lambda self: self.tokens)
    @rule(pick=PICK)
    def complete(self, pick: int) -> None:
        owner, job, attempt, model = self.token(pick)
        held = model.held_by(owner, attempt)
        ((_, _, outcome),) = statement.complete(self.connection, [(job, attempt)], owner)
        # A worker whose answer was lost on the way asks again, and is told the same: it was this very token.
        again = model.done_by == (owner, attempt)
        assert outcome == ("completed" if held or again else "refused")
        if held:
            model.end("Completed")
            model.done_by = (owner, attempt)
        elif not again:
            model.refused += 1

    @precondition(lambda self: self.tokens)
    @rule(pick=PICK, retry=st.booleans())
    def fail(self, pick: int, retry: bool) -> None:
        owner, job, attempt, model = self.token(pick)
        held = model.held_by(owner, attempt)
        backoff = {"backoff_s": BACKOFF_S, "backoff_cap_s": BACKOFF_S}
        rows = statement.fail(self.connection, (job, attempt), owner, retry=retry, **backoff)  # type: ignore[arg-type]
        assert bool(rows) == held
        if held:
            model.end(model.back() if retry else "Failed")
            self.waits(model)

    @precondition(lambda self: self.tokens)
    @rule(pick=PICK)
    def release(self, pick: int) -> None:
        owner, job, attempt, model = self.token(pick)
        held = model.held_by(owner, attempt)
        assert bool(statement.release(self.connection, [(job, attempt)], owner)) == held
        if held:
            model.end("Pending")
            model.max_attempts = max(model.max_attempts, model.attempts + 1)
            model.wait_s = 0

    @rule(policy=st.sampled_from(["requeue", "park"]), some=st.booleans(), pick=PICK)
    def sweep(self, policy: str, some: bool, pick: int) -> None:
        tokens = [(job, attempt) for _, job, attempt in self.tokens[pick % (len(self.tokens) + 1) :]] if some else None
        due = {
            model.id
            for model in self.jobs.values()
            if model.expired and (tokens is None or (model.id, model.attempts) in tokens)
        }
        rows = statement.sweep(self.connection, policy, tokens=tokens, backoff_s=BACKOFF_S, backoff_cap_s=BACKOFF_S)
        assert {row[0] for row in rows} == due
        for job in due:
            model = self.jobs[job]
            model.end("Stuck" if policy == "park" else model.back())
            self.waits(model)

    @precondition(lambda self: self.jobs)
    @rule(pick=PICK)
    def look(self, pick: int) -> None:
        """An operator sees a job, and may act on what they saw much later."""
        model = self.job(pick)
        self.fences.append((model.id, statement.fence(self.connection, model.id)))

    @precondition(lambda self: self.fences)
    @rule(pick=PICK, force=st.booleans())
    def requeue(self, pick: int, force: bool) -> None:
        job, seen = self.fences[-1 - pick % min(len(self.fences), 6)]
        model = self.jobs[job]
        unchanged = seen == statement.fence(self.connection, job)
        able = model.status in ("Stuck", "Failed") or model.expired or (model.status == "Processing" and force)
        assert bool(statement.requeue(self.connection, job, seen, force=force)) == (unchanged and able)
        if unchanged and able:
            if model.status == "Processing":
                model.end("Pending")
            model.status, model.wait_s = "Pending", 0
            model.max_attempts = max(model.max_attempts, model.attempts + 1)

    @rule(seconds=st.sampled_from([20.0, 60.0, 150.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.connection.execute(
            """UPDATE payment_jobs
                  SET lease_until = lease_until - %(s)s::interval, run_after = run_after - %(s)s::interval,
                      claimed_at = claimed_at - %(s)s::interval, created_at = created_at - %(s)s::interval""",
            {"s": timedelta(seconds=seconds)},
        )
        for model in self.jobs.values():
            model.wait_s -= seconds
            if model.lease_left_s is not None:
                model.lease_left_s -= seconds

    @invariant()
    def every_job_is_as_its_model(self) -> None:
        rows = self.connection.execute(
            """SELECT id, status, lease_owner, attempts, max_attempts,
                      extract(epoch FROM lease_until - clock_timestamp())::float, claimed_at IS NULL
                 FROM payment_jobs"""
        ).fetchall()
        assert len(rows) == len(self.jobs)
        for job, status, owner, attempts, most, left, unclaimed in rows:
            model = self.jobs[job]
            assert (status, owner, attempts, most) == (model.status, model.owner, model.attempts, model.max_attempts)
            assert (left is None) == (model.lease_left_s is None) == unclaimed == (status != "Processing")
            if left is not None and model.lease_left_s is not None:
                assert abs(left - model.lease_left_s) < 10

    @invariant()
    def every_ended_attempt_has_exactly_one_end(self) -> None:
        found: dict[int, Counter[int]] = {job: Counter() for job in self.jobs}
        refused: Counter[int] = Counter()
        for job, event, attempt in self.connection.execute("SELECT job_id, event, attempt FROM payment_job_history"):
            if event in ENDS:
                found[job][attempt] += 1
            refused[job] += event == "late completion refused"
        for job, model in self.jobs.items():
            begun = range(1, model.attempts + 1 - (model.status == "Processing"))
            assert found[job] == model.ends == Counter(begun)
            assert refused[job] == model.refused


def test_the_protocol_does_what_its_model_says(dsn: str) -> None:
    Protocol.dsn = dsn
    run_state_machine_as_test(
        Protocol,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
            phases=[phase for phase in Phase if phase is not Phase.explain],
        ),
    )
