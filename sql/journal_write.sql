-- One act in the journal, in the transaction of the act itself: neither is there without the other.
INSERT INTO leasetop_journal (actor, queue, act, job, reason, seen, done, result)
VALUES (:actor::text, :queue::text, :act::text, :job::text[], :reason::text, :seen::jsonb, :done::boolean,
        :result::text)
