-- Durable steps of jobs: what a job has finished, what it sleeps or waits for, and the events that were sent to it (these have
-- negative numbers). A job with steps has a mark, so that other jobs cost no query more.

ALTER TABLE drumbeat.jobs ADD COLUMN has_steps INTEGER NOT NULL DEFAULT 0;
ALTER TABLE drumbeat.jobs ADD COLUMN events_sent INTEGER NOT NULL DEFAULT 0;

CREATE TABLE drumbeat.job_steps (
    seq         BIGINT NOT NULL,
    n           INTEGER NOT NULL,
    name        TEXT NOT NULL,
    kind        TEXT NOT NULL,
    result      @document,
    error       TEXT,
    started_at  BIGINT NOT NULL,
    finished_at BIGINT,
    until       BIGINT,
    epoch       BIGINT NOT NULL,
    PRIMARY KEY (seq, n)
) @clustered;
