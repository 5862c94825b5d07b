-- Release what is parked: an operator lets one job that waited for a person (Stuck) run again, at once. Returns the row;
-- zero rows: nothing was changed, since the job is not as the operator saw it, is not Stuck, or its attempts are used
-- up. Granting a further attempt is a decision of its own: that is requeue.sql.
--
-- Promises
--  * Guarded by id and by what the operator saw: status, owner, attempt and lease, all in :fence.
--  * No attempt is granted: what could not be claimed is not said to be Pending.
--  * Attempts and history are kept; what a lease may have left behind is cleared; the stage stays, as evidence for the
--    next attempt.
--  * Who, why and the seen state are in the history by the same statement.
WITH held AS MATERIALIZED (
    SELECT j.id, j.status, j.lease_owner, j.lease_until, j.attempts, j.stage, j.run_after, j.last_error
      FROM payment_jobs j
     WHERE j.id = :key_id::bigint
       AND ROW(j.status, j.lease_owner, j.attempts, j.lease_until)::text = :fence::text
       AND j.status = 'Stuck'
       AND j.attempts < j.max_attempts
       FOR UPDATE
), released AS (
    UPDATE payment_jobs j
       SET status      = 'Pending',
           run_after   = clock_timestamp(),
           lease_owner = NULL,
           lease_until = NULL,
           lease_ttl   = NULL,
           claimed_at  = NULL,
           finished_at = NULL
      FROM held h
     WHERE j.id = h.id
       AND j.attempts = h.attempts
       AND j.status = 'Stuck'
       AND j.attempts < j.max_attempts
    RETURNING j.id, j.status, j.attempts, j.max_attempts
), act AS (
    INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, actor, reason, seen)
    SELECT h.id, 'released by an operator', h.attempts, h.lease_owner, h.stage, :actor::text, :reason::text,
           jsonb_build_object('status', h.status, 'owner', h.lease_owner, 'attempt', h.attempts,
                              'lease_until', h.lease_until, 'stage', h.stage, 'error', left(h.last_error, 500),
                              'run_after', h.run_after)
      FROM held h
      JOIN released USING (id)
)
SELECT id, status, attempts, max_attempts FROM released
