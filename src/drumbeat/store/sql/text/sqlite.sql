-- Queries that are specific to SQLite. It has one writer at a time; a query of several statements is one transaction.

-- name: lock_migrations
-- The transaction of the writing thread holds the file's lock already.
SELECT 1;

-- name: find_version_table
SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'unfinished_copy') AS is_copying
  FROM sqlite_master WHERE type = 'table' AND name = 'schema_version';

-- name: list_columns
SELECT t.name AS table_name, c.name AS column_name, c.pk AS key_place
  FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type = 'table' ORDER BY t.name, c.cid;

-- name: last_number
-- The number of a job is the time of its push or higher, so a pruned job had no higher number than this.
SELECT CASE WHEN EXISTS (SELECT 1 FROM jobs) OR EXISTS (SELECT 1 FROM job_counts)
            THEN MAX(COALESCE((SELECT MAX(seq) FROM jobs), 0), @now) ELSE 0 END AS number;

-- name: set_last_number
-- The next number is the time, or the number after the last.
SELECT :number;

-- name: worker_beat
-- The write lock is held from the first statement to the last, so the row that is updated is the row that is read.
UPDATE workers
   SET heartbeat_at = @now, heartbeat_count = heartbeat_count + 1, phase = :phase, applied_target = :applied_target,
       active = :active, operations = :operations, errors = :errors, error = COALESCE(:error, error),
       cpu_percent = :cpu_percent, memory_percent = :memory_percent, gpu = :gpu
 WHERE pool_id = :pool_id AND worker_id = :worker_id AND instance = :instance AND ended_at IS NULL;
INSERT INTO samples (pool_id, worker_id, n, at, interval_us, phase, operations, reads, writes, errors, latency,
                     p50_ms, p95_ms, p99_ms, avg_ms, min_ms, max_ms, active, target, cpu_percent, memory_percent, gpu, extra)
SELECT pool_id, worker_id, :n, heartbeat_at - :age_us, :interval_us, :sample_phase, :sample_operations, :reads, :writes,
       :sample_errors, :latency, :p50_ms, :p95_ms, :p99_ms, :avg_ms, :min_ms, :max_ms, :sample_active, :target,
       :sample_cpu, :sample_memory, :sample_gpu, :extra
  FROM workers
 WHERE pool_id = :pool_id AND worker_id = :worker_id AND instance = :instance AND ended_at IS NULL AND :n IS NOT NULL
ON CONFLICT (pool_id, worker_id, n) DO NOTHING;
SELECT w.heartbeat_at AS now, w.status, w.target, w.target_seq, w.drain_deadline,
       r.status AS run_status, r.phase AS run_phase, l.expires_at AS controller_until, p.next_event - 1 AS newest,
       CASE WHEN p.next_event - 1 > :read_to THEN
       (SELECT json_group_array(json_object('sequence_id', e.sequence_id, 'type', e.type, 'scope', e.scope,
                                            'worker_id', e.worker_id, 'slot', e.slot, 'payload', json(e.payload),
                                            'created_at', e.created_at))
          FROM (SELECT * FROM (SELECT * FROM events INDEXED BY events_for_all
                                WHERE pool_id = :pool_id AND sequence_id > :read_to AND scope = 'RUN'
                                  AND type NOT IN ('WORKER_MOVED', 'SCALE_DOWN', 'GUARDRAIL_WARNING', 'WAITING_FOR_WORKERS')
                                ORDER BY sequence_id LIMIT 101)
                UNION ALL
                SELECT * FROM (SELECT * FROM events INDEXED BY events_for_worker
                                WHERE pool_id = :pool_id AND sequence_id > :read_to AND scope = 'WORKER' AND worker_id = :worker_id
                                  AND type NOT IN ('WORKER_MOVED', 'SCALE_DOWN', 'GUARDRAIL_WARNING', 'WAITING_FOR_WORKERS')
                                ORDER BY sequence_id LIMIT 101)
                UNION ALL
                SELECT * FROM (SELECT * FROM events INDEXED BY events_for_slot
                                WHERE pool_id = :pool_id AND sequence_id > :read_to AND scope = 'WORKER_GROUP' AND slot = w.slot
                                  AND type NOT IN ('WORKER_MOVED', 'SCALE_DOWN', 'GUARDRAIL_WARNING', 'WAITING_FOR_WORKERS')
                                ORDER BY sequence_id LIMIT 101)
                ORDER BY sequence_id LIMIT 101) e) END AS events
  FROM workers w JOIN pools p ON p.pool_id = w.pool_id
  LEFT JOIN runs r ON r.run_id = w.pool_id LEFT JOIN leases l ON l.name = w.pool_id
 WHERE w.pool_id = :pool_id AND w.worker_id = :worker_id AND w.instance = :instance AND w.ended_at IS NULL;

