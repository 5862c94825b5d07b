-- Complete: the jobs (:ids[n], :attempts[n]) of :owner are done. Returns one row a token with what became of it:
--   completed  done, and the history says so in the same statement; or done by this token before, where the
--              answer to that was lost on its way: asking twice is safe;
--   refused    the lease had passed on: nothing was changed, and the history says 'late completion refused', since
--              the payment may have been made twice outside;
--   busy       somebody holds the row locked right now: try again. Common for a moment: a claim that raced for the
--              row and lost keeps it locked until its own end.
--
-- Promises
--  * Guarded by id, Processing, owner and attempt; Completed is final. Not guarded by lease_until: work that is done
--    and that nobody else has begun again is recorded as done, since the other way leads to a second run.
--  * Each token costs one look-up by id, whatever the planner believes: its figures for the few rows in Processing
--    are always out of date, and joins chosen by them cost the square of the batch.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(:ids::bigint[], :attempts::integer[], :stages::text[]) AS a (id, attempt, stage)
     ORDER BY id
), mine AS MATERIALIZED (
    SELECT a.id, a.attempt, coalesce(a.stage, j.stage) AS stage, j.claimed_at
      FROM asked a
     CROSS JOIN LATERAL (
           SELECT stage, claimed_at
             FROM payment_jobs
            WHERE id = a.id
              AND status = 'Processing'
              AND lease_owner = :owner::text
              AND attempts = a.attempt
              FOR UPDATE SKIP LOCKED) j
), done AS (
    UPDATE payment_jobs j
       SET status      = 'Completed',
           stage       = (ARRAY(SELECT stage FROM mine))[array_position(ARRAY(SELECT id FROM mine), j.id)],
           lease_owner = NULL,
           lease_until = NULL,
           lease_ttl   = NULL,
           claimed_at  = NULL,
           finished_at = clock_timestamp(),
           last_error  = NULL
     WHERE j.id = ANY (ARRAY(SELECT id FROM mine))
       AND j.status = 'Processing'
       AND j.lease_owner = :owner::text
       AND j.attempts = (ARRAY(SELECT attempt FROM mine))[array_position(ARRAY(SELECT id FROM mine), j.id)]
    RETURNING j.id, j.attempts
), ended AS (
    INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, started_at)
    SELECT id, 'completed', attempt, :owner::text, stage, claimed_at
      FROM mine
     WHERE id = ANY (ARRAY(SELECT id FROM done))
), outcome AS MATERIALIZED (
    SELECT a.id, a.attempt, a.stage,
           CASE WHEN (a.id, a.attempt) IN (SELECT id, attempts FROM done) THEN 'completed'
                WHEN EXISTS (SELECT FROM payment_job_history h
                              WHERE h.job_id = a.id
                                AND h.attempt = a.attempt
                                AND h.owner = :owner::text
                                AND h.event = 'completed') THEN 'completed'
                WHEN EXISTS (SELECT FROM payment_jobs j
                              WHERE j.id = a.id
                                AND j.status = 'Processing'
                                AND j.lease_owner = :owner::text
                                AND j.attempts = a.attempt) THEN 'busy'
                ELSE 'refused' END AS outcome
      FROM asked a
), late AS (
    INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, reason)
    SELECT o.id, 'late completion refused', o.attempt, :owner::text, o.stage,
           'the lease had passed on; check whether the payment was made twice'
      FROM outcome o
     WHERE o.outcome = 'refused'
)
SELECT id, attempt, outcome FROM outcome
