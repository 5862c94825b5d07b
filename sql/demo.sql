-- The pretend payment provider's own book, for the demo. Idempotent.
--
-- A provider that takes idempotency keys charges once for each key, and answers every further request with that key from
-- its book. `asked` above 1 is a payment that was tried again and not charged again.
CREATE TABLE IF NOT EXISTS demo_psp_charges (
    idempotency_key text        PRIMARY KEY,
    job_id          bigint      NOT NULL,
    attempt         integer     NOT NULL,
    owner           text        NOT NULL,
    amount          numeric     NOT NULL,
    currency        text        NOT NULL,
    charged_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    asked           integer     NOT NULL DEFAULT 1
);

COMMENT ON TABLE  demo_psp_charges IS 'What the pretend payment provider has charged. Made by the demo (sql/demo.sql).';
COMMENT ON COLUMN demo_psp_charges.idempotency_key IS 'One charge for each key, ever.';
COMMENT ON COLUMN demo_psp_charges.job_id IS 'payment_jobs.id';
COMMENT ON COLUMN demo_psp_charges.attempt IS 'The attempt that charged.';
COMMENT ON COLUMN demo_psp_charges.owner IS 'The worker that charged.';
COMMENT ON COLUMN demo_psp_charges.amount IS 'How much.';
COMMENT ON COLUMN demo_psp_charges.currency IS 'ISO 4217 code.';
COMMENT ON COLUMN demo_psp_charges.charged_at IS 'When.';
COMMENT ON COLUMN demo_psp_charges.asked IS 'How often a capture with this key was asked for; all but the first were answered from the book.';
