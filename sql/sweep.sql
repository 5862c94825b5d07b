-- Sweep: ends up to :batch expired leases. Repeated, each time in a transaction of its own, until it returns fewer
-- than :batch rows. With :ids and :attempts (null: all) only those tokens are swept, as a preview showed them.
--   :policy = 'requeue'  Pending after a back-off with full jitter; Failed where the attempts are used up.
--   :policy = 'park'     Stuck: not run again until a person decides.
--
-- Promises
--  * Never a live lease: the rows are locked first (ORDER BY id, SKIP LOCKED), and the condition is stated again.
--  * No deadlock with another sweeper, a heartbeat or a requeue: it waits for nobody.
--  * The end of the lost attempt is in the history, by the same statement.
WITH expired AS MATERIALIZED (
    SELECT id, lease_owner, attempts, stage, claimed_at
      FROM payment_jobs
     WHERE status = 'Processing'
       AND lease_until < clock_timestamp()
       AND (:ids::bigint[] IS NULL
            OR (id, attempts) IN (SELECT * FROM unnest(:ids::bigint[], :attempts::integer[])))
     ORDER BY id
     LIMIT :batch::integer
       FOR UPDATE SKIP LOCKED
), swept AS (
    UPDATE payment_jobs j
       SET status      = CASE WHEN :policy::text = 'park' THEN 'Stuck'
                              WHEN j.attempts < j.max_attempts THEN 'Pending'
                              ELSE 'Failed' END,
           run_after   = CASE WHEN :policy::text <> 'park' AND j.attempts < j.max_attempts
                              THEN clock_timestamp() + random() * least(:backoff_cap::interval,
                                       :backoff::interval * power(2, least(j.attempts, 30) - 1))
                              ELSE j.run_after END,
           finished_at = CASE WHEN :policy::text <> 'park' AND j.attempts >= j.max_attempts
                              THEN clock_timestamp() END,
           last_error  = 'lease expired in attempt ' || j.attempts,
           lease_owner = NULL,
           lease_until = NULL,
           lease_ttl   = NULL,
           claimed_at  = NULL
     WHERE j.id = ANY (ARRAY(SELECT id FROM expired))
       AND j.status = 'Processing'
       AND j.lease_until < clock_timestamp()
    RETURNING j.id, j.status, j.attempts, j.max_attempts, j.run_after
), ended AS (
    INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, started_at, actor, reason)
    SELECT e.id, 'expired', e.attempts, e.lease_owner, e.stage, e.claimed_at, :actor::text,
           CASE s.status WHEN 'Stuck' THEN 'swept: parked for a person'
                         WHEN 'Pending' THEN 'swept: will be tried again'
                         ELSE 'swept: attempts used up' END
      FROM expired e
      JOIN swept s USING (id)
)
SELECT s.id, s.status, s.attempts, s.max_attempts, e.lease_owner AS owner
  FROM swept s
  JOIN expired e USING (id)
 ORDER BY s.id
