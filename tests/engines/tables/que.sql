-- Que after its migration 7, as far as leasetop reads and writes it.
CREATE TABLE que_jobs (
  id                   bigserial PRIMARY KEY,
  priority             smallint NOT NULL DEFAULT 100,
  run_at               timestamptz NOT NULL DEFAULT now(),
  job_class            text NOT NULL,
  queue                text NOT NULL DEFAULT 'default',
  error_count          integer NOT NULL DEFAULT 0,
  last_error_message   text,
  last_error_backtrace text,
  finished_at          timestamptz,
  expired_at           timestamptz,
  args                 jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(args) = 'array')
);

CREATE INDEX ON que_jobs (queue, priority, run_at, id) WHERE finished_at IS NULL AND expired_at IS NULL;

-- A row for each process that works; its backend holds the advisory locks of its jobs.
CREATE UNLOGGED TABLE que_lockers (
  pid           integer PRIMARY KEY,
  ruby_pid      integer NOT NULL,
  ruby_hostname text NOT NULL
);
