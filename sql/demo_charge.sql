-- The pretend provider's capture: charges once for each key. Returns the attempt that charged and how often was asked.
INSERT INTO demo_psp_charges AS c (idempotency_key, job_id, attempt, owner, amount, currency)
VALUES (:idempotency_key::text, :job_id::bigint, :attempt::integer, :owner::text, :amount::numeric, :currency::text)
ON CONFLICT (idempotency_key) DO UPDATE SET asked = c.asked + 1
RETURNING attempt, asked
