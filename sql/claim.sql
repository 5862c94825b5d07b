-- Claim: up to :batch jobs for :owner, each with one more attempt and a lease of :ttl. Returns the tokens.
--
-- Promises
--  * At most one owner: candidates are locked first (SKIP LOCKED) in a CTE, and the condition is stated again in
--    the UPDATE. Never IN (SELECT ... LIMIT), which a nested loop can run many times over.
--  * Always by primary key: the planner cannot know how few rows a LIMIT of an expression lets through, and would
--    hash the whole table for a join. The array is computed once, whatever the plan.
--  * Two arms, each served by an index of its own: expired leases where :takeover allows it, then ready Pending.
--  * lease_until is counted from clock_timestamp() after the lock: no wait eats the lease.
--  * A takeover writes the end of the lost attempt to the history in this same statement.
--  * Zero rows: there is nothing to do, or somebody else has it. Not an error.
WITH expired AS MATERIALIZED (
    SELECT id, lease_owner, attempts, stage, claimed_at
      FROM payment_jobs
     WHERE :takeover::boolean
       AND status = 'Processing'
       AND lease_until < clock_timestamp()
       AND attempts < max_attempts
     ORDER BY id
     LIMIT :batch::integer
       FOR UPDATE SKIP LOCKED
), ready AS MATERIALIZED (
    SELECT id
      FROM payment_jobs
     WHERE status = 'Pending'
       AND run_after <= statement_timestamp()
       AND attempts < max_attempts
     ORDER BY run_after, id
     LIMIT :batch::integer - (SELECT count(*) FROM expired)
       FOR UPDATE SKIP LOCKED
), candidates AS MATERIALIZED (
    SELECT id FROM expired UNION ALL SELECT id FROM ready
), claimed AS (
    UPDATE payment_jobs j
       SET status      = 'Processing',
           lease_owner = :owner::text,
           lease_until = clock_timestamp() + :ttl::interval,
           lease_ttl   = :ttl::interval,
           claimed_at  = clock_timestamp(),
           heartbeats  = 0,
           attempts    = j.attempts + 1
     WHERE j.id = ANY (ARRAY(SELECT id FROM candidates))
       AND j.attempts < j.max_attempts
       AND (   (j.status = 'Pending' AND j.run_after <= statement_timestamp())
            OR (:takeover::boolean AND j.status = 'Processing' AND j.lease_until < clock_timestamp()))
    RETURNING j.id, j.attempts, j.max_attempts, j.lease_owner, j.lease_until, j.kind, j.idempotency_key,
              j.amount, j.currency, j.payload, j.stage
), lost AS (
    INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, started_at, actor, reason)
    SELECT e.id, 'expired', e.attempts, e.lease_owner, e.stage, e.claimed_at, :owner::text, 'taken over'
      FROM expired e
     WHERE e.id = ANY (ARRAY(SELECT id FROM claimed))
)
SELECT * FROM claimed