-- name: append_events
-- There is one writer at a time, so numbers rise in commit order: a reader never sees 11 before 10.
UPDATE pools SET next_event = next_event + :count WHERE pool_id = :pool_id;
INSERT INTO events (pool_id, sequence_id, type, scope, worker_id, slot, payload, created_at)
SELECT p.pool_id, p.next_event - :count + e.key, json_extract(e.value, '$.type'), json_extract(e.value, '$.scope'),
       json_extract(e.value, '$.worker_id'), json_extract(e.value, '$.slot'), json_extract(e.value, '$.payload'), @now
  FROM pools p, json_each(:events) e WHERE p.pool_id = :pool_id;
SELECT sequence_id AS first, created_at AS now FROM events
 WHERE pool_id = :pool_id AND sequence_id = (SELECT next_event - :count FROM pools WHERE pool_id = :pool_id);

-- name: add_logs
INSERT INTO logs (pool_id, log_id, at, worker_id, level, severity, logger, message, details)
SELECT :pool_id, :first + key, @now - json_extract(value, '$.age_us'), json_extract(value, '$.worker_id'), json_extract(value, '$.level'), json_extract(value, '$.severity'),
       json_extract(value, '$.logger'), json_extract(value, '$.message'), json_extract(value, '$.details')
  FROM json_each(:entries);

-- name: load_executions
-- Runs for many rows in one transaction; skips rows that exist.
INSERT INTO executions (run_id, worker_id, n, connection, kind, started_at, duration_ms, ok, error_class, error, rows_affected, warmup,
                        query_text)
VALUES (:run_id, :worker_id, :n, :connection, :kind, :started_at, :duration_ms, :ok, :error_class, :error, :rows_affected, :warmup,
        :query_text)
ON CONFLICT (run_id, worker_id, n) DO NOTHING;

-- name: push_plain
-- Runs for many rows in one transaction.
INSERT INTO jobs (seq, pool_id, type, payload, priority, created_at)
VALUES (:seq, :pool_id, :type, :payload, :priority, :created_at);

-- name: next_number
-- The time in microseconds, or the number after the last: it rises even if jobs are pruned, so no number is used twice.
SELECT MAX(COALESCE((SELECT MAX(seq) FROM jobs), 0) + 1, @now) AS seq, @now AS now
  FROM pools WHERE pool_id = :pool_id AND kind = 'jobs';

-- name: begin_writing
-- In a transaction of the caller: takes the write lock before the first read, so that no other process writes in between.
BEGIN IMMEDIATE;

-- name: lock_file
-- Changes nothing, but takes the write lock within a transaction that has begun already.
UPDATE pools SET kind = kind WHERE FALSE;

-- name: list_files
SELECT name, file FROM pragma_database_list;

-- name: push_job
-- A job whose id, or whose key in an unfinished job, exists is skipped: both are unique.
INSERT INTO jobs (seq, pool_id, given_id, status, workflow_id, waits_for, after_any, if_failed, has_children, type, payload,
                  delayed, priority, max_attempts, max_crashes, backoff, timeout_us, unique_key, group_key, group_limit, rate_count, rate_us,
                  capability, not_before, created_at)
SELECT :seq, :pool_id, :given_id, :status, :workflow_id, :waits_for, :after_any, :if_failed, :has_children, :type, :payload,
       CASE WHEN MAX(COALESCE(:run_at, 0), :now + :delay) > :now THEN 1 ELSE 0 END,
       :priority, :max_attempts, :max_crashes, :backoff, :timeout_us, :unique_key, :group_key, :group_limit, :rate_count, :rate_us,
       :capability, CASE WHEN MAX(COALESCE(:run_at, 0), :now + :delay) > :now THEN MAX(COALESCE(:run_at, 0), :now + :delay) END, :now
 WHERE TRUE ON CONFLICT DO NOTHING
