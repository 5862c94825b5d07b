-- River after its migration 7, as far as leasetop reads and writes it.
CREATE TYPE river_job_state AS ENUM
  ('available', 'cancelled', 'completed', 'discarded', 'pending', 'retryable', 'running', 'scheduled');

CREATE TABLE river_job (
  id           bigserial PRIMARY KEY,
  state        river_job_state NOT NULL DEFAULT 'available',
  kind         text NOT NULL,
  queue        text NOT NULL DEFAULT 'default',
  priority     smallint NOT NULL DEFAULT 1 CHECK (priority BETWEEN 1 AND 4),
  attempt      smallint NOT NULL DEFAULT 0,
  max_attempts smallint NOT NULL CHECK (max_attempts > 0),
  args         jsonb NOT NULL DEFAULT '{}',
  metadata     jsonb NOT NULL DEFAULT '{}',
  errors       jsonb[],
  attempted_by text[],
  created_at   timestamptz NOT NULL DEFAULT now(),
  scheduled_at timestamptz NOT NULL DEFAULT now(),
  attempted_at timestamptz,
  finalized_at timestamptz,
  unique_key   bytea,
  -- Final states have the instant, the others have none: whoever changes the state must change both.
  CHECK ((finalized_at IS NOT NULL) = (state IN ('cancelled', 'completed', 'discarded')))
);

-- Unique among jobs that are not over. The library keeps the states in a bitmap of each job; these are its default.
CREATE UNIQUE INDEX ON river_job (unique_key)
  WHERE unique_key IS NOT NULL AND state IN ('available', 'pending', 'retryable', 'running', 'scheduled');
