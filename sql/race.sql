-- The race, shown (leasetop demo --race): the same jobs twice, once for workers that read and then write, once for workers
-- that claim by one conditional UPDATE. Run at the start of each race: everything begins anew.
DROP TABLE IF EXISTS demo_race_jobs;
CREATE TABLE demo_race_jobs (
    lane       text    NOT NULL,
    id         integer NOT NULL,
    status     text    NOT NULL DEFAULT 'Pending',
    owner      text,
    executions integer NOT NULL DEFAULT 0,
    owners     text[]  NOT NULL DEFAULT '{}',
    PRIMARY KEY (lane, id)
);
CREATE INDEX demo_race_ready ON demo_race_jobs (lane, id) WHERE status = 'Pending';

COMMENT ON TABLE  demo_race_jobs IS 'The race of the demo. Made by leasetop (sql/race.sql).';
COMMENT ON COLUMN demo_race_jobs.lane IS 'naive: SELECT, then UPDATE. conditional: one UPDATE that states its condition.';
COMMENT ON COLUMN demo_race_jobs.id IS 'The job; the same in both lanes.';
COMMENT ON COLUMN demo_race_jobs.status IS 'Pending, Processing or Completed.';
COMMENT ON COLUMN demo_race_jobs.owner IS 'Who took it last.';
COMMENT ON COLUMN demo_race_jobs.executions IS 'How often it was done. More than once is a customer charged twice.';
COMMENT ON COLUMN demo_race_jobs.owners IS 'Who did it.';

INSERT INTO demo_race_jobs (lane, id)
SELECT lane, id FROM unnest(ARRAY['naive', 'conditional']) AS lane, generate_series(1, 2000) AS id;
