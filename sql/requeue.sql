-- Requeue: an operator returns one job to Pending. Returns the row; zero rows: nothing was changed, since the job
-- is not as the operator saw it, is Completed, or (unless :force) its lease is live.
--
-- Promises
--  * Guarded by id and by what the operator saw: status, owner, attempt and lease, all in :fence.
--  * Completed, Cancelled and Pending are never requeued; a live lease only by :force, which is an act of its own.
--  * Attempts and history are kept; owner, lease and old times are cleared; one more attempt is granted where they
--    are used up; the stage stays, as evidence for the next attempt.
--  * The end of an attempt that was open, and who, why and the seen state, are in the history by the same statement.
WITH held AS MATERIALIZED (
    SELECT j.id, j.status, j.lease_owner, j.lease_until, j.attempts, j.stage, j.claimed_at, j.last_error
      FROM payment_jobs j
     WHERE j.id = :key_id::bigint
       AND ROW(j.status, j.lease_owner, j.attempts, j.lease_until)::text = :fence::text
       AND (j.status IN ('Stuck', 'Failed')
            OR (j.status = 'Processing'
                AND (:force::boolean OR j.lease_until IS NULL OR j.lease_until < clock_timestamp())))
       FOR UPDATE
), requeued AS (
    UPDATE payment_jobs j
       SET status       = 'Pending',
           run_after    = clock_timestamp(),
           max_attempts = greatest(j.max_attempts, j.attempts + 1),
           lease_owner  = NULL,
           lease_until  = NULL,
           lease_ttl    = NULL,
           claimed_at   = NULL,
           finished_at  = NULL
      FROM held h
     WHERE j.id = h.id
       AND j.status = h.status
       AND j.attempts = h.attempts
       AND (j.status <> 'Processing'
            OR :force::boolean OR j.lease_until IS NULL OR j.lease_until < clock_timestamp())
    RETURNING j.id, j.status, j.attempts, j.max_attempts
), ended AS (
    INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, started_at, actor, reason)
    SELECT h.id, CASE WHEN h.lease_until < clock_timestamp() THEN 'expired' ELSE 'revoked' END,
           h.attempts, h.lease_owner, h.stage, h.claimed_at, :actor::text, 'requeued by an operator'
      FROM held h
      JOIN requeued USING (id)
     WHERE h.status = 'Processing'
    RETURNING id
), act AS (
    INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, actor, reason, seen)
    SELECT h.id, 'requeued', h.attempts, h.lease_owner, h.stage, :actor::text, :reason::text,
           jsonb_build_object('status', h.status, 'owner', h.lease_owner, 'attempt', h.attempts,
                              'lease_until', h.lease_until, 'stage', h.stage, 'error', left(h.last_error, 500),
                              'forced', :force::boolean)
      FROM held h
      JOIN requeued USING (id)
     -- The end of the attempt first, then the act: the history reads in the order of its ids.
     CROSS JOIN (SELECT count(*) FROM ended) AS first
)
SELECT id, status, attempts, max_attempts FROM requeued
