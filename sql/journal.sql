-- The operators' trace for queues that keep none of their own (leasetop init --journal). One row for each act that was
-- tried from leasetop on a queue whose tables are not leasetop's: who, when, why, what they saw, what came of it. The
-- home table needs no journal: its history is written by the same statement as the act.
CREATE TABLE IF NOT EXISTS leasetop_journal (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor  text        NOT NULL,
    queue  text        NOT NULL,
    act    text        NOT NULL,
    job    text[]      NOT NULL,
    reason text,
    seen   jsonb       NOT NULL,
    done   boolean     NOT NULL,
    result text        NOT NULL
);
CREATE INDEX IF NOT EXISTS leasetop_journal_at ON leasetop_journal USING brin (at);