RETURNING seq;

-- name: promote_jobs
UPDATE jobs SET delayed = 0
 WHERE seq IN (SELECT seq FROM jobs WHERE pool_id = :pool_id AND status = 'pending' AND delayed = 1 AND not_before <= :now LIMIT 1000);

-- name: claim_jobs
-- The write lock is taken before the rows are chosen, so no two workers see the same one.
UPDATE jobs
   SET status = 'claimed', attempts = attempts + CASE WHEN :ahead THEN 0 ELSE 1 END,
       begun_at = CASE WHEN :ahead THEN NULL ELSE :now END, in_company = 0, lease_owner = :worker_id, lease_pool = :holder_pool,
       lease_instance = :instance, lease_epoch = lease_epoch + 1, lease_until = :now + :lease, lease_us = :lease,
       lease_extended = 0, claimed_at = :now, progress = NULL, progress_note = NULL
 WHERE seq IN (SELECT seq FROM jobs WHERE pool_id = :pool_id AND status = 'pending' AND delayed = 0 AND (alone = 0 OR :alone)
                  AND (capability IS NULL OR capability IN (SELECT value FROM json_each(:capabilities)))
                  AND (:types = '[]' OR type IN (SELECT value FROM json_each(:types)))
                  AND (:without = '[]' OR type NOT IN (SELECT value FROM json_each(:without)))
                ORDER BY priority DESC, seq LIMIT :limit)
RETURNING *;

-- name: claim_limited
-- Jobs in claim order, of each group no more than it has room for.
UPDATE jobs
   SET status = 'claimed', attempts = attempts + CASE WHEN :ahead THEN 0 ELSE 1 END,
       begun_at = CASE WHEN :ahead THEN NULL ELSE :now END, in_company = 0, lease_owner = :worker_id, lease_pool = :holder_pool,
       lease_instance = :instance, lease_epoch = lease_epoch + 1, lease_until = :now + :lease, lease_us = :lease,
       lease_extended = 0, claimed_at = :now, progress = NULL, progress_note = NULL
 WHERE seq IN (
    SELECT seq FROM (
        SELECT c.*, ROW_NUMBER() OVER (PARTITION BY group_key ORDER BY priority DESC, seq) AS place
          FROM (SELECT j.seq, j.priority, j.group_key, j.group_limit, j.rate_count, COALESCE(running.jobs, 0) AS running,
                       (SELECT COUNT(*) FROM group_claims g WHERE j.rate_count IS NOT NULL AND g.pool_id = j.pool_id
                           AND g.group_key = j.group_key AND g.at > :now - j.rate_us) AS recent
                  FROM jobs j LEFT JOIN (
                       SELECT group_key, COUNT(*) AS jobs FROM jobs WHERE pool_id = :pool_id AND group_key IS NOT NULL
                          AND status = 'claimed' GROUP BY group_key) running ON running.group_key = j.group_key
                 WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 0 AND (j.alone = 0 OR :alone)
                   AND (j.capability IS NULL OR j.capability IN (SELECT value FROM json_each(:capabilities)))
                   AND (:types = '[]' OR j.type IN (SELECT value FROM json_each(:types)))
                   AND (:without = '[]' OR j.type NOT IN (SELECT value FROM json_each(:without)))
                   AND (j.group_limit IS NULL OR j.group_key IS NULL OR COALESCE(running.jobs, 0) < j.group_limit)
                   AND (j.rate_count IS NULL OR j.group_key IS NULL OR recent < j.rate_count)
                 ORDER BY j.priority DESC, j.seq LIMIT :limit * 10 + 100) c)
     WHERE group_key IS NULL OR ((group_limit IS NULL OR running + place <= group_limit) AND (rate_count IS NULL OR recent + place <= rate_count))
     ORDER BY priority DESC, seq LIMIT :limit)
RETURNING *;

