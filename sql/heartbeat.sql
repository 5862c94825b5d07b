-- Heartbeat: moves on the leases that :owner still holds, for the tokens (:ids[n], :attempts[n]), and records
-- the stage (:stages[n], null: as it was). Returns one row a token: held, and whether it was renewed just now.
--
-- Promises
--  * Guarded by id, Processing, owner and attempt: owner alone is not enough, the same name can claim again.
--  * An expired lease comes back only where :revive says so (never under the park policy).
--  * A row locked by somebody else does not hold up the others (SKIP LOCKED): it is held but not renewed, and
--    the next heartbeat tries again. held = false: the lease is lost; the worker aborts that job at once.
--  * The new lease is counted from after the lock.
--  * One look-up by id a token, whatever the planner believes (see complete.sql).
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(:ids::bigint[], :attempts::integer[], :stages::text[]) AS a (id, attempt, stage)
     ORDER BY id
), mine AS MATERIALIZED (
    SELECT a.id, a.attempt, coalesce(a.stage, j.stage) AS stage
      FROM asked a
     CROSS JOIN LATERAL (
           SELECT stage
             FROM payment_jobs
            WHERE id = a.id
              AND status = 'Processing'
              AND lease_owner = :owner::text
              AND attempts = a.attempt
              AND (:revive::boolean OR lease_until >= clock_timestamp())
              FOR UPDATE SKIP LOCKED) j
), renewed AS (
    UPDATE payment_jobs j
       SET lease_until = clock_timestamp() + :ttl::interval,
           lease_ttl   = :ttl::interval,
           heartbeats  = j.heartbeats + 1,
           stage       = (ARRAY(SELECT stage FROM mine))[array_position(ARRAY(SELECT id FROM mine), j.id)]
     WHERE j.id = ANY (ARRAY(SELECT id FROM mine))
       AND j.status = 'Processing'
       AND j.lease_owner = :owner::text
       AND j.attempts = (ARRAY(SELECT attempt FROM mine))[array_position(ARRAY(SELECT id FROM mine), j.id)]
    RETURNING j.id, j.attempts
), outcome AS (
    SELECT id, attempt, (id, attempt) IN (SELECT id, attempts FROM renewed) AS renewed
      FROM asked
)
SELECT o.id, o.attempt, o.renewed,
       o.renewed OR EXISTS (
           SELECT FROM payment_jobs j
            WHERE j.id = o.id
              AND j.status = 'Processing'
              AND j.lease_owner = :owner::text
              AND j.attempts = o.attempt
              AND (:revive::boolean OR j.lease_until >= clock_timestamp())) AS held
  FROM outcome o
