-- delayed_job with ActiveRecord, as far as leasetop reads and writes it. Rails writes instants without a zone, in UTC.
CREATE TABLE delayed_jobs (
  id         bigserial PRIMARY KEY,
  priority   integer NOT NULL DEFAULT 0,
  attempts   integer NOT NULL DEFAULT 0,
  handler    text NOT NULL,
  last_error text,
  run_at     timestamp(6) DEFAULT timezone('UTC', now()),
  locked_at  timestamp(6),
  locked_by  varchar,
  failed_at  timestamp(6),
  queue      varchar,
  created_at timestamp(6) DEFAULT timezone('UTC', now()),
  updated_at timestamp(6) DEFAULT timezone('UTC', now())
);
CREATE INDEX ON delayed_jobs (priority, run_at);
