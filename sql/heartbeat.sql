-- Heartbeat: moves on the leases that :owner still holds, for the tokens (:ids[n], :attempts[n]), and records
-- the stage (:stages[n], null: as it was). Returns one row a token: held, and whether it was renewed just now.
--
-- Promises
--  * Guarded by id, Processing, owner and attempt: owner alone is not enough, the same name can claim again.
--  * An expired lease comes back only where :revive says so (never under the park policy).
--  * A row locked by somebody else does not hold up the others (SKIP LOCKED): it is held but not renewed, and
--    the next heartbeat tries again. held = false: the lease is lost; the worker aborts that job at once.
--  * The new lease is counted from after the lock.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(:ids::bigint[], :attempts::integer[], :stages::text[]) AS a (id, attempt, stage)
), mine AS MATERIALIZED (
    SELECT j.id, a.attempt, a.stage
      FROM payment_jobs j
      JOIN asked a ON a.id = j.id
     WHERE j.status = 'Processing'
       AND j.lease_owner = :owner::text
       AND j.attempts = a.attempt
       AND (:revive::boolean OR j.lease_until >= clock_timestamp())
     ORDER BY j.id
       FOR UPDATE OF j SKIP LOCKED
), renewed AS (
    UPDATE payment_jobs j
       SET lease_until = clock_timestamp() + :ttl::interval,
           lease_ttl   = :ttl::interval,
           heartbeats  = j.heartbeats + 1,
           stage       = coalesce(m.stage, j.stage)
      FROM mine m
     WHERE j.id = m.id
       AND j.status = 'Processing'
       AND j.lease_owner = :owner::text
       AND j.attempts = m.attempt
    RETURNING j.id, j.attempts
)
SELECT a.id, a.attempt, r.id IS NOT NULL AS renewed,
       r.id IS NOT NULL OR EXISTS (
           SELECT FROM payment_jobs j
            WHERE j.id = a.id
              AND j.status = 'Processing'
              AND j.lease_owner = :owner::text
              AND j.attempts = a.attempt
              AND (:revive::boolean OR j.lease_until >= clock_timestamp())) AS held
  FROM asked a
  LEFT JOIN renewed r ON r.id = a.id AND r.attempts = a.attempt
