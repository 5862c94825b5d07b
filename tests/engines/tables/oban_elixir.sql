-- Oban for Elixir, schema 14, as far as leasetop reads and writes it. Instants without a zone, in UTC.
CREATE TYPE oban_job_state AS ENUM
  ('available', 'scheduled', 'suspended', 'executing', 'retryable', 'completed', 'discarded', 'cancelled');

CREATE TABLE oban_jobs (
  id           bigserial PRIMARY KEY,
  state        oban_job_state NOT NULL DEFAULT 'available',
  queue        text NOT NULL DEFAULT 'default',
  worker       text NOT NULL,
  priority     integer NOT NULL DEFAULT 0 CHECK (priority >= 0),
  attempt      integer NOT NULL DEFAULT 0,
  max_attempts integer NOT NULL DEFAULT 20 CHECK (max_attempts > 0),
  args         jsonb NOT NULL DEFAULT '{}',
  meta         jsonb DEFAULT '{}',
  -- An array of documents, where the Python edition has one document that is an array.
  errors       jsonb[] NOT NULL DEFAULT '{}',
  attempted_by text[],
  inserted_at  timestamp NOT NULL DEFAULT timezone('UTC', now()),
  scheduled_at timestamp NOT NULL DEFAULT timezone('UTC', now()),
  attempted_at timestamp,
  completed_at timestamp,
  discarded_at timestamp,
  cancelled_at timestamp,
  CHECK (attempt BETWEEN 0 AND max_attempts)
);
CREATE INDEX ON oban_jobs (state, queue, priority, scheduled_at, id);
