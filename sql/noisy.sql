-- Noisy owners: who lost or failed attempts in the last :window, and how many of theirs were completed, the one with
-- most lost and failed first. Looks at the history rows from :first on (see trends.sql), and returns :limit rows at
-- most: owner, expired, failed, completed.
WITH looked AS (
    SELECT event, owner, ended_at
      FROM payment_job_history
     WHERE id >= :first::bigint
     ORDER BY id DESC
     LIMIT :look::integer
)
SELECT left(owner, 200) AS owner,
       count(*) FILTER (WHERE event = 'expired') AS expired,
       count(*) FILTER (WHERE event = 'failed') AS failed,
       count(*) FILTER (WHERE event = 'completed') AS completed
  FROM looked
 WHERE ended_at >= now() - :window::interval
   AND event IN ('expired', 'failed', 'completed')
   AND owner IS NOT NULL
 GROUP BY looked.owner
HAVING count(*) FILTER (WHERE event <> 'completed') > 0
 ORDER BY count(*) FILTER (WHERE event <> 'completed') DESC, expired DESC, looked.owner
 LIMIT :limit::integer
