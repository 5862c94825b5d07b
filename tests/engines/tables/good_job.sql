-- good_job 4, as far as leasetop reads it. Rails writes instants without a zone, in UTC.
CREATE TABLE good_jobs (
  id                uuid PRIMARY KEY,
  active_job_id     uuid,
  job_class         text,
  queue_name        text,
  priority          integer,
  serialized_params jsonb,
  scheduled_at      timestamp(6),
  performed_at      timestamp(6),
  finished_at       timestamp(6),
  error             text,
  executions_count  integer,
  locked_by_id      uuid,
  locked_at         timestamp(6),
  created_at        timestamp(6) NOT NULL DEFAULT timezone('UTC', now()),
  updated_at        timestamp(6) NOT NULL DEFAULT timezone('UTC', now())
);
CREATE INDEX ON good_jobs (queue_name, scheduled_at) WHERE finished_at IS NULL;

CREATE TABLE good_job_processes (
  id         uuid PRIMARY KEY,
  state      jsonb,
  created_at timestamp(6) NOT NULL DEFAULT timezone('UTC', now()),
  updated_at timestamp(6) NOT NULL DEFAULT timezone('UTC', now())
);

CREATE TABLE good_job_executions (
  id            uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  active_job_id uuid NOT NULL,
  error         text,
  finished_at   timestamp(6),
  created_at    timestamp(6) NOT NULL DEFAULT timezone('UTC', now())
);
