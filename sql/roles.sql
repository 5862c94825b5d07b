-- Group roles for the home table; grant them to your own login roles. Idempotent. Needs CREATEROLE and the table's owner.
--
--   leasetop_viewer    sees everything, changes nothing: the screen without acts
--   leasetop_operator  the screen with its acts, and enqueue
--   leasetop_worker    worker and watcher
--
-- The history is append-only by privilege, too: nobody but its owner can change or remove a row of it.
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['leasetop_viewer', 'leasetop_operator', 'leasetop_worker'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
        END IF;
    END LOOP;
END
$$;

REVOKE ALL ON payment_jobs, payment_job_history, leasetop_watchers
  FROM PUBLIC, leasetop_viewer, leasetop_operator, leasetop_worker;

GRANT SELECT ON payment_jobs, payment_job_history, leasetop_watchers
   TO leasetop_viewer, leasetop_operator, leasetop_worker;
GRANT INSERT ON payment_job_history TO leasetop_operator, leasetop_worker;
GRANT INSERT, UPDATE ON payment_jobs TO leasetop_operator;
GRANT UPDATE ON payment_jobs TO leasetop_worker;
GRANT INSERT, UPDATE, DELETE ON leasetop_watchers TO leasetop_worker;
