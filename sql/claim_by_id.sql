-- Claim one job by its id: the same condition as claim.sql, for :id only.
--
-- Promises: those of claim.sql. Zero rows: it is not there, not claimable now, or somebody else has it.
WITH candidate AS MATERIALIZED (
    SELECT id, status, lease_owner, attempts, stage, claimed_at
      FROM payment_jobs
     WHERE id = :id::bigint
       AND attempts < max_attempts
       AND (   (status = 'Pending' AND run_after <= statement_timestamp())
            OR (:takeover::boolean AND status = 'Processing' AND lease_until < clock_timestamp()))
       FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE payment_jobs j
       SET status      = 'Processing',
           lease_owner = :owner::text,
           lease_until = clock_timestamp() + :ttl::interval,
           lease_ttl   = :ttl::interval,
           claimed_at  = clock_timestamp(),
           heartbeats  = 0,
           attempts    = j.attempts + 1
      FROM candidate c
     WHERE j.id = c.id
       AND j.attempts < j.max_attempts
       AND (   (j.status = 'Pending' AND j.run_after <= statement_timestamp())
            OR (:takeover::boolean AND j.status = 'Processing' AND j.lease_until < clock_timestamp()))
    RETURNING j.id, j.attempts, j.max_attempts, j.lease_owner, j.lease_until, j.kind, j.idempotency_key,
              j.amount, j.currency, j.payload, j.stage
), lost AS (
    INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, started_at, actor, reason)
    SELECT c.id, 'expired', c.attempts, c.lease_owner, c.stage, c.claimed_at, :owner::text, 'taken over'
      FROM candidate c
      JOIN claimed USING (id)
     WHERE c.status = 'Processing'
)
SELECT * FROM claimed
