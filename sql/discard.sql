-- Discard: an operator cancels one job for good. Returns the row; zero rows: nothing was changed, since the job is not
-- as the operator saw it, its lease is live, or it is Completed or Cancelled already.
--
-- Promises
--  * Guarded by id and by what the operator saw: status, owner, attempt and lease, all in :fence.
--  * A live lease is never taken; there is no force. A payment that was made (Completed) is never discarded.
--  * Attempts, stage, error and history are kept, as evidence; owner and lease are cleared; finished_at is now.
--  * Who still works at it cannot complete it: its token is gone, and its late completion is refused and recorded.
--  * The end of an attempt that was open, and who, why and the seen state, are in the history by the same statement.
WITH held AS MATERIALIZED (
    SELECT j.id, j.status, j.lease_owner, j.lease_until, j.attempts, j.stage, j.claimed_at, j.run_after, j.last_error
      FROM payment_jobs j
     WHERE j.id = :key_id::bigint
       AND ROW(j.status, j.lease_owner, j.attempts, j.lease_until)::text = :fence::text
       AND (j.status IN ('Pending', 'Stuck', 'Failed')
            OR (j.status = 'Processing' AND (j.lease_until IS NULL OR j.lease_until < clock_timestamp())))
       FOR UPDATE
), discarded AS (
    UPDATE payment_jobs j
       SET status      = 'Cancelled',
           lease_owner = NULL,
           lease_until = NULL,
           lease_ttl   = NULL,
           claimed_at  = NULL,
           finished_at = clock_timestamp()
      FROM held h
     WHERE j.id = h.id
       AND j.status = h.status
       AND j.attempts = h.attempts
       AND (j.status <> 'Processing' OR j.lease_until IS NULL OR j.lease_until < clock_timestamp())
    RETURNING j.id, j.status, j.attempts, j.max_attempts
), ended AS (
    INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, started_at, actor, reason)
    SELECT h.id, CASE WHEN h.lease_until < clock_timestamp() THEN 'expired' ELSE 'revoked' END,
           h.attempts, h.lease_owner, h.stage, h.claimed_at, :actor::text, 'discarded by an operator'
      FROM held h
      JOIN discarded USING (id)
     WHERE h.status = 'Processing'
    RETURNING id
), act AS (
    INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, actor, reason, seen)
    SELECT h.id, 'discarded', h.attempts, h.lease_owner, h.stage, :actor::text, :reason::text,
           jsonb_build_object('status', h.status, 'owner', h.lease_owner, 'attempt', h.attempts,
                              'lease_until', h.lease_until, 'stage', h.stage, 'error', left(h.last_error, 500),
                              'run_after', h.run_after)
      FROM held h
      JOIN discarded USING (id)
     -- The end of the attempt first, then the act: the history reads in the order of its ids.
     CROSS JOIN (SELECT count(*) FROM ended) AS first
)
SELECT id, status, attempts, max_attempts FROM discarded
