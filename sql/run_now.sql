-- Run now: an operator ends the wait of one job that is Pending and scheduled for later. Returns the row; zero rows:
-- nothing was changed, since the job is not as the operator saw it, is not Pending, or does not wait for its time.
--
-- Promises
--  * Guarded by id and by what the operator saw: status, owner, attempt and lease, all in :fence.
--  * Only run_after changes. No attempt is granted, none is given back, and the next failure backs off as ever.
--  * Who, why and the seen state, the time it would have waited for included, are in the history by the same statement.
WITH held AS MATERIALIZED (
    SELECT j.id, j.status, j.lease_owner, j.lease_until, j.attempts, j.stage, j.run_after, j.last_error
      FROM payment_jobs j
     WHERE j.id = :key_id::bigint
       AND ROW(j.status, j.lease_owner, j.attempts, j.lease_until)::text = :fence::text
       AND j.status = 'Pending'
       AND j.run_after > clock_timestamp()
       FOR UPDATE
), hurried AS (
    UPDATE payment_jobs j
       SET run_after = clock_timestamp()
      FROM held h
     WHERE j.id = h.id
       AND j.attempts = h.attempts
       AND j.status = 'Pending'
       AND j.run_after > clock_timestamp()
    RETURNING j.id, j.status, j.attempts, j.max_attempts
), act AS (
    INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, actor, reason, seen)
    SELECT h.id, 'run now', h.attempts, h.lease_owner, h.stage, :actor::text, :reason::text,
           jsonb_build_object('status', h.status, 'owner', h.lease_owner, 'attempt', h.attempts,
                              'lease_until', h.lease_until, 'stage', h.stage, 'error', left(h.last_error, 500),
                              'run_after', h.run_after)
      FROM held h
      JOIN hurried USING (id)
)
SELECT id, status, attempts, max_attempts FROM hurried
