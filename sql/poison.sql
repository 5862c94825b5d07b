-- Poison jobs: those that lost an attempt in the last :window, and whose latest attempts, two or more, all ended by
-- expiry: whoever takes such a job perhaps dies of it. Returns :limit rows at most, the one with most such attempts
-- first: the key, attempts (that ended so in a row), owner (of the latest), since (when the first of them ended).
--
-- Promises
--  * Looks at the history rows from :first on (see trends.sql) for jobs, at those 500 that lost most, and for each at
--    its newest 50 rows by payment_job_history_job.
--  * Acts of operators and warnings end no attempt: they are passed over.
WITH looked AS (
    SELECT id, job_id, event, ended_at
      FROM payment_job_history
     WHERE id >= :first::bigint
     ORDER BY id DESC
     LIMIT :look::integer
), lost AS MATERIALIZED (
    SELECT job_id
      FROM looked
     WHERE event = 'expired'
       AND ended_at >= now() - :window::interval
     GROUP BY job_id
     ORDER BY count(*) DESC, max(id) DESC
     LIMIT 500
)
SELECT job_id::text AS key_0,
       count(*) AS attempts,
       left((array_agg(owner ORDER BY id DESC))[1], 200) AS owner,
       min(ended_at) AS since
  FROM lost
 CROSS JOIN LATERAL (
       SELECT id, owner, ended_at, count(*) FILTER (WHERE event <> 'expired') OVER (ORDER BY id DESC) AS others
         FROM (SELECT id, event, owner, ended_at
                 FROM payment_job_history
                WHERE job_id = lost.job_id
                ORDER BY id DESC
                LIMIT 50) AS latest
        WHERE event IN ('completed', 'failed', 'released', 'expired', 'revoked')) AS ends
 WHERE others = 0
 GROUP BY job_id
HAVING count(*) >= 2
 ORDER BY attempts DESC, since
 LIMIT :limit::integer
