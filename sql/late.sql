-- Late: the worker finished (:id, :attempt) of :owner after its lease was over by its own reckoning, and so leaves
-- the job alone. The history says so, since the payment may be made twice outside. The same row as complete.sql
-- writes for a completion that it refused; none where that attempt is in the history as completed.
INSERT INTO payment_job_history (job_id, event, attempt, owner, stage, reason)
SELECT :id::bigint, 'late completion refused', :attempt::integer, :owner::text, :stage::text,
       'the lease had passed on; check whether the payment was made twice'
 WHERE NOT EXISTS (SELECT FROM payment_job_history
                    WHERE job_id = :id::bigint
                      AND attempt = :attempt::integer
                      AND owner = :owner::text
                      AND event IN ('completed', 'late completion refused'))
