-- leasetop's home table, its history and the watchers' own heartbeats.
--
-- Idempotent: run it as often as you like. It creates what is missing, and changes nothing that is there.
-- Everything is created in the first schema of the search_path.

CREATE TABLE IF NOT EXISTS payment_jobs (
    id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind            text        NOT NULL DEFAULT 'charge',
    idempotency_key text        NOT NULL UNIQUE,
    amount          numeric     NOT NULL CHECK (amount > 0),
    currency        text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    payload         jsonb       NOT NULL DEFAULT '{}',
    status          text        NOT NULL DEFAULT 'Pending'
                    CONSTRAINT payment_jobs_known_status
                    CHECK (status IN ('Pending', 'Processing', 'Stuck', 'Completed', 'Failed', 'Cancelled')),
    stage           text,
    lease_owner     text,
    lease_until     timestamptz,
    lease_ttl       interval,
    claimed_at      timestamptz,
    heartbeats      integer     NOT NULL DEFAULT 0,
    attempts        integer     NOT NULL DEFAULT 0,
    max_attempts    integer     NOT NULL DEFAULT 5 CHECK (max_attempts > 0),
    run_after       timestamptz NOT NULL DEFAULT now(),
    created_at      timestamptz NOT NULL DEFAULT now(),
    finished_at     timestamptz,
    last_error      text
)
-- A heartbeat rewrites its row: room on the page keeps that update HOT, so no index is touched.
WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

COMMENT ON TABLE  payment_jobs IS 'Payments to make, handed out by lease. Made by leasetop (sql/schema.sql).';
COMMENT ON COLUMN payment_jobs.id IS 'The job.';
COMMENT ON COLUMN payment_jobs.kind IS 'What to do: charge, refund, payout, ...';
COMMENT ON COLUMN payment_jobs.idempotency_key IS 'Sent to the payment provider with every attempt, so that a repeated attempt cannot charge twice. Unique: the same payment cannot be enqueued twice.';
COMMENT ON COLUMN payment_jobs.amount IS 'How much, in units of the currency, exact.';
COMMENT ON COLUMN payment_jobs.currency IS 'ISO 4217 code.';
COMMENT ON COLUMN payment_jobs.payload IS 'What the handler needs. Never read by lists.';
COMMENT ON COLUMN payment_jobs.status IS 'Pending, Processing, Stuck (parked for a person), Completed, Failed or Cancelled. Expiry is not stored: it is Processing with lease_until in the past.';
COMMENT ON COLUMN payment_jobs.stage IS 'How far the work got, as the latest worker said: authorize, capture, settle, ...';
COMMENT ON COLUMN payment_jobs.lease_owner IS 'Who holds the lease: name/pid/random of one worker process. Null unless Processing.';
COMMENT ON COLUMN payment_jobs.lease_until IS 'When the lease ends by itself, on the clock of this server. In no index, so that heartbeats stay HOT.';
COMMENT ON COLUMN payment_jobs.lease_ttl IS 'How long the claim or heartbeat that set lease_until lasts: the full length of a countdown. Null unless Processing.';
COMMENT ON COLUMN payment_jobs.claimed_at IS 'When the current attempt began. Null unless Processing.';
COMMENT ON COLUMN payment_jobs.heartbeats IS 'Heartbeats of the current attempt so far.';
COMMENT ON COLUMN payment_jobs.attempts IS 'Attempts begun, the current one included. Spent at the claim and never given back. With lease_owner it is the token that fences every later write of a worker.';
COMMENT ON COLUMN payment_jobs.max_attempts IS 'No claim beyond this many attempts. A requeue by an operator grants one more where they are used up. Undoing that requeue takes it back.';
COMMENT ON COLUMN payment_jobs.run_after IS 'Not claimable before: back-off and planned starts. A column, so that the wait survives every crash.';
COMMENT ON COLUMN payment_jobs.created_at IS 'When the job was enqueued.';
COMMENT ON COLUMN payment_jobs.finished_at IS 'When it became Completed, Failed or Cancelled.';
COMMENT ON COLUMN payment_jobs.last_error IS 'What the latest failed attempt said, cut and without NUL bytes. The whole story is in payment_job_history.';

