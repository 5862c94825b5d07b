-- Release: :owner gives back the jobs (:ids[n], :attempts[n]) undone, at a polite shutdown. Pending at once, no
-- back-off; the attempt stays spent, and one more is granted where it was the last. Returns the released ids;
-- a token that is missing there had lost its lease already.
--
-- Promises: guarded by id, Processing, owner and attempt; the history is written in the same statement; rows are
-- locked in the order of their ids; one look-up by id a token, whatever the planner believes (see complete.sql).
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
              FOR UPDATE) j
), released AS (
    UPDATE payment_jobs j
       SET status       = 'Pending',
           run_after    = clock_timestamp(),
           max_attempts = greatest(j.max_attempts, j.attempts + 1),
           stage        = (ARRAY(SELECT stage FROM mine))[array_position(ARRAY(SELECT id FROM mine), j.id)],
           lease_owner  = NULL,
           lease_until  = NULL,
           lease_ttl    = NULL,
           claimed_at   = NULL
     WHERE j.id = ANY (ARRAY(SELECT id FROM mine))
       AND j.status = 'Processing'
       AND j.lease_owner = :owner::text
       AND j.attempts = (ARRAY(SELECT attempt FROM mine))[array_position(ARRAY(SELECT id FROM mine), j.id)]
    RETURNING j.id
), ended AS (
    INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, started_at, reason)
    SELECT id, 'released', attempt, :owner::text, stage, claimed_at, :reason::text
      FROM mine
     WHERE id = ANY (ARRAY(SELECT id FROM released))
)
SELECT id FROM released
