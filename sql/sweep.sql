-- Sweep: ends up to :batch expired leases. Repeated, each time in a transaction of its own, until it returns fewer
-- than :batch rows. With :ids and :attempts (null: all) only those tokens are swept, as a preview showed them.
--   :policy = 'requeue'  Pending after a back-off with full jitter; Failed where the attempts are used up.
--   :policy = 'park'     Stuck: not run again until a person decides.
--
-- Promises
--  * Never a live lease: the rows are locked first (ORDER BY id, SKIP LOCKED), and the condition is stated again.
--  * No deadlock with another sweeper, a heartbeat or a requeue: it waits for nobody.
--  * The end of the lost attempt is in the history, by the same statement.
--  * No joins: the planner's figure for rows in Processing is always out of date, and a join chosen by it costs the
--    square of the batch, or the whole table. The arrays are computed once, whatever the plan.
WITH expired AS MATERIALIZED (
    SELECT id, lease_owner, attempts, max_attempts, stage, claimed_at
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
    RETURNING j.id, j.status, j.attempts, j.max_attempts
), ended AS (
    INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, started_at, actor, reason)
    SELECT id, 'expired', attempts, lease_owner, stage, claimed_at, :actor::text,
           CASE WHEN :policy::text = 'park' THEN 'swept: parked for a person'
                WHEN attempts < max_attempts THEN 'swept: will be tried again'
                ELSE 'swept: attempts used up' END
      FROM expired
     WHERE id = ANY (ARRAY(SELECT id FROM swept))
)
SELECT id, status, attempts, max_attempts,
       (ARRAY(SELECT lease_owner FROM expired))[array_position(ARRAY(SELECT id FROM expired), id)] AS owner
  FROM swept
 ORDER BY id