-- One partial index for each question that is asked all the time; a finished job is in the last-but-one only.
CREATE INDEX IF NOT EXISTS payment_jobs_ready      ON payment_jobs (run_after, id) WHERE status = 'Pending';
CREATE INDEX IF NOT EXISTS payment_jobs_processing ON payment_jobs (id)            WHERE status = 'Processing';
CREATE INDEX IF NOT EXISTS payment_jobs_parked     ON payment_jobs (id)            WHERE status = 'Stuck';
CREATE INDEX IF NOT EXISTS payment_jobs_finished   ON payment_jobs (status, finished_at)
    WHERE status IN ('Completed', 'Failed', 'Cancelled');
-- Empty while payment_jobs_known_status stands; should somebody drop it, unknown states stay cheap to see.
CREATE INDEX IF NOT EXISTS payment_jobs_other      ON payment_jobs (id)
    WHERE status NOT IN ('Pending', 'Processing', 'Stuck', 'Completed', 'Failed', 'Cancelled');

-- Append-only: one row for each ended attempt, and one for each act of an operator. Written by the same
-- statement that changes the job, so that the two cannot disagree. No foreign key: the history outlives the job.
CREATE TABLE IF NOT EXISTS payment_job_history (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id     bigint      NOT NULL,
    event      text        NOT NULL,
    attempt    integer     NOT NULL,
    owner      text,
    stage      text,
    error      text,
    started_at timestamptz,
    ended_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor      text,
    reason     text,
    seen       jsonb
);

COMMENT ON TABLE  payment_job_history IS 'Every ended attempt and every operator''s act. Append-only. Made by leasetop (sql/schema.sql).';
COMMENT ON COLUMN payment_job_history.id IS 'Grows with time: the newest rows are read from this end.';
COMMENT ON COLUMN payment_job_history.job_id IS 'payment_jobs.id';
COMMENT ON COLUMN payment_job_history.event IS 'Ends of an attempt: completed, failed, released, expired, revoked (an operator took a lease that was not over). Acts: requeued, requeue undone, discarded, run now, parked, released by an operator. Warnings: late completion refused.';
COMMENT ON COLUMN payment_job_history.attempt IS 'Which attempt, from 1.';
COMMENT ON COLUMN payment_job_history.owner IS 'Who held that attempt''s lease.';
COMMENT ON COLUMN payment_job_history.stage IS 'How far that attempt got.';
COMMENT ON COLUMN payment_job_history.error IS 'What that attempt said when it failed.';
COMMENT ON COLUMN payment_job_history.started_at IS 'When that attempt was claimed.';
COMMENT ON COLUMN payment_job_history.ended_at IS 'When this happened.';
COMMENT ON COLUMN payment_job_history.actor IS 'Who did it, where that was not the owner: an operator, a watcher, the worker that took over.';
COMMENT ON COLUMN payment_job_history.reason IS 'Why, in the words of whoever did it.';
COMMENT ON COLUMN payment_job_history.seen IS 'What an operator had before their eyes when they acted.';

CREATE INDEX IF NOT EXISTS payment_job_history_job  ON payment_job_history (job_id, id);
CREATE INDEX IF NOT EXISTS payment_job_history_time ON payment_job_history USING brin (ended_at) WITH (pages_per_range = 16);

-- One row for each watcher process: is anybody sweeping, and when did they last?
CREATE TABLE IF NOT EXISTS leasetop_watchers (
    name       text        PRIMARY KEY,
    policy     text        NOT NULL,
    interval   interval    NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    sweeps     bigint      NOT NULL DEFAULT 0,
    swept      bigint      NOT NULL DEFAULT 0
);

COMMENT ON TABLE  leasetop_watchers IS 'The watchers'' own heartbeats. Made by leasetop (sql/schema.sql).';
COMMENT ON COLUMN leasetop_watchers.name IS 'name/pid/random of one watcher process.';
COMMENT ON COLUMN leasetop_watchers.policy IS 'requeue or park: what it does with an expired lease.';
COMMENT ON COLUMN leasetop_watchers.interval IS 'How often it means to sweep.';
COMMENT ON COLUMN leasetop_watchers.started_at IS 'When it started.';
COMMENT ON COLUMN leasetop_watchers.seen_at IS 'When it last finished a sweep.';
COMMENT ON COLUMN leasetop_watchers.sweeps IS 'Sweeps since it started.';
COMMENT ON COLUMN leasetop_watchers.swept IS 'Expired leases that it ended since it started.';
