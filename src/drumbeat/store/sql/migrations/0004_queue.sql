-- Jobs, built for speed: a number for the order, one index per state of a job, and attempts in their own table.

DROP TABLE drumbeat.job_attempts;
DROP TABLE drumbeat.jobs;

CREATE TABLE drumbeat.jobs (
    seq              @numbered,
    pool_id          TEXT NOT NULL,
    given_id         TEXT,
    type             TEXT NOT NULL DEFAULT '',
    payload          @document NOT NULL,
    status           TEXT NOT NULL DEFAULT 'pending',
    delayed          INTEGER NOT NULL DEFAULT 0,
    priority         INTEGER NOT NULL DEFAULT 0,
    attempts         INTEGER NOT NULL DEFAULT 0,
    failures         INTEGER NOT NULL DEFAULT 0,
    crashes          INTEGER NOT NULL DEFAULT 0,
    max_attempts     INTEGER NOT NULL DEFAULT 3,
    max_crashes      INTEGER NOT NULL DEFAULT 3,
    backoff          @document,
    timeout_us       BIGINT,
    unique_key       TEXT,
    group_key        TEXT,
    group_limit      INTEGER,
    rate_count       INTEGER,
    rate_us          BIGINT,
    capability       TEXT,
    lease_owner      TEXT,
    lease_epoch      BIGINT NOT NULL DEFAULT 0,
    lease_until      BIGINT,
    not_before       BIGINT,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    progress         @real,
    progress_note    TEXT,
    result           @document,
    last_error       TEXT,
    created_at       BIGINT NOT NULL,
    claimed_at       BIGINT,
    finished_at      BIGINT
) @queue;
CREATE INDEX jobs_ready ON drumbeat.jobs (pool_id, priority DESC, seq) WHERE status = 'pending' AND delayed = 0;
CREATE INDEX jobs_delayed ON drumbeat.jobs (pool_id, not_before) WHERE status = 'pending' AND delayed = 1;
CREATE INDEX jobs_claimed ON drumbeat.jobs (lease_owner) WHERE status = 'claimed';
CREATE INDEX jobs_ended ON drumbeat.jobs (pool_id, status, seq) WHERE status IN ('done', 'poisoned', 'cancelled');
CREATE INDEX jobs_limited ON drumbeat.jobs (pool_id, group_key)
 WHERE group_key IS NOT NULL AND status = 'pending' AND delayed = 0 AND (group_limit IS NOT NULL OR rate_count IS NOT NULL);
CREATE INDEX jobs_of_group ON drumbeat.jobs (pool_id, group_key) WHERE group_key IS NOT NULL AND status = 'claimed';
CREATE UNIQUE INDEX jobs_by_id ON drumbeat.jobs (given_id) WHERE given_id IS NOT NULL;
CREATE UNIQUE INDEX jobs_by_key ON drumbeat.jobs (pool_id, unique_key)
 WHERE unique_key IS NOT NULL AND status IN ('pending', 'claimed');

CREATE TABLE drumbeat.job_attempts (
    seq        BIGINT NOT NULL,
    n          BIGINT NOT NULL,
    worker_id  TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    ended_at   BIGINT NOT NULL,
    outcome    TEXT NOT NULL,
    error      TEXT,
    PRIMARY KEY (seq, n)
) @clustered;

CREATE TABLE drumbeat.group_claims (
    pool_id   TEXT NOT NULL,
    group_key TEXT NOT NULL,
    seq       BIGINT NOT NULL,
    n         BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    until     BIGINT NOT NULL,
    PRIMARY KEY (pool_id, group_key, seq, n)
) @clustered;
