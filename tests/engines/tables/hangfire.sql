-- Hangfire.PostgreSql, schema 23, as far as leasetop reads and writes it.
CREATE SCHEMA hangfire;

CREATE TABLE hangfire.job (
  id             bigserial PRIMARY KEY,
  stateid        bigint,
  statename      text,
  invocationdata jsonb NOT NULL,
  arguments      jsonb NOT NULL DEFAULT '[]',
  createdat      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON hangfire.job (statename);

CREATE TABLE hangfire.state (
  id        bigserial PRIMARY KEY,
  jobid     bigint NOT NULL REFERENCES hangfire.job ON DELETE CASCADE,
  name      text NOT NULL,
  reason    text,
  createdat timestamptz NOT NULL DEFAULT now(),
  data      jsonb
);

CREATE TABLE hangfire.jobqueue (
  id        bigserial PRIMARY KEY,
  jobid     bigint NOT NULL,
  queue     text NOT NULL,
  fetchedat timestamptz
);

CREATE TABLE hangfire.jobparameter (
  id    bigserial PRIMARY KEY,
  jobid bigint NOT NULL REFERENCES hangfire.job ON DELETE CASCADE,
  name  text NOT NULL,
  value text
);

CREATE TABLE hangfire.server (
  id            text PRIMARY KEY,
  data          jsonb,
  lastheartbeat timestamptz NOT NULL
);