-- name: list_limited
-- Limited groups with ready jobs. Skips from one group to the next by index, however many jobs a group has. For each group:
-- how many jobs run, how many were claimed within the period of its rate, and its first jobs.
WITH RECURSIVE groups (group_key) AS (
    SELECT MIN(j.group_key) FROM jobs j
     WHERE j.pool_id = :pool_id AND j.group_key IS NOT NULL AND j.status = 'pending' AND j.delayed = 0 AND (CAST(:types AS TEXT) = '[]' OR j.type IN (SELECT value FROM @texts(:types)))
       AND (CAST(:without AS TEXT) = '[]' OR j.type NOT IN (SELECT value FROM @texts(:without)))
       AND (j.group_limit IS NOT NULL OR j.rate_count IS NOT NULL)
    UNION ALL
    SELECT (SELECT MIN(j.group_key) FROM jobs j
             WHERE j.pool_id = :pool_id AND j.group_key IS NOT NULL AND j.status = 'pending' AND j.delayed = 0 AND (CAST(:types AS TEXT) = '[]' OR j.type IN (SELECT value FROM @texts(:types)))
               AND (CAST(:without AS TEXT) = '[]' OR j.type NOT IN (SELECT value FROM @texts(:without)))
               AND (j.group_limit IS NOT NULL OR j.rate_count IS NOT NULL) AND j.group_key > groups.group_key)
      FROM groups WHERE groups.group_key IS NOT NULL
)
SELECT (SELECT COUNT(*) FROM jobs j
         WHERE j.pool_id = :pool_id AND j.group_key IS NOT NULL AND j.group_key = groups.group_key AND j.status = 'claimed') AS running,
       (SELECT COUNT(*) FROM group_claims c
         WHERE c.pool_id = :pool_id AND c.group_key = groups.group_key AND c.at > @now - (
               SELECT MAX(first.rate_us)
                 FROM (SELECT j.rate_us FROM jobs j
                        WHERE j.pool_id = :pool_id AND j.group_key IS NOT NULL AND j.status = 'pending' AND j.delayed = 0 AND (CAST(:types AS TEXT) = '[]' OR j.type IN (SELECT value FROM @texts(:types)))
                          AND (CAST(:without AS TEXT) = '[]' OR j.type NOT IN (SELECT value FROM @texts(:without)))
                          AND (j.group_limit IS NOT NULL OR j.rate_count IS NOT NULL) AND j.group_key = groups.group_key
                        LIMIT 1) first)) AS recent,
       (SELECT json_group_array(json_array(first.capability, first.group_limit, first.rate_count))
          FROM (SELECT j.capability, j.group_limit, j.rate_count FROM jobs j
                 WHERE j.pool_id = :pool_id AND j.group_key IS NOT NULL AND j.status = 'pending' AND j.delayed = 0 AND (CAST(:types AS TEXT) = '[]' OR j.type IN (SELECT value FROM @texts(:types)))
                   AND (CAST(:without AS TEXT) = '[]' OR j.type NOT IN (SELECT value FROM @texts(:without)))
                   AND (j.group_limit IS NOT NULL OR j.rate_count IS NOT NULL) AND j.group_key = groups.group_key
                 LIMIT :most) first) AS firsts
  FROM groups WHERE groups.group_key IS NOT NULL LIMIT :most * 10 + 100;

-- name: note_claims
INSERT INTO group_claims (pool_id, group_key, seq, n, at, until)
VALUES (:pool_id, :group_key, :seq, :n, :at, :until)
ON CONFLICT (pool_id, group_key, seq, n) DO NOTHING;

-- name: settle_done
-- The statement that ends a job also compares the token with the job's present claim.
UPDATE jobs SET status = 'done', result = v.result, lease_until = NULL, finished_at = @now
  FROM (SELECT json_extract(value, '$[0]') AS seq, json_extract(value, '$[1]') AS epoch, json_extract(value, '$[2]') AS result
          FROM json_each(:verdicts)) v
 WHERE jobs.seq = v.seq AND jobs.status = 'claimed' AND +jobs.lease_owner = :worker_id
   AND jobs.lease_pool = :holder_pool AND jobs.lease_instance = :instance AND jobs.lease_epoch = v.epoch
