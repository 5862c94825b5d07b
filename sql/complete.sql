-- Complete: the jobs (:ids[n], :attempts[n]) of :owner are done. Returns one row a token with what became of it:
--   completed  done, and the history says so in the same statement;
--   refused    the lease had passed on: nothing was changed, and the history says 'late completion refused', since
--              the payment may have been made twice outside;
--   busy       somebody holds the row locked right now: try again.
--
-- Promises: guarded by id, Processing, owner and attempt; Completed is final. Not guarded by lease_until: work that
-- is done and that nobody else has begun again is recorded as done, since the other way leads to a second run.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(:ids::bigint[], :attempts::integer[], :stages::text[]) AS a (id, attempt, stage)
), mine AS MATERIALIZED (
    SELECT j.id, a.attempt, coalesce(a.stage, j.stage) AS stage, j.claimed_at
      FROM payment_jobs j
      JOIN asked a ON a.id = j.id
     WHERE j.status = 'Processing'
       AND j.lease_owner = :owner::text
       AND j.attempts = a.attempt
     ORDER BY j.id
       FOR UPDATE OF j SKIP LOCKED
), done AS (
    UPDATE payment_jobs j
       SET status      = 'Completed',
           stage       = m.stage,
           lease_owner = NULL,
           lease_until = NULL,
           lease_ttl   = NULL,
           claimed_at  = NULL,
           finished_at = clock_timestamp(),
           last_error  = NULL
      FROM mine m
     WHERE j.id = m.id
       AND j.status = 'Processing'
       AND j.lease_owner = :owner::text
       AND j.attempts = m.attempt
    RETURNING j.id, j.attempts
), ended AS (
    INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, started_at)
    SELECT m.id, 'completed', m.attempt, :owner::text, m.stage, m.claimed_at
      FROM mine m
      JOIN done d ON d.id = m.id AND d.attempts = m.attempt
), outcome AS MATERIALIZED (
    SELECT a.id, a.attempt, a.stage,
           CASE WHEN d.id IS NOT NULL THEN 'completed'
                WHEN EXISTS (SELECT FROM payment_jobs j
                              WHERE j.id = a.id
                                AND j.status = 'Processing'
                                AND j.lease_owner = :owner::text
                                AND j.attempts = a.attempt) THEN 'busy'
                ELSE 'refused' END AS outcome
      FROM asked a
      LEFT JOIN done d ON d.id = a.id AND d.attempts = a.attempt
), late AS (
    INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, reason)
    SELECT o.id, 'late completion refused', o.attempt, :owner::text, o.stage,
           'the lease had passed on; check whether the payment was made twice'
      FROM outcome o
     WHERE o.outcome = 'refused'
)
SELECT id, attempt, outcome FROM outcome
