-- Fail: the attempt (:id, :attempt) of :owner ended with :error. With :retry and attempts left the job goes back to
-- Pending, to run after an exponential back-off with full jitter (:backoff doubled for each attempt, at most
-- :backoff_cap); otherwise it is Failed. Returns the new status and run_after; zero rows: the lease is lost.
--
-- Promises: guarded by id, Processing, owner and attempt; the history is written in the same statement; the wait is
-- the column run_after, so that it survives every crash. NUL bytes and length of :error are the caller's to mend
-- (worker.py): recording a failure must not itself fail.
WITH mine AS MATERIALIZED (
    SELECT id, attempts, max_attempts, coalesce(:stage::text, stage) AS stage, claimed_at
      FROM payment_jobs
     WHERE id = :id::bigint
       AND status = 'Processing'
       AND lease_owner = :owner::text
       AND attempts = :attempt::integer
       FOR UPDATE
), failed AS (
    UPDATE payment_jobs j
       SET status      = CASE WHEN :retry::boolean AND j.attempts < j.max_attempts THEN 'Pending' ELSE 'Failed' END,
           run_after   = CASE WHEN :retry::boolean AND j.attempts < j.max_attempts
                              THEN clock_timestamp() + random() * least(:backoff_cap::interval,
                                       :backoff::interval * power(2, least(j.attempts, 30) - 1))
                              ELSE j.run_after END,
           finished_at = CASE WHEN :retry::boolean AND j.attempts < j.max_attempts THEN NULL
                              ELSE clock_timestamp() END,
           stage       = m.stage,
           lease_owner = NULL,
           lease_until = NULL,
           lease_ttl   = NULL,
           claimed_at  = NULL,
           last_error  = :error::text
      FROM mine m
     WHERE j.id = m.id
       AND j.status = 'Processing'
       AND j.lease_owner = :owner::text
       AND j.attempts = :attempt::integer
    RETURNING j.id, j.status, j.run_after
), ended AS (
    INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, error, started_at, reason)
    SELECT m.id, 'failed', m.attempts, :owner::text, m.stage, :error::text, m.claimed_at,
           CASE WHEN f.status = 'Pending' THEN 'will be tried again'
                WHEN :retry::boolean THEN 'attempts used up'
                ELSE 'failed for good' END
      FROM mine m
      JOIN failed f USING (id)
)
SELECT id, status, run_after FROM failed