RETURNING jobs.seq, jobs.pool_id, jobs.has_children;

-- name: pass_on_done
-- There is one writer at a time, so the jobs that wait are those that waited when their parents ended.
UPDATE jobs
   SET waits_for = MAX(waits_for - f.ended, 0), status = CASE WHEN waits_for > f.ended THEN status ELSE 'pending' END,
       delayed = CASE WHEN waits_for > f.ended THEN delayed WHEN not_before > f.now THEN 1 ELSE 0 END,
       not_before = CASE WHEN waits_for > f.ended OR not_before > f.now THEN not_before ELSE f.now END
  FROM (SELECT child_seq, COUNT(*) AS ended, @now AS now FROM job_links
         WHERE parent_seq IN (SELECT value FROM json_each(:parents)) GROUP BY child_seq) f
 WHERE jobs.seq = f.child_seq AND +jobs.status = 'waiting';
SELECT DISTINCT c.pool_id FROM jobs c
 WHERE c.seq IN (SELECT child_seq FROM job_links WHERE parent_seq IN (SELECT value FROM json_each(:parents)))
   AND +c.status = 'pending';

-- name: lock_held
SELECT j.* FROM json_each(:tokens) v JOIN jobs j ON j.seq = json_extract(v.value, '$.seq')
 WHERE j.status = 'claimed' AND +j.lease_owner = :worker_id AND j.lease_pool = :holder_pool
   AND j.lease_instance = :instance AND j.lease_epoch = json_extract(v.value, '$.epoch');

-- name: renew_held
UPDATE jobs SET lease_until = @now + :lease, lease_us = :lease, lease_extended = 0, in_company = 0
  FROM (SELECT json_extract(value, '$.seq') AS seq, json_extract(value, '$.epoch') AS epoch FROM json_each(:tokens)) v
 WHERE jobs.seq = v.seq AND jobs.status = 'claimed' AND +jobs.lease_owner = :worker_id
   AND jobs.lease_pool = :holder_pool AND jobs.lease_instance = :instance AND jobs.lease_epoch = v.epoch
RETURNING jobs.seq, jobs.cancel_requested;

-- name: lock_jobs_of_worker
SELECT * FROM jobs
 WHERE lease_owner = :worker_id AND lease_pool = :holder_pool AND lease_instance = :instance AND status = 'claimed' ORDER BY seq;

-- name: begin_held
-- An attempt is counted once, also if this is repeated.
UPDATE jobs SET attempts = attempts + CASE WHEN begun_at IS NULL THEN 1 ELSE 0 END, begun_at = COALESCE(begun_at, @now)
  FROM (SELECT json_extract(value, '$.seq') AS seq, json_extract(value, '$.epoch') AS epoch FROM json_each(:tokens)) v
 WHERE jobs.seq = v.seq AND jobs.status = 'claimed' AND +jobs.lease_owner = :worker_id
   AND jobs.lease_pool = :holder_pool AND jobs.lease_instance = :instance AND jobs.lease_epoch = v.epoch
RETURNING jobs.seq;

-- name: extend_leases
-- Extends leases that expired for the first time: the store may have been unreachable.
UPDATE jobs SET lease_until = @now + lease_us, lease_extended = 1
 WHERE seq IN (SELECT seq FROM jobs INDEXED BY jobs_claimed
                WHERE status = 'claimed' AND lease_until <= @now AND lease_extended = 0 LIMIT :limit);

-- name: lock_expired
SELECT * FROM jobs INDEXED BY jobs_claimed WHERE status = 'claimed' AND lease_until <= @now AND lease_extended = 1 ORDER BY lease_owner LIMIT :limit;

