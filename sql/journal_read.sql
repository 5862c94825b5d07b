-- The newest acts on one queue, for the journal's screen.
SELECT at, actor, act, job, reason, seen, done, result
  FROM leasetop_journal
 WHERE queue = :queue::text
 ORDER BY id DESC
 LIMIT :limit
