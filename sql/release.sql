-- Release: :owner gives back the jobs (:ids[n], :attempts[n]) undone, at a polite shutdown. Pending at once, no
-- back-off; the attempt stays spent, and one more is granted where it was the last. Returns the released ids;
-- a token that is missing there had lost its lease already.
--
-- Promises: guarded by id, Processing, owner and attempt; the history is written in the same statement.
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
       FOR UPDATE OF j
), released AS (
    UPDATE payment_jobs j
       SET status       = 'Pending',
           run_after    = clock_timestamp(),
           max_attempts = greatest(j.max_attempts, j.attempts + 1),
           stage        = m.stage,
           lease_owner  = NULL,
           lease_until  = NULL,
           lease_ttl    = NULL,
           claimed_at   = NULL
      FROM mine m
     WHERE j.id = m.id
       AND j.status = 'Processing'
       AND j.lease_owner = :owner::text
       AND j.attempts = m.attempt
    RETURNING j.id
), ended AS (
    INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, started_at, reason)
    SELECT m.id, 'released', m.attempt, :owner::text, m.stage, m.claimed_at, :reason::text
      FROM mine m
      JOIN released r USING (id)
)
SELECT id FROM released
