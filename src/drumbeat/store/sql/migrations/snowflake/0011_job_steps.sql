-- Durable steps of jobs. Each statement ends the transaction, so a process that continues an interrupted migration adds only the
-- columns that are missing; IF NOT EXISTS does not allow a default.

SELECT 1 AS found FROM information_schema.columns
 WHERE table_schema = CURRENT_SCHEMA() AND table_name = 'JOBS' AND column_name = 'HAS_STEPS';
@if_none ALTER TABLE jobs ADD COLUMN has_steps INTEGER NOT NULL DEFAULT 0;
SELECT 1 AS found FROM information_schema.columns
 WHERE table_schema = CURRENT_SCHEMA() AND table_name = 'JOBS' AND column_name = 'EVENTS_SENT';
@if_none ALTER TABLE jobs ADD COLUMN events_sent INTEGER NOT NULL DEFAULT 0;

CREATE @kind TABLE IF NOT EXISTS job_steps (
    seq         BIGINT NOT NULL,
    n           INTEGER NOT NULL,
    name        VARCHAR NOT NULL,
    kind        VARCHAR NOT NULL,
    result      VARCHAR,
    error       VARCHAR,
    started_at  BIGINT NOT NULL,
    finished_at BIGINT,
    until       BIGINT,
    epoch       BIGINT NOT NULL,
    PRIMARY KEY (seq, n)
);