-- name: save_jobs
UPDATE jobs
   SET status = v.status, delayed = v.delayed, attempts = v.attempts, failures = v.failures, crashes = v.crashes,
       suspicions = v.suspicions, alone = v.alone, begun_at = v.begun_at, lease_extended = 0, result = v.result,
       lease_owner = v.lease_owner, lease_pool = v.lease_pool, lease_instance = v.lease_instance, lease_until = NULL, not_before = v.not_before, last_error = v.last_error,
       finished_at = v.finished_at
  FROM (SELECT json_extract(value, '$.seq') AS seq, json_extract(value, '$.status') AS status,
               json_extract(value, '$.delayed') AS delayed, json_extract(value, '$.attempts') AS attempts,
               json_extract(value, '$.failures') AS failures, json_extract(value, '$.crashes') AS crashes,
               json_extract(value, '$.suspicions') AS suspicions, json_extract(value, '$.alone') AS alone,
               json_extract(value, '$.begun_at') AS begun_at,
               json_extract(value, '$.result') AS result, json_extract(value, '$.lease_owner') AS lease_owner,
               json_extract(value, '$.lease_pool') AS lease_pool, json_extract(value, '$.lease_instance') AS lease_instance,
               json_extract(value, '$.not_before') AS not_before, json_extract(value, '$.last_error') AS last_error,
               json_extract(value, '$.finished_at') AS finished_at FROM json_each(:rows)) v
 WHERE jobs.seq = v.seq;

-- name: add_attempts
INSERT INTO job_attempts (seq, n, worker_id, worker_pool, started_at, ended_at, outcome, error)
SELECT json_extract(value, '$.seq'), json_extract(value, '$.n'), json_extract(value, '$.worker_id'), json_extract(value, '$.worker_pool'),
       json_extract(value, '$.started_at'), json_extract(value, '$.ended_at'), json_extract(value, '$.outcome'),
       json_extract(value, '$.error') FROM json_each(:rows);

-- name: free_space
-- A file that was created without incremental vacuum cannot return pages: it reports none as free.
SELECT CASE (SELECT auto_vacuum FROM pragma_auto_vacuum) WHEN 2 THEN (SELECT freelist_count FROM pragma_freelist_count) ELSE 0 END AS free,
       (SELECT page_count FROM pragma_page_count) AS pages;

-- name: give_back
PRAGMA incremental_vacuum(200);

-- name: note_ended
-- Adds to the number of ended jobs of a pool in a state (negative: they were requeued or pruned). One writer needs one row.
INSERT INTO job_counts (pool_id, status, part, jobs) VALUES (:pool_id, :status, 0, :jobs)
ON CONFLICT (pool_id, status, part) DO UPDATE SET jobs = jobs + excluded.jobs;

-- name: fold_counts
-- There is only one row.
SELECT 1;

-- name: lock_counts
-- The transaction of the writing thread holds the file's lock already.
SELECT 1;

