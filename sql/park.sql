-- Park: an operator takes one job out of the queue until a person decides: Stuck. No claim, takeover or sweep touches
-- it there. Returns the row; zero rows: nothing was changed, since the job is not as the operator saw it, its lease is
-- live, or it is parked or finished already.
--
-- Promises
--  * Guarded by id and by what the operator saw: status, owner, attempt and lease, all in :fence.
--  * A live lease is never taken; there is no force. Completed, Cancelled and Stuck are never parked.
--  * Attempts, stage, error and history are kept, as evidence; owner, lease and finished_at are cleared. No further
--    attempt is granted.
--  * The end of an attempt that was open, and who, why and the seen state, are in the history by the same statement.
WITH held AS MATERIALIZED (
    SELECT j.id, j.status, j.lease_owner, j.lease_until, j.attempts, j.stage, j.claimed_at, j.run_after, j.last_error
      FROM payment_jobs j
     WHERE j.id = :key_id::bigint
       AND ROW(j.status, j.lease_owner, j.attempts, j.lease_until)::text = :fence::text
       AND (j.status IN ('Pending', 'Failed')
            OR (j.status = 'Processing' AND (j.lease_until IS NULL OR j.lease_until < clock_timestamp())))
       FOR UPDATE
), parked AS (
    UPDATE payment_jobs j
       SET status      = 'Stuck',
           lease_owner = NULL,
           lease_until = NULL,
           lease_ttl   = NULL,
           claimed_at  = NULL,
           finished_at = NULL
      FROM held h
     WHERE j.id = h.id
       AND j.status = h.status
       AND j.attempts = h.attempts
       AND (j.status <> 'Processing' OR j.lease_until IS NULL OR j.lease_until < clock_timestamp())
    RETURNING j.id, j.status, j.attempts, j.max_attempts
), ended AS (
    INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, started_at, actor, reason)
    SELECT h.id, CASE WHEN h.lease_until < clock_timestamp() THEN 'expired' ELSE 'revoked' END,
           h.attempts, h.lease_owner, h.stage, h.claimed_at, :actor::text, 'parked by an operator'
      FROM held h
      JOIN parked USING (id)
     WHERE h.status = 'Processing'
    RETURNING id
), act AS (
    INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, actor, reason, seen)
    SELECT h.id, 'parked', h.attempts, h.lease_owner, h.stage, :actor::text, :reason::text,
           jsonb_build_object('status', h.status, 'owner', h.lease_owner, 'attempt', h.attempts,
                              'lease_until', h.lease_until, 'stage', h.stage, 'error', left(h.last_error, 500),
                              'run_after', h.run_after)
      FROM held h
      JOIN parked USING (id)
     -- The end of the attempt first, then the act: the history reads in the order of its ids.
     CROSS JOIN (SELECT count(*) FROM ended) AS first
)
SELECT id, status, attempts, max_attempts FROM parked
