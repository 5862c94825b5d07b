-- How a race stands: for each lane how many jobs there are, were done, how often, and more than once; and the latest of
-- those, with who did them.
SELECT lane,
       count(*)                                AS jobs,
       count(*) FILTER (WHERE executions > 0)  AS done,
       coalesce(sum(executions), 0)::bigint    AS executions,
       count(*) FILTER (WHERE executions > 1)  AS doubled,
       (array_agg(id || ': ' || array_to_string(owners, ' and ') ORDER BY id DESC)
            FILTER (WHERE executions > 1))[1:5] AS latest
  FROM demo_race_jobs
 GROUP BY lane