-- name: list_jobs
-- Each state is read by its own index, so that a few jobs are found fast among many finished ones; other states are not read.
-- The index of ready jobs is by priority: it is read from one priority to the next, of each the first by number.
WITH RECURSIVE priorities (priority) AS (
    SELECT MAX(j.priority) FROM jobs j INDEXED BY jobs_ready
     WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 0
       AND 'pending' IN (SELECT value FROM json_each(:statuses))
    UNION ALL
    SELECT (SELECT MAX(j.priority) FROM jobs j INDEXED BY jobs_ready
             WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 0 AND j.priority < p.priority)
      FROM priorities p WHERE p.priority IS NOT NULL
), ready (seq) AS (
    SELECT listed.value FROM priorities p, json_each((
        SELECT json_group_array(first.seq) FROM (
            SELECT j.seq FROM jobs j INDEXED BY jobs_ready
             WHERE j.pool_id = :pool_id AND j.priority = p.priority AND j.seq > :after AND j.status = 'pending'
               AND j.delayed = 0 AND (:type IS NULL OR j.type = :type) AND (:group IS NULL OR j.group_key = :group)
               AND (:worker_id IS NULL OR j.lease_owner = :worker_id)
               AND (:holder_pool IS NULL OR COALESCE(j.lease_pool, j.pool_id) = :holder_pool)
               AND (:instance IS NULL OR COALESCE(j.lease_instance, '') = :instance)
             ORDER BY j.seq LIMIT :limit) first)) listed
), delayed (seq) AS (
    SELECT j.seq FROM jobs j INDEXED BY jobs_delayed
     WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 1 AND +j.seq > :after
       AND 'pending' IN (SELECT value FROM json_each(:statuses)) AND (:type IS NULL OR j.type = :type) AND (:group IS NULL OR j.group_key = :group)
       AND (:worker_id IS NULL OR j.lease_owner = :worker_id)
       AND (:holder_pool IS NULL OR COALESCE(j.lease_pool, j.pool_id) = :holder_pool)
       AND (:instance IS NULL OR COALESCE(j.lease_instance, '') = :instance)
     ORDER BY +j.seq LIMIT :limit
), claimed (seq) AS (
    SELECT j.seq FROM jobs j INDEXED BY jobs_claimed
     WHERE j.pool_id = :pool_id AND j.status = 'claimed' AND +j.seq > :after
       AND 'claimed' IN (SELECT value FROM json_each(:statuses)) AND (:type IS NULL OR j.type = :type) AND (:group IS NULL OR j.group_key = :group)
       AND (:worker_id IS NULL OR j.lease_owner = :worker_id)
       AND (:holder_pool IS NULL OR COALESCE(j.lease_pool, j.pool_id) = :holder_pool)
       AND (:instance IS NULL OR COALESCE(j.lease_instance, '') = :instance)
     ORDER BY +j.seq LIMIT :limit
), waiting (seq) AS (
    SELECT j.seq FROM jobs j INDEXED BY jobs_waiting
     WHERE j.pool_id = :pool_id AND j.status = 'waiting' AND j.seq > :after
       AND 'waiting' IN (SELECT value FROM json_each(:statuses)) AND (:type IS NULL OR j.type = :type) AND (:group IS NULL OR j.group_key = :group)
       AND (:worker_id IS NULL OR j.lease_owner = :worker_id)
       AND (:holder_pool IS NULL OR COALESCE(j.lease_pool, j.pool_id) = :holder_pool)
       AND (:instance IS NULL OR COALESCE(j.lease_instance, '') = :instance)
     ORDER BY j.seq LIMIT :limit
), ended (seq) AS (
    SELECT listed.value FROM json_each(:statuses) s, json_each((
        SELECT json_group_array(first.seq) FROM (
            SELECT j.seq FROM jobs j INDEXED BY jobs_ended
             WHERE j.pool_id = :pool_id AND j.status = s.value AND j.status IN ('done', 'poisoned', 'cancelled')
               AND j.seq > :after AND (:type IS NULL OR j.type = :type) AND (:group IS NULL OR j.group_key = :group)
               AND (:worker_id IS NULL OR j.lease_owner = :worker_id)
               AND (:holder_pool IS NULL OR COALESCE(j.lease_pool, j.pool_id) = :holder_pool)
               AND (:instance IS NULL OR COALESCE(j.lease_instance, '') = :instance)
             ORDER BY j.seq LIMIT :limit) first)) listed
)
SELECT j.* FROM jobs j
 WHERE j.seq IN (SELECT seq FROM (SELECT seq FROM ready UNION ALL SELECT seq FROM delayed UNION ALL SELECT seq FROM claimed
                                  UNION ALL SELECT seq FROM waiting UNION ALL SELECT seq FROM ended) ORDER BY seq LIMIT :limit)
 ORDER BY j.seq;

-- name: list_prunable
-- Like the portable query, but without (status, seq) > (…): SQLite would read all rows before a page to find its start.
SELECT j.seq, j.has_children, CASE WHEN j.finished_at < @now - :age AND (j.has_children = 0 OR NOT EXISTS (
                   SELECT 1 FROM job_links l JOIN jobs c ON c.seq = l.child_seq
                    WHERE l.parent_seq = j.seq AND c.status IN ('waiting', 'pending', 'claimed', 'poisoned'))) THEN 1 ELSE 0 END AS is_old,
       CASE WHEN j.created_at >= @now - :age THEN 1 ELSE 0 END AS is_young
  FROM jobs j INDEXED BY jobs_ended
 WHERE j.pool_id = :pool_id AND j.status = :status AND j.status IN ('done', 'poisoned', 'cancelled') AND j.seq > :after
 ORDER BY j.seq LIMIT :limit;

