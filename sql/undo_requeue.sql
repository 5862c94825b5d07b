-- Undo a requeue: an operator takes one back while nobody has touched the job since. :fence and :since (run_after) are
-- of the job as the requeue left it, :status and :max_attempts are those from before. Returns the row; zero rows:
-- nothing was changed, since the job was claimed, moved or changed meanwhile, or was not requeued from :status.
--
-- Promises
--  * Guarded by id, by :fence, by run_after to the microsecond, by max_attempts as the requeue granted it, and by the
--    history: only a requeue of this very attempt, that saw :status, is taken back, and no other Pending job.
--  * Back to Stuck or Failed as it was. Processing becomes Stuck: that lease was over or taken, and is not given back;
--    what came of the attempt, a person has to find out. No other :status is ever set.
--  * The granted attempt is taken back; attempts, stage, error and history stay. Failed counts as finished from now on.
--  * Who, why and the seen state are in the history by the same statement; what the requeue wrote stays there.
WITH held AS MATERIALIZED (
    SELECT j.id, j.status, j.lease_owner, j.lease_until, j.attempts, j.max_attempts, j.stage, j.run_after, j.last_error
      FROM payment_jobs j
     WHERE j.id = :key_id::bigint
       AND ROW(j.status, j.lease_owner, j.attempts, j.lease_until)::text = :fence::text
       AND j.status = 'Pending'
       AND j.run_after = :since::timestamptz
       AND j.max_attempts = greatest(:max_attempts::integer, j.attempts + 1)
       AND :status::text IN ('Stuck', 'Failed', 'Processing')
       AND EXISTS (
           SELECT FROM payment_job_history r
            WHERE r.job_id = j.id
              AND r.event = 'requeued'
              AND r.attempt = j.attempts
              AND r.seen ->> 'status' = :status::text)
       FOR UPDATE
), undone AS (
    UPDATE payment_jobs j
       SET status       = CASE WHEN :status::text = 'Processing' THEN 'Stuck' ELSE :status::text END,
           max_attempts = :max_attempts::integer,
           finished_at  = CASE WHEN :status::text = 'Failed' THEN clock_timestamp() END
      FROM held h
     WHERE j.id = h.id
       AND j.attempts = h.attempts
       AND j.status = 'Pending'
       AND j.run_after = :since::timestamptz
       AND j.max_attempts = greatest(:max_attempts::integer, j.attempts + 1)
    RETURNING j.id, j.status, j.attempts, j.max_attempts
), act AS (
    INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, actor, reason, seen)
    SELECT h.id, 'requeue undone', h.attempts, h.lease_owner, h.stage, :actor::text, :reason::text,
           jsonb_build_object('status', h.status, 'owner', h.lease_owner, 'attempt', h.attempts,
                              'lease_until', h.lease_until, 'stage', h.stage, 'error', left(h.last_error, 500),
                              'run_after', h.run_after, 'max_attempts', h.max_attempts)
      FROM held h
      JOIN undone USING (id)
)
SELECT id, status, attempts, max_attempts FROM undone
