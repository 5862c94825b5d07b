-- A watcher's own heartbeat, after each sweep: who watches, how often it means to sweep, and what it swept.
-- Rows of watchers that have been silent for a day go.
WITH gone AS (
    DELETE FROM leasetop_watchers WHERE name <> :name::text AND seen_at < clock_timestamp() - interval '1 day'
)
INSERT INTO leasetop_watchers AS w (name, policy, interval, sweeps, swept)
VALUES (:name::text, :policy::text, :interval::interval, 1, :swept::bigint)
ON CONFLICT (name) DO UPDATE
   SET policy = excluded.policy, interval = excluded.interval, seen_at = clock_timestamp(),
       sweeps = w.sweeps + 1, swept = w.swept + excluded.swept
