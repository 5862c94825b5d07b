-- Enqueue: one payment. Returns its id; zero rows: :idempotency_key is taken, the payment is in the queue already.
INSERT INTO payment_jobs (kind, idempotency_key, amount, currency, payload, max_attempts, run_after)
VALUES (:kind::text, :idempotency_key::text, :amount::numeric, :currency::text, :payload::jsonb,
        :max_attempts::integer, clock_timestamp() + :delay::interval)
ON CONFLICT (idempotency_key) DO NOTHING
RETURNING id