-- name: list_unreaped_workers
SELECT * FROM workers
 WHERE pool_id = :pool_id AND worker_id IN (
           SELECT w.worker_id FROM workers w INDEXED BY workers_live WHERE w.pool_id = :pool_id AND w.ended_at IS NULL
           UNION ALL
           SELECT worker_id FROM (
               SELECT w.worker_id FROM workers w INDEXED BY workers_unreaped
                WHERE w.pool_id = :pool_id AND w.ended_at IS NOT NULL AND w.reaped_at IS NULL ORDER BY w.ended_at LIMIT :limit)
           UNION ALL
           SELECT value FROM json_each(:named))
 ORDER BY slot, created_at, worker_id;

-- name: prune_workers
-- Deletes some of the workers that ended first. A fleet's workers stay while they may still cost money, or count for the
-- current month; a worker that was reaped before the month also ended before it.
WITH home AS (
    SELECT CASE WHEN p.kind = 'fleet' OR (p.kind = 'jobs' AND json_type(p.policy, '$.policy') IS NOT NULL)
                THEN CAST(:billed_since AS BIGINT) END AS billed FROM drumbeat.pools p WHERE p.pool_id = :pool_id
)
DELETE FROM drumbeat.workers WHERE pool_id = :pool_id AND worker_id IN (
    SELECT w.worker_id FROM drumbeat.workers w INDEXED BY workers_ended
     WHERE w.pool_id = :pool_id AND w.ended_at IS NOT NULL
       AND w.ended_at < MIN(@now - CAST(:age AS BIGINT), COALESCE((SELECT billed FROM home), 9000000000000000000))
       AND ((SELECT billed FROM home) IS NULL OR w.reaped_at < (SELECT billed FROM home))
     ORDER BY w.ended_at LIMIT CAST(:limit AS INTEGER))
RETURNING 1;

-- name: add_links
INSERT INTO job_links (child_seq, parent_seq)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:links);

-- name: record_steps
-- There is one writer at a time, so a job that is held by the first statement is held by the last.
INSERT INTO job_steps (seq, n, name, kind, result, error, started_at, finished_at, until, epoch)
SELECT j.seq, v.n, v.name, v.kind, v.result, v.error, v.started_at, v.finished_at, v.until, v.epoch
  FROM (SELECT json_extract(value, '$.seq') AS seq, json_extract(value, '$.epoch') AS epoch, json_extract(value, '$.n') AS n,
               json_extract(value, '$.name') AS name, json_extract(value, '$.kind') AS kind, json_extract(value, '$.result') AS result,
               json_extract(value, '$.error') AS error, json_extract(value, '$.started_at') AS started_at,
               json_extract(value, '$.finished_at') AS finished_at, json_extract(value, '$.until') AS until
          FROM json_each(:steps)) v
  JOIN jobs j ON j.seq = v.seq
 WHERE j.status = 'claimed' AND +j.lease_owner = :worker_id AND j.lease_pool = :holder_pool
   AND j.lease_instance = :instance AND j.lease_epoch = v.epoch
ON CONFLICT (seq, n) DO UPDATE
   SET name = excluded.name, kind = excluded.kind, result = excluded.result, error = excluded.error,
       started_at = excluded.started_at, finished_at = excluded.finished_at, until = excluded.until, epoch = excluded.epoch;
UPDATE jobs SET has_steps = 1
  FROM (SELECT DISTINCT json_extract(value, '$.seq') AS seq, json_extract(value, '$.epoch') AS epoch FROM json_each(:steps)) v
 WHERE jobs.seq = v.seq AND jobs.has_steps = 0 AND jobs.status = 'claimed' AND +jobs.lease_owner = :worker_id
   AND jobs.lease_pool = :holder_pool AND jobs.lease_instance = :instance AND jobs.lease_epoch = v.epoch;
SELECT j.seq, j.lease_epoch
  FROM (SELECT DISTINCT json_extract(value, '$.seq') AS seq, json_extract(value, '$.epoch') AS epoch FROM json_each(:steps)) v
  JOIN jobs j ON j.seq = v.seq
 WHERE j.status = 'claimed' AND +j.lease_owner = :worker_id AND j.lease_pool = :holder_pool
   AND j.lease_instance = :instance AND j.lease_epoch = v.epoch;
