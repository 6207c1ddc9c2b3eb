-- Costs that do not grow with history: finished jobs are counted when they finish, and ended workers are found by index.

ALTER TABLE drumbeat.pools ADD COLUMN last_worker BIGINT NOT NULL DEFAULT -1;
UPDATE drumbeat.pools SET last_worker = COALESCE(
    (SELECT MAX(@worker_number(w.worker_id)) FROM drumbeat.workers w WHERE w.pool_id = pools.pool_id), -1);

CREATE TABLE drumbeat.job_counts (
    pool_id TEXT NOT NULL,
    status  TEXT NOT NULL,
    part    BIGINT NOT NULL,
    jobs    BIGINT NOT NULL,
    PRIMARY KEY (pool_id, status, part)
) @hot;
INSERT INTO drumbeat.job_counts (pool_id, status, part, jobs)
SELECT pool_id, status, 0, COUNT(*) FROM drumbeat.jobs WHERE status IN ('done', 'poisoned', 'cancelled') GROUP BY pool_id, status;

CREATE INDEX workers_live ON drumbeat.workers (pool_id) WHERE ended_at IS NULL;
CREATE INDEX workers_unreaped ON drumbeat.workers (pool_id, ended_at) WHERE ended_at IS NOT NULL AND reaped_at IS NULL;
CREATE INDEX workers_ended ON drumbeat.workers (pool_id, ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX workers_reaped ON drumbeat.workers (pool_id, reaped_at) WHERE reaped_at IS NOT NULL;
