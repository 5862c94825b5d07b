-- Trends: the ends of attempts in the last :window, counted by the minute. Returns a row for each of its minutes, the
-- oldest first: at (when it began), completed, failed, expired; and, the same in every row, where the look begins:
--   first        the oldest history row looked at, to be handed to noisy.sql and poison.sql as :first;
--   known_since  null where the look reached back over all of :window; else when its oldest row happened.
--
-- Promises
--  * Looks at the newest :look rows at most, by the primary key: a mark is read every hundredth of :look rows back, and
--    counting begins at the newest mark that is older than :window. A quiet hour costs little, a busy one no more than
--    :look rows, and it is said where they end.
--  * Minutes are counted back from now, so that each is a whole one.
WITH marks AS MATERIALIZED (
    SELECT mark.id, mark.ended_at
      FROM generate_series(1, 100) AS n
     CROSS JOIN LATERAL (
           SELECT id, ended_at
             FROM payment_job_history
            WHERE id <= (SELECT max(id) FROM payment_job_history) - n * (:look::integer / 100)
            ORDER BY id DESC
            LIMIT 1) AS mark
), start AS MATERIALIZED (
    SELECT coalesce(max(id) FILTER (WHERE ended_at < now() - :window::interval),
                    CASE WHEN count(*) = 100 THEN min(id) END,
                    0) AS first,
           CASE WHEN count(*) = 100 AND NOT bool_or(ended_at < now() - :window::interval)
                THEN min(ended_at) END AS known_since
      FROM marks
), looked AS (
    SELECT event, ended_at
      FROM payment_job_history
     WHERE id >= (SELECT first FROM start)
     ORDER BY id DESC
     LIMIT :look::integer
), counted AS (
    -- What was written while this began is a moment ahead of now().
    SELECT least(date_bin('1 minute', ended_at, now()), now() - interval '1 minute') AS at,
           count(*) FILTER (WHERE event = 'completed') AS completed,
           count(*) FILTER (WHERE event = 'failed') AS failed,
           count(*) FILTER (WHERE event = 'expired') AS expired
      FROM looked
     WHERE ended_at >= now() - :window::interval
     GROUP BY 1
)
SELECT at, coalesce(completed, 0) AS completed, coalesce(failed, 0) AS failed, coalesce(expired, 0) AS expired,
       first::text AS first, known_since
  FROM generate_series(now() - :window::interval, now() - interval '1 minute', interval '1 minute') AS at
  LEFT JOIN counted USING (at)
 CROSS JOIN start
 ORDER BY at
