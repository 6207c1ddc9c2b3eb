-- Named queries for every SQL database. ``drumbeat.`` is the schema; words with ``@`` come from the dialect.

-- name: now
SELECT @now AS now;

-- name: make_version_table
CREATE TABLE IF NOT EXISTS drumbeat.schema_version (version INTEGER PRIMARY KEY, applied_at BIGINT NOT NULL);

-- name: read_version
SELECT COALESCE(MAX(version), 0) AS version FROM drumbeat.schema_version;

-- name: add_version
INSERT INTO drumbeat.schema_version (version, applied_at) VALUES (:version, @now);

-- name: begin_copy
-- While this table exists, the store is the target of an unfinished copy, and no other command opens it.
CREATE TABLE drumbeat.unfinished_copy (source TEXT NOT NULL, runner TEXT NOT NULL, rows_copied BIGINT NOT NULL);

-- name: add_copy
INSERT INTO drumbeat.unfinished_copy (source, runner, rows_copied) VALUES (:source, :runner, 0);

-- name: find_copy
SELECT source, rows_copied FROM drumbeat.unfinished_copy;

-- name: take_copy
-- A process that still copies the same source can write nothing after this.
UPDATE drumbeat.unfinished_copy SET runner = :runner;

-- name: note_copied
-- The row is locked until commit, so the process that takes over the copy sees this write or prevents it.
UPDATE drumbeat.unfinished_copy SET rows_copied = rows_copied + CAST(:rows AS BIGINT) WHERE runner = :runner RETURNING 1;

-- name: end_copy
DROP TABLE drumbeat.unfinished_copy;

-- name: list_unended_workers
SELECT pool_id, worker_id, COALESCE(heartbeat_at, created_at) AS at FROM drumbeat.workers WHERE ended_at IS NULL
 ORDER BY pool_id, worker_id;

-- name: list_controllers
SELECT l.name FROM drumbeat.leases l JOIN drumbeat.pools p ON p.pool_id = l.name
 WHERE l.released = 0 AND l.expires_at > @now ORDER BY l.name;

-- name: count_changes
-- Numbers of which at least one rises with almost every change of the store.
SELECT CAST(COALESCE(SUM(p.next_event + p.next_beat + p.next_log), 0) AS BIGINT) AS records,
       (SELECT CAST(COALESCE(SUM(w.heartbeat_count), 0) AS BIGINT) FROM drumbeat.workers w) AS heartbeats,
       (SELECT CAST(COALESCE(SUM(l.epoch), 0) AS BIGINT) FROM drumbeat.leases l) AS epochs,
       (SELECT CAST(COALESCE(SUM(c.jobs), 0) AS BIGINT) FROM drumbeat.job_counts c) AS ended_jobs,
       (SELECT COALESCE(MAX(j.seq), 0) FROM drumbeat.jobs j) AS last_job,
       (SELECT COALESCE(MAX(r.updated_at), 0) FROM drumbeat.runs r) AS runs,
       (SELECT COALESCE(MAX(t.updated_at), 0) FROM drumbeat.templates t) AS templates,
       (SELECT COALESCE(MAX(n.updated_at), 0) FROM drumbeat.notes n) AS notes
  FROM drumbeat.pools p;

-- name: check_fence
-- Locks the lease until commit, so that no other controller can take it between this check and the write it guards.
SELECT epoch FROM drumbeat.leases WHERE name = :name AND epoch = :epoch AND released = 0 @for_share;

-- name: add_pool
INSERT INTO drumbeat.pools (pool_id, kind, thresholds, policy, paused_until, created_at)
VALUES (:pool_id, :kind, CAST(:thresholds AS @json), CAST(:policy AS @json), :paused_until, @now)
ON CONFLICT (pool_id) DO NOTHING
RETURNING *;

-- name: find_pool
SELECT * FROM drumbeat.pools WHERE pool_id = :pool_id;

-- name: list_pools
SELECT * FROM drumbeat.pools WHERE CAST(:kind AS TEXT) IS NULL OR kind = :kind ORDER BY created_at, pool_id;

-- name: save_pool
UPDATE drumbeat.pools
   SET thresholds = CAST(:thresholds AS @json), policy = CAST(:policy AS @json), paused_until = :paused_until
 WHERE pool_id = :pool_id
RETURNING *;

-- name: lock_pool
-- A change of a pool locks its row, so that two changes run one after the other. It does not wait for pushes.
SELECT * FROM drumbeat.pools WHERE pool_id = :pool_id @for_change;

-- name: lock_pool_to_delete
-- Waits for the pushes to this pool that have not committed yet. A later push waits for this transaction, and finds no pool.
SELECT pool_id FROM drumbeat.pools WHERE pool_id = :pool_id @for_update;

-- name: find_unfinished
-- An unfinished job of a pool. Each state is read by its own index.
SELECT j.seq FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 0
UNION ALL
SELECT j.seq FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 1
UNION ALL
SELECT j.seq FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'waiting'
UNION ALL
SELECT j.seq FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'claimed' AND j.lease_owner IS NOT NULL
 LIMIT 1;

-- name: count_live_workers
SELECT COUNT(*) AS live FROM drumbeat.workers @by(workers_live) WHERE pool_id = :pool_id AND ended_at IS NULL;

-- name: delete_pool
-- Leaves the jobs with children: a job that gets its first child while this statement waits for its row is not deleted here.
DELETE FROM drumbeat.pools WHERE pool_id = :pool_id;
DELETE FROM drumbeat.workers WHERE pool_id = :pool_id;
DELETE FROM drumbeat.events WHERE pool_id = :pool_id;
DELETE FROM drumbeat.beats WHERE pool_id = :pool_id;
DELETE FROM drumbeat.samples WHERE pool_id = :pool_id;
DELETE FROM drumbeat.logs WHERE pool_id = :pool_id;
DELETE FROM drumbeat.job_attempts WHERE @of_pool(seq);
DELETE FROM drumbeat.job_links WHERE @of_pool(child_seq);
DELETE FROM drumbeat.job_steps WHERE @of_pool(seq);
DELETE FROM drumbeat.group_claims WHERE pool_id = :pool_id;
DELETE FROM drumbeat.jobs WHERE @of_pool(seq) AND has_children = 0;
DELETE FROM drumbeat.job_counts WHERE pool_id = :pool_id;
DELETE FROM drumbeat.steps WHERE run_id = :pool_id;
DELETE FROM drumbeat.results WHERE run_id = :pool_id;
DELETE FROM drumbeat.executions WHERE run_id = :pool_id;
DELETE FROM drumbeat.execution_files WHERE run_id = :pool_id;
DELETE FROM drumbeat.runs WHERE run_id = :pool_id;

-- name: delete_pool_parents
DELETE FROM drumbeat.jobs WHERE @of_pool(seq, j.has_children > 0) AND has_children > 0 RETURNING seq;

-- name: read_events
SELECT * FROM drumbeat.events
 WHERE pool_id = :pool_id AND sequence_id > CAST(:after AS BIGINT) ORDER BY sequence_id LIMIT CAST(:limit AS INTEGER);

-- name: add_worker
-- An id can be used once; the primary key refuses a second row.
INSERT INTO drumbeat.workers (pool_id, worker_id, slot, status, provider, provider_ref, capabilities, target, meta, created_at)
VALUES (:pool_id, :worker_id, :slot, 'spawning', :provider, :provider_ref, CAST(:capabilities AS @json), :target,
        CAST(:meta AS @json), @now)
ON CONFLICT (pool_id, worker_id) DO NOTHING
RETURNING worker_id;

-- name: find_worker
SELECT * FROM drumbeat.workers WHERE pool_id = :pool_id AND worker_id = :worker_id;

-- name: lock_worker
-- Locks the row until commit, so that a decision based on it stays valid.
SELECT * FROM drumbeat.workers WHERE pool_id = :pool_id AND worker_id = :worker_id @for_update;

-- name: list_workers
SELECT * FROM drumbeat.workers WHERE pool_id = :pool_id ORDER BY slot, created_at, worker_id;

-- name: list_live_workers
SELECT * FROM drumbeat.workers @by(workers_live) WHERE pool_id = :pool_id AND ended_at IS NULL ORDER BY slot, created_at, worker_id;

-- name: list_workers_since
-- Three parts, each with its own index: live workers, ended but unreaped ones, and those reaped since then.
SELECT * FROM (
    SELECT * FROM drumbeat.workers w @by(workers_live) WHERE w.pool_id = :pool_id AND w.ended_at IS NULL
    UNION ALL
    SELECT * FROM drumbeat.workers w @by(workers_unreaped) WHERE w.pool_id = :pool_id AND w.ended_at IS NOT NULL AND w.reaped_at IS NULL
    UNION ALL
    SELECT * FROM drumbeat.workers w @by(workers_reaped) WHERE w.pool_id = :pool_id AND w.reaped_at IS NOT NULL
       AND w.reaped_at >= CAST(:gone_since AS BIGINT)) w
 ORDER BY slot, created_at, worker_id;

-- name: list_ended_workers
SELECT * FROM drumbeat.workers @by(workers_ended) WHERE pool_id = :pool_id AND ended_at IS NOT NULL
 ORDER BY ended_at DESC LIMIT CAST(:limit AS INTEGER);

-- name: note_worker_number
-- The highest number in a worker id, so that an id is never used again, even after its worker's row was pruned.
UPDATE drumbeat.pools SET last_worker = CAST(:number AS BIGINT) WHERE pool_id = :pool_id AND last_worker < CAST(:number AS BIGINT);

-- name: move_worker
UPDATE drumbeat.workers
   SET status = :to_status,
       ready_at = CASE WHEN CAST(:to_status AS TEXT) = 'waiting' THEN @now ELSE ready_at END,
       ended_at = CASE WHEN CAST(:to_status AS TEXT) IN ('terminated', 'error', 'lost') THEN @now ELSE ended_at END,
       exit_code = COALESCE(:exit_code, exit_code), error = COALESCE(:error, error),
       provider_ref = COALESCE(:provider_ref, provider_ref), meta = COALESCE(CAST(:meta AS @json), meta)
 WHERE pool_id = :pool_id AND worker_id = :worker_id
RETURNING *;

-- name: set_target
UPDATE drumbeat.workers SET target = :target, target_seq = :target_seq
 WHERE pool_id = :pool_id AND worker_id = :worker_id AND ended_at IS NULL
RETURNING worker_id;

-- name: set_drain_deadline
UPDATE drumbeat.workers SET drain_deadline = @now + CAST(:within AS BIGINT)
 WHERE pool_id = :pool_id AND worker_id = :worker_id AND ended_at IS NULL AND drain_deadline IS NULL
RETURNING worker_id;

-- name: note_instance
-- The row was locked when its meta was read, so no concurrent change is lost.
UPDATE drumbeat.workers SET provider_ref = :provider_ref, meta = CAST(:meta AS @json)
 WHERE pool_id = :pool_id AND worker_id = :worker_id;

-- name: mark_reaped
UPDATE drumbeat.workers SET reaped_at = COALESCE(reaped_at, @now)
 WHERE pool_id = :pool_id AND worker_id = :worker_id AND ended_at IS NOT NULL
RETURNING worker_id;

-- name: join_worker
-- Takes a row in state spawning, or inserts one. A row of another process or of an ended worker is not changed.
INSERT INTO drumbeat.workers (pool_id, worker_id, slot, status, instance, host, pid, provider, provider_ref, capabilities, meta,
                              created_at, started_at, heartbeat_at, heartbeat_count)
SELECT pool_id, :worker_id, CAST(:slot AS INTEGER), 'starting', :instance, :host, CAST(:pid AS BIGINT), :provider, :provider_ref,
       CAST(:capabilities AS @json), CAST('{}' AS @json), @now, @now, @now, 1
  FROM drumbeat.pools WHERE pool_id = :pool_id
ON CONFLICT (pool_id, worker_id) DO UPDATE
   SET status = 'starting', instance = excluded.instance, host = excluded.host, pid = excluded.pid, slot = excluded.slot,
       provider = COALESCE(excluded.provider, workers.provider),
       provider_ref = COALESCE(excluded.provider_ref, workers.provider_ref), capabilities = excluded.capabilities,
       started_at = excluded.started_at, heartbeat_at = excluded.heartbeat_at, heartbeat_count = 1
 WHERE workers.status = 'spawning'
RETURNING *;

-- name: find_lease
SELECT * FROM drumbeat.leases WHERE name = :name;

-- name: acquire_lease
-- One statement: the existing row is locked before its expiry is checked, so exactly one of several callers gets the lease.
INSERT INTO drumbeat.leases (name, owner, epoch, expires_at) VALUES (:name, :owner, 1, @now + CAST(:ttl AS BIGINT))
ON CONFLICT (name) DO UPDATE
   SET owner = excluded.owner, epoch = leases.epoch + 1, expires_at = excluded.expires_at, released = 0
 WHERE leases.expires_at <= @now OR leases.released = 1
RETURNING *;

-- name: renew_lease
UPDATE drumbeat.leases SET expires_at = @now + CAST(:ttl AS BIGINT)
 WHERE name = :name AND owner = :owner AND epoch = :epoch AND released = 0
RETURNING *;

-- name: release_lease
UPDATE drumbeat.leases SET expires_at = @now, released = 1
 WHERE name = :name AND owner = :owner AND epoch = :epoch AND released = 0;

-- name: take_beat_number
UPDATE drumbeat.pools SET next_beat = next_beat + 1 WHERE pool_id = :pool_id RETURNING next_beat - 1 AS n;

-- name: add_beat
INSERT INTO drumbeat.beats (pool_id, n, owner, epoch, at, view, actions, why_not, error, duration_us, summary)
VALUES (:pool_id, :n, :owner, :epoch, @now, CAST(:view AS @json), CAST(:actions AS @json), :why_not, :error, :duration_us,
        CAST(:summary AS @json))
RETURNING *;

-- name: list_beats
SELECT * FROM drumbeat.beats
 WHERE pool_id = :pool_id AND n > CAST(:after AS BIGINT) AND (CAST(:since AS BIGINT) IS NULL OR at > CAST(:since AS BIGINT))
 ORDER BY n LIMIT CAST(:limit AS INTEGER);

-- name: list_beats_with_actions
-- Newest first. Beats are numbered without gaps, so the bound on n is a bound on the rows that are read, also in a pool without
-- any actions. Without the view, which is most of a row and is not needed.
SELECT pool_id, n, owner, epoch, at, NULL AS view, actions, why_not, error, duration_us, summary FROM drumbeat.beats
 WHERE pool_id = :pool_id
   AND n >= (SELECT p.next_beat - CAST(:among AS BIGINT) FROM drumbeat.pools p WHERE p.pool_id = :pool_id)
   AND (CAST(:since AS BIGINT) IS NULL OR at > CAST(:since AS BIGINT)) AND CAST(actions AS TEXT) <> '[]'
 ORDER BY n DESC LIMIT CAST(:limit AS INTEGER);

-- name: last_beat
SELECT * FROM drumbeat.beats
 WHERE pool_id = :pool_id AND (CAST(:before AS BIGINT) IS NULL OR at <= CAST(:before AS BIGINT))
   AND (CAST(:seen AS INTEGER) = 0 OR view IS NOT NULL)
 ORDER BY n DESC LIMIT 1;

-- name: add_sample
-- A sample whose number exists already changes nothing.
INSERT INTO drumbeat.samples (pool_id, worker_id, n, at, interval_us, phase, operations, reads, writes, errors, latency,
                              p50_ms, p95_ms, p99_ms, avg_ms, min_ms, max_ms, active, target, cpu_percent, memory_percent, gpu, extra)
VALUES (:pool_id, :worker_id, :n, @now - CAST(:age_us AS BIGINT), :interval_us, :sample_phase, :sample_operations, :reads, :writes,
        :sample_errors, :latency, :p50_ms, :p95_ms, :p99_ms, :avg_ms, :min_ms, :max_ms, :sample_active, :target,
        :sample_cpu, :sample_memory, CAST(:sample_gpu AS @json), CAST(:extra AS @json))
ON CONFLICT (pool_id, worker_id, n) DO NOTHING;

-- name: list_samples
SELECT * FROM drumbeat.samples
 WHERE pool_id = :pool_id AND (CAST(:since AS BIGINT) IS NULL OR at > CAST(:since AS BIGINT))
   AND (CAST(:until AS BIGINT) IS NULL OR at <= CAST(:until AS BIGINT))
   AND (CAST(:worker_id AS TEXT) IS NULL OR worker_id = :worker_id)
   AND (CAST(:failed AS INTEGER) = 0 OR errors > 0 OR @json_text(extra, 'failed_connects') IS NOT NULL)
 ORDER BY at, worker_id, n LIMIT CAST(:limit AS INTEGER);

-- name: add_run
INSERT INTO drumbeat.runs (run_id, name, template_id, config, status, phase, expected_workers, controller_state, custom_metrics,
                           created_at, updated_at)
VALUES (:run_id, :name, :template_id, CAST(:config AS @json), :status, :phase, :expected_workers,
        CAST(:controller_state AS @json), CAST(:custom_metrics AS @json), @now, @now)
ON CONFLICT (run_id) DO NOTHING
RETURNING *;

-- name: find_run
SELECT * FROM drumbeat.runs WHERE run_id = :run_id;

-- name: lock_run
SELECT * FROM drumbeat.runs WHERE run_id = :run_id @for_update;

-- name: keep_run
-- Locks the run until commit, so that nothing is added to a run while it is deleted.
SELECT run_id FROM drumbeat.runs WHERE run_id = :run_id @for_share;

-- name: list_runs
SELECT * FROM drumbeat.runs
 WHERE (CAST(:statuses AS TEXT) = '' OR CAST(:statuses AS TEXT) LIKE '%,' || status || ',%')
   AND (CAST(:search AS TEXT) IS NULL OR LOWER(name) LIKE LOWER(CAST(:search AS TEXT)) ESCAPE '!')
   AND (CAST(:template_id AS TEXT) IS NULL OR template_id = :template_id)
   AND (CAST(:load_mode AS TEXT) IS NULL OR @json_text(config, 'load_mode') = :load_mode)
   AND (CAST(:scaling_mode AS TEXT) IS NULL OR @json_text(config, 'scaling', 'mode') = :scaling_mode)
   AND (CAST(:config_hash AS TEXT) IS NULL OR @json_text(config, 'config_hash') = :config_hash)
   AND (CAST(:since AS BIGINT) IS NULL OR created_at >= CAST(:since AS BIGINT))
   AND (CAST(:until AS BIGINT) IS NULL OR created_at < CAST(:until AS BIGINT))
 ORDER BY created_at DESC, run_id LIMIT CAST(:limit AS INTEGER) OFFSET CAST(:offset AS INTEGER);

-- name: list_runs_under_way
-- Like list_runs, for statuses of runs that have not ended: it uses an index that has only these runs.
SELECT * FROM drumbeat.runs @by(runs_under_way)
 WHERE status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED') AND CAST(:statuses AS TEXT) LIKE '%,' || status || ',%'
   AND (CAST(:search AS TEXT) IS NULL OR LOWER(name) LIKE LOWER(CAST(:search AS TEXT)) ESCAPE '!')
   AND (CAST(:template_id AS TEXT) IS NULL OR template_id = :template_id)
   AND (CAST(:load_mode AS TEXT) IS NULL OR @json_text(config, 'load_mode') = :load_mode)
   AND (CAST(:scaling_mode AS TEXT) IS NULL OR @json_text(config, 'scaling', 'mode') = :scaling_mode)
   AND (CAST(:config_hash AS TEXT) IS NULL OR @json_text(config, 'config_hash') = :config_hash)
   AND (CAST(:since AS BIGINT) IS NULL OR created_at >= CAST(:since AS BIGINT))
   AND (CAST(:until AS BIGINT) IS NULL OR created_at < CAST(:until AS BIGINT))
 ORDER BY created_at DESC, run_id LIMIT CAST(:limit AS INTEGER) OFFSET CAST(:offset AS INTEGER);

-- name: list_runs_of_template
-- Like list_runs, for the runs of one template: it uses their index.
SELECT * FROM drumbeat.runs @by(runs_of_template)
 WHERE template_id = :template_id
   AND (CAST(:statuses AS TEXT) = '' OR CAST(:statuses AS TEXT) LIKE '%,' || status || ',%')
   AND (CAST(:search AS TEXT) IS NULL OR LOWER(name) LIKE LOWER(CAST(:search AS TEXT)) ESCAPE '!')
   AND (CAST(:load_mode AS TEXT) IS NULL OR @json_text(config, 'load_mode') = :load_mode)
   AND (CAST(:scaling_mode AS TEXT) IS NULL OR @json_text(config, 'scaling', 'mode') = :scaling_mode)
   AND (CAST(:config_hash AS TEXT) IS NULL OR @json_text(config, 'config_hash') = :config_hash)
   AND (CAST(:since AS BIGINT) IS NULL OR created_at >= CAST(:since AS BIGINT))
   AND (CAST(:until AS BIGINT) IS NULL OR created_at < CAST(:until AS BIGINT))
 ORDER BY created_at DESC, run_id LIMIT CAST(:limit AS INTEGER) OFFSET CAST(:offset AS INTEGER);

-- name: update_run
UPDATE drumbeat.runs
   SET status = COALESCE(:status, status), phase = COALESCE(:phase, phase),
       completion_reason = COALESCE(:completion_reason, completion_reason),
       expected_workers = COALESCE(:expected_workers, expected_workers), operations = COALESCE(:operations, operations),
       errors = COALESCE(:errors, errors), qps = COALESCE(:qps, qps),
       controller_state = COALESCE(CAST(:controller_state AS @json), controller_state),
       custom_metrics = COALESCE(CAST(:custom_metrics AS @json), custom_metrics), updated_at = @now,
       started_at = COALESCE(started_at, CASE WHEN CAST(:started AS INTEGER) = 1 THEN @now END),
       warmup_started_at = COALESCE(warmup_started_at, CASE WHEN CAST(:warmup_started AS INTEGER) = 1 THEN @now END),
       warmup_ended_at = COALESCE(warmup_ended_at, CASE WHEN CAST(:warmup_ended AS INTEGER) = 1 THEN @now END),
       ended_at = COALESCE(ended_at, CASE WHEN CAST(:ended AS INTEGER) = 1 THEN @now END)
 WHERE run_id = :run_id
RETURNING *;

-- name: save_result
-- One row per run, worker and kind: a later result replaces an earlier one.
INSERT INTO drumbeat.results (run_id, worker_id, kind, status, connections, operations, reads, writes, errors, qps, avg_ms, p50_ms, p90_ms, p95_ms, p99_ms,
                              min_ms, max_ms, latency, find_max_result, failure_reason, enrichment_status, enrichment_error, custom_metrics, started_at, ended_at, created_at)
SELECT run_id, CAST(:worker_id AS TEXT), CAST(:kind AS TEXT), CAST(:status AS TEXT), CAST(:connections AS INTEGER),
       CAST(:operations AS BIGINT), CAST(:reads AS BIGINT), CAST(:writes AS BIGINT), CAST(:errors AS BIGINT), CAST(:qps AS @real),
       CAST(:avg_ms AS @real), CAST(:p50_ms AS @real), CAST(:p90_ms AS @real), CAST(:p95_ms AS @real), CAST(:p99_ms AS @real),
       CAST(:min_ms AS @real), CAST(:max_ms AS @real), CAST(:latency AS @bytes), CAST(:find_max_result AS @json),
       CAST(:failure_reason AS TEXT), CAST(:enrichment_status AS TEXT), CAST(:enrichment_error AS TEXT),
       CAST(:custom_metrics AS @json), CAST(:started_at AS BIGINT), CAST(:ended_at AS BIGINT), @now
  FROM drumbeat.runs WHERE run_id = :run_id
ON CONFLICT (run_id, worker_id, kind) DO UPDATE
   SET status = excluded.status, connections = excluded.connections, operations = excluded.operations, reads = excluded.reads, writes = excluded.writes, errors = excluded.errors, qps = excluded.qps, avg_ms = excluded.avg_ms,
       p50_ms = excluded.p50_ms, p90_ms = excluded.p90_ms, p95_ms = excluded.p95_ms, p99_ms = excluded.p99_ms, min_ms = excluded.min_ms, max_ms = excluded.max_ms,
       latency = excluded.latency, find_max_result = excluded.find_max_result, failure_reason = excluded.failure_reason, enrichment_status = excluded.enrichment_status,
       enrichment_error = excluded.enrichment_error, custom_metrics = excluded.custom_metrics, started_at = excluded.started_at, ended_at = excluded.ended_at
RETURNING run_id;

-- name: list_results
SELECT * FROM drumbeat.results WHERE run_id = :run_id ORDER BY worker_id, kind;

-- name: add_execution_file
INSERT INTO drumbeat.execution_files (run_id, worker_id, path, host, rows_kept, bytes, created_at)
VALUES (:run_id, :worker_id, :path, :host, :rows, :size, @now)
ON CONFLICT (run_id, worker_id, path) DO NOTHING;

-- name: list_execution_files
SELECT * FROM drumbeat.execution_files WHERE run_id = :run_id ORDER BY worker_id, path;

-- name: save_step
-- One row per run, type and number: a later measurement of a step replaces an earlier one.
INSERT INTO drumbeat.steps (run_id, n, type, from_target, to_target, direction, started_at, ended_at, operations, qps, target_qps,
                            p50_ms, p95_ms, p99_ms, errors, failed_connects, error_rate, qps_vs_prior, p95_vs_baseline, queue_detected, outcome, reason,
                            is_probe, created_at)
SELECT run_id, CAST(:n AS INTEGER), CAST(:type AS TEXT), CAST(:from_target AS INTEGER), CAST(:to_target AS INTEGER),
       CAST(:direction AS TEXT), CAST(:started_at AS BIGINT), CAST(:ended_at AS BIGINT), CAST(:operations AS BIGINT),
       CAST(:qps AS @real), CAST(:target_qps AS @real), CAST(:p50_ms AS @real), CAST(:p95_ms AS @real), CAST(:p99_ms AS @real),
       CAST(:errors AS BIGINT), CAST(:failed_connects AS BIGINT), CAST(:error_rate AS @real), CAST(:qps_vs_prior AS @real), CAST(:p95_vs_baseline AS @real),
       CAST(:queue_detected AS INTEGER), CAST(:outcome AS TEXT), CAST(:reason AS TEXT), CAST(:is_probe AS INTEGER), @now
  FROM drumbeat.runs WHERE run_id = :run_id
ON CONFLICT (run_id, type, n) DO UPDATE
   SET from_target = excluded.from_target, to_target = excluded.to_target, direction = excluded.direction,
       started_at = excluded.started_at, ended_at = excluded.ended_at, operations = excluded.operations, qps = excluded.qps,
       target_qps = excluded.target_qps, p50_ms = excluded.p50_ms, p95_ms = excluded.p95_ms, p99_ms = excluded.p99_ms,
       errors = excluded.errors, failed_connects = excluded.failed_connects, error_rate = excluded.error_rate, qps_vs_prior = excluded.qps_vs_prior,
       p95_vs_baseline = excluded.p95_vs_baseline, queue_detected = excluded.queue_detected, outcome = excluded.outcome,
       reason = excluded.reason, is_probe = excluded.is_probe
RETURNING run_id;

-- name: list_steps
SELECT * FROM drumbeat.steps
 WHERE run_id = :run_id AND (CAST(:type AS TEXT) IS NULL OR type = :type) ORDER BY type, n;

-- name: list_executions_by_started_at
-- Two comparisons with the start: the first can use an index, the second orders operations that started at the same time.
SELECT * FROM drumbeat.executions
 WHERE run_id = :run_id AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind)
   AND (CAST(:ok AS INTEGER) IS NULL OR ok = CAST(:ok AS INTEGER)) AND (CAST(:worker_id AS TEXT) IS NULL OR worker_id = :worker_id)
   AND (CAST(:error_class AS TEXT) IS NULL OR error_class = :error_class) AND (CAST(:error AS TEXT) IS NULL OR error = :error)
   AND started_at >= CAST(:after AS BIGINT)
   AND (started_at > CAST(:after AS BIGINT) OR worker_id > :after_worker OR (worker_id = :after_worker AND n > CAST(:after_n AS BIGINT)))
 ORDER BY started_at, worker_id, n LIMIT CAST(:limit AS INTEGER) OFFSET CAST(:offset AS INTEGER);

-- name: list_executions_by_duration_ms
SELECT * FROM drumbeat.executions
 WHERE run_id = :run_id AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind)
   AND (CAST(:ok AS INTEGER) IS NULL OR ok = CAST(:ok AS INTEGER)) AND (CAST(:worker_id AS TEXT) IS NULL OR worker_id = :worker_id)
   AND (CAST(:error_class AS TEXT) IS NULL OR error_class = :error_class) AND (CAST(:error AS TEXT) IS NULL OR error = :error)
   AND duration_ms <= CAST(:after AS @real)
   AND (duration_ms < CAST(:after AS @real) OR worker_id > :after_worker OR (worker_id = :after_worker AND n > CAST(:after_n AS BIGINT)))
 ORDER BY duration_ms DESC, worker_id, n LIMIT CAST(:limit AS INTEGER) OFFSET CAST(:offset AS INTEGER);

-- name: list_failed_executions_by_duration_ms
-- Not by the index of durations (+ 0), but by the primary key: failed operations are few, and to find them each row of the run
-- would be looked up at another place of the table.
SELECT * FROM drumbeat.executions
 WHERE run_id = :run_id AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind)
   AND (CAST(:ok AS INTEGER) IS NULL OR ok = CAST(:ok AS INTEGER)) AND (CAST(:worker_id AS TEXT) IS NULL OR worker_id = :worker_id)
   AND (CAST(:error_class AS TEXT) IS NULL OR error_class = :error_class) AND (CAST(:error AS TEXT) IS NULL OR error = :error)
   AND worker_id >= '' AND duration_ms + 0 <= CAST(:after AS @real)
   AND (duration_ms + 0 < CAST(:after AS @real) OR worker_id > :after_worker OR (worker_id = :after_worker AND n > CAST(:after_n AS BIGINT)))
 ORDER BY duration_ms + 0 DESC, worker_id, n LIMIT CAST(:limit AS INTEGER) OFFSET CAST(:offset AS INTEGER);

-- name: count_executions_of_run
SELECT COUNT(*) AS rows FROM drumbeat.executions
 WHERE run_id = :run_id AND (CAST(:worker_id AS TEXT) IS NULL OR worker_id = :worker_id);

-- name: add_template
-- If the id or the name exists, also if it is added concurrently, nothing changes: both are unique.
INSERT INTO drumbeat.templates (template_id, name, description, config, tags, created_at, updated_at)
VALUES (:template_id, :name, :description, CAST(:config AS @json), CAST(:tags AS @json), @now, @now)
ON CONFLICT DO NOTHING
RETURNING *;

-- name: find_template
SELECT * FROM drumbeat.templates WHERE template_id = :wanted OR name = :wanted
 ORDER BY CASE template_id WHEN :wanted THEN 0 ELSE 1 END LIMIT 1;

-- name: list_templates
SELECT * FROM drumbeat.templates
 WHERE CAST(:search AS TEXT) IS NULL OR LOWER(name) LIKE LOWER(CAST(:search AS TEXT)) ESCAPE '!'
    OR LOWER(description) LIKE LOWER(CAST(:search AS TEXT)) ESCAPE '!'
 ORDER BY name;

-- name: lock_template
-- Locks the template until commit, so that it is not used between this check and the change.
SELECT * FROM drumbeat.templates WHERE template_id = :template_id @for_update;

-- name: find_other_of_name
SELECT template_id FROM drumbeat.templates WHERE name = :name AND template_id <> :template_id;

-- name: save_template
UPDATE drumbeat.templates
   SET name = :name, description = :description, config = CAST(:config AS @json), tags = CAST(:tags AS @json), updated_at = @now
 WHERE template_id = :template_id
RETURNING *;

-- name: delete_template
DELETE FROM drumbeat.templates WHERE template_id = :template_id;

-- name: note_template_use
UPDATE drumbeat.templates SET usage_count = usage_count + 1, last_used_at = @now WHERE template_id = :template_id
RETURNING *;

-- name: add_connection
-- If the name exists, also if it is added concurrently, nothing changes: it is unique.
INSERT INTO drumbeat.connections (name, url, description, key_id, secret, created_at, updated_at)
VALUES (:name, :url, :description, :key_id, :secret, @now, @now)
ON CONFLICT DO NOTHING
RETURNING *;

-- name: find_connection
SELECT * FROM drumbeat.connections WHERE name = :name;

-- name: list_connections
SELECT * FROM drumbeat.connections ORDER BY name;

-- name: save_connection
UPDATE drumbeat.connections SET url = :url, description = :description, key_id = :key_id, secret = :secret, updated_at = @now
 WHERE name = :name
RETURNING *;

-- name: lock_connections
-- Locks all connections until commit, in one order: of two concurrent calls the later one sets the only default.
SELECT name FROM drumbeat.connections ORDER BY name @for_update;

-- name: set_default_connection
UPDATE drumbeat.connections SET is_default = CASE name WHEN :name THEN 1 ELSE 0 END;

-- name: delete_connection
DELETE FROM drumbeat.connections WHERE name = :name;

-- name: forget_expired_answers
DELETE FROM drumbeat.answers WHERE expires_at <= @now;

-- name: hold_answer
-- The key is unique: of several concurrent requests with it, one gets a row.
INSERT INTO drumbeat.answers (request_key, fingerprint, expires_at, created_at)
VALUES (:key, :fingerprint, @now + CAST(:within AS BIGINT), @now)
ON CONFLICT DO NOTHING
RETURNING *;

-- name: find_answer
SELECT * FROM drumbeat.answers WHERE request_key = :key;

-- name: give_answer
UPDATE drumbeat.answers SET status = CAST(:status AS INTEGER), body = :body, location = :location,
       expires_at = @now + CAST(:kept_for AS BIGINT)
 WHERE request_key = :key;

-- name: forget_answer
DELETE FROM drumbeat.answers WHERE request_key = :key;

-- name: put_note
-- The name is unique: of several concurrent writes the last one stays.
INSERT INTO drumbeat.notes (name, value, updated_at) VALUES (:name, CAST(:value AS @json), @now)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at
RETURNING *;

-- name: find_note
SELECT * FROM drumbeat.notes WHERE name = :name;

-- name: list_notes
SELECT * FROM drumbeat.notes
 WHERE substr(name, 1, length(CAST(:prefix AS TEXT))) = CAST(:prefix AS TEXT) ORDER BY name;

-- name: delete_note
DELETE FROM drumbeat.notes WHERE name = :name;

-- name: take_log_numbers
UPDATE drumbeat.pools SET next_log = next_log + CAST(:count AS BIGINT) WHERE pool_id = :pool_id
RETURNING next_log - CAST(:count AS BIGINT) AS first;

-- name: list_logs
SELECT * FROM drumbeat.logs
 WHERE pool_id = :pool_id AND log_id > CAST(:after AS BIGINT) AND severity >= CAST(:severity AS INTEGER)
   AND (CAST(:worker_id AS TEXT) IS NULL OR worker_id = :worker_id)
 ORDER BY log_id LIMIT CAST(:limit AS INTEGER);

-- name: prune_samples
-- Deletes some of the oldest samples, by time.
DELETE FROM drumbeat.samples WHERE pool_id = :pool_id AND at <= (
    SELECT MAX(first.at) FROM (SELECT s.at FROM drumbeat.samples s WHERE s.pool_id = :pool_id AND s.at < @now - CAST(:age AS BIGINT)
                                ORDER BY s.at LIMIT CAST(:limit AS INTEGER)) first)
RETURNING 1;

-- name: prune_logs
-- Deletes the old ones among the first lines; lines are numbered in the order they were added.
DELETE FROM drumbeat.logs WHERE pool_id = :pool_id AND at < @now - CAST(:age AS BIGINT) AND log_id <= (
    SELECT MAX(first.log_id) FROM (SELECT l.log_id FROM drumbeat.logs l WHERE l.pool_id = :pool_id
                                    ORDER BY l.log_id LIMIT CAST(:limit AS INTEGER)) first)
RETURNING 1;

-- name: prune_beats
-- Deletes the old ones among the first beats. The last beat stays, and the last one with a view: it has the controller's state.
DELETE FROM drumbeat.beats WHERE pool_id = :pool_id AND at < @now - CAST(:age AS BIGINT)
   AND n <= (SELECT MAX(first.n) FROM (SELECT b.n FROM drumbeat.beats b WHERE b.pool_id = :pool_id
                                        ORDER BY b.n LIMIT CAST(:limit AS INTEGER)) first)
   AND n < (SELECT p.next_beat - 1 FROM drumbeat.pools p WHERE p.pool_id = :pool_id)
   AND (view IS NULL OR EXISTS (SELECT 1 FROM drumbeat.beats later
                                 WHERE later.pool_id = :pool_id AND later.n > beats.n AND later.view IS NOT NULL))
RETURNING 1;

-- name: prune_events
-- Deletes the old ones among the first events: of an ended run all; of a pool without a run all but instructions for several
-- workers, which later workers must read too; of a run that has not ended none.
DELETE FROM drumbeat.events WHERE pool_id = :pool_id AND created_at < @now - CAST(:age AS BIGINT) AND sequence_id IN (
    SELECT e.sequence_id FROM drumbeat.events e WHERE e.pool_id = :pool_id
       AND NOT EXISTS (SELECT 1 FROM drumbeat.runs r WHERE r.run_id = :pool_id AND r.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED'))
       AND (e.scope = 'WORKER' OR e.type IN ('WORKER_MOVED', 'SCALE_DOWN', 'GUARDRAIL_WARNING', 'WAITING_FOR_WORKERS')
            OR EXISTS (SELECT 1 FROM drumbeat.runs r WHERE r.run_id = :pool_id))
     ORDER BY e.sequence_id LIMIT CAST(:limit AS INTEGER))
RETURNING 1;

-- name: prune_leases
-- Deletes one-time leases: names with a slash that are not a pool's. A pool's lease stays, since its epochs must never be used
-- twice. A lease that was taken meanwhile stays: the row is locked before its age is checked.
DELETE FROM drumbeat.leases WHERE expires_at < @now - CAST(:age AS BIGINT) AND name IN (
    SELECT l.name FROM drumbeat.leases l
     WHERE l.expires_at < @now - CAST(:age AS BIGINT) AND l.name LIKE '%/%'
       AND NOT EXISTS (SELECT 1 FROM drumbeat.pools p WHERE p.pool_id = l.name) LIMIT CAST(:limit AS INTEGER)) RETURNING 1;

-- name: count_pools
SELECT COUNT(*) AS rows FROM drumbeat.pools;

-- name: count_workers
SELECT COUNT(*) AS rows FROM drumbeat.workers;

-- name: count_events
SELECT COUNT(*) AS rows FROM drumbeat.events;

-- name: count_leases
SELECT COUNT(*) AS rows FROM drumbeat.leases;

-- name: count_beats
SELECT COUNT(*) AS rows FROM drumbeat.beats;

-- name: count_samples
SELECT COUNT(*) AS rows FROM drumbeat.samples;

-- name: count_runs
SELECT COUNT(*) AS rows FROM drumbeat.runs;

-- name: count_steps
SELECT COUNT(*) AS rows FROM drumbeat.steps;

-- name: count_results
SELECT COUNT(*) AS rows FROM drumbeat.results;

-- name: count_executions
SELECT COUNT(*) AS rows FROM drumbeat.executions;

-- name: count_templates
SELECT COUNT(*) AS rows FROM drumbeat.templates;

-- name: count_connections
SELECT COUNT(*) AS rows FROM drumbeat.connections;

-- name: count_answers
SELECT COUNT(*) AS rows FROM drumbeat.answers;

-- name: count_notes
SELECT COUNT(*) AS rows FROM drumbeat.notes;

-- name: count_jobs
SELECT COUNT(*) AS rows FROM drumbeat.jobs;

-- name: count_job_attempts
SELECT COUNT(*) AS rows FROM drumbeat.job_attempts;

-- name: count_logs
SELECT COUNT(*) AS rows FROM drumbeat.logs;

-- name: count_execution_files
SELECT COUNT(*) AS rows FROM drumbeat.execution_files;

-- name: claim_gate
-- Whether the worker may claim jobs of the pool, and whether the pool has due delayed jobs or limited groups. A process that
-- joined may not claim after another process has joined as its worker; a holder that never joined has no instance.
SELECT @now AS now,
       CASE WHEN p.paused_until > @now OR EXISTS (
                SELECT 1 FROM drumbeat.workers w WHERE w.pool_id = :holder_pool AND w.worker_id = :worker_id
                   AND (w.status = 'draining' OR w.drain_deadline IS NOT NULL OR w.ended_at IS NOT NULL
                        OR :instance NOT IN ('', COALESCE(w.instance, ''))))
            THEN 0 ELSE 1 END AS may_claim,
       EXISTS (SELECT 1 FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 1
                  AND j.not_before <= @now) AS due,
       EXISTS (SELECT 1 FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.group_key IS NOT NULL AND j.status = 'pending'
                  AND j.delayed = 0 AND (j.group_limit IS NOT NULL OR j.rate_count IS NOT NULL)) AS limited,
       EXISTS (SELECT 1 FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.alone = 1) AS alone_waits
  FROM drumbeat.pools p WHERE p.pool_id = :pool_id;

-- name: queue_standing
-- For a worker that waits: whether there are ready jobs now, and when the next job is due.
SELECT @now AS now,
       EXISTS (SELECT 1 FROM drumbeat.jobs j WHERE j.pool_id = p.pool_id AND j.status = 'pending' AND j.delayed = 0) AS ready,
       (SELECT MIN(j.not_before) FROM drumbeat.jobs j WHERE j.pool_id = p.pool_id AND j.status = 'pending' AND j.delayed = 1) AS next_due
  FROM drumbeat.pools p WHERE p.pool_id = :pool_id;

-- name: any_expired
SELECT 1 AS expired FROM drumbeat.jobs @by(jobs_claimed) WHERE status = 'claimed' AND lease_until <= @now LIMIT 1;

-- name: find_next_due
-- Whether a job that a worker with these types and capabilities could claim is due, and when the next one is.
SELECT @now AS now,
       EXISTS (SELECT 1 FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 0
                  AND (CAST(:types AS TEXT) = '[]' OR @among(j.type, :types))
                  AND (CAST(:without AS TEXT) = '[]' OR NOT @among(j.type, :without))
                  AND (j.capability IS NULL OR @among(j.capability, :capabilities)))
       OR EXISTS (SELECT 1 FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 1
                  AND j.not_before <= @now
                  AND (CAST(:types AS TEXT) = '[]' OR @among(j.type, :types))
                  AND (CAST(:without AS TEXT) = '[]' OR NOT @among(j.type, :without))
                  AND (j.capability IS NULL OR @among(j.capability, :capabilities))) AS ready,
       (SELECT j.not_before FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 1
           AND j.not_before > @now
           AND (CAST(:types AS TEXT) = '[]' OR @among(j.type, :types))
           AND (CAST(:without AS TEXT) = '[]' OR NOT @among(j.type, :without))
           AND (j.capability IS NULL OR @among(j.capability, :capabilities))
         ORDER BY j.not_before LIMIT 1) AS next_due;

-- name: list_overdue
-- Claims that expired and were not renewed since: when the first job of each type and capability can be taken back.
SELECT type, capability, MIN(lease_until) AS lease_until, @now AS now FROM drumbeat.jobs
 WHERE pool_id = :pool_id AND status = 'claimed' AND (lease_until <= @now OR lease_extended = 1)
 GROUP BY type, capability;

-- name: any_alone
SELECT 1 AS alone FROM drumbeat.jobs WHERE pool_id = :pool_id AND status = 'pending' AND alone = 1 AND delayed = 0 LIMIT 1;

-- name: count_begun
SELECT COUNT(*) AS jobs, COALESCE(MAX(in_company), 0) AS in_company FROM drumbeat.jobs
 WHERE lease_owner = :worker_id AND lease_pool = :holder_pool AND lease_instance = :instance AND status = 'claimed'
   AND begun_at IS NOT NULL;

-- name: note_jobs_begun
-- Stores how many jobs had begun on a lost worker, so that their charges do not depend on the order in which leases expire.
UPDATE drumbeat.jobs SET in_company = CAST(:jobs AS INTEGER)
 WHERE lease_owner = :worker_id AND lease_pool = :holder_pool AND lease_instance = :instance AND status = 'claimed'
   AND begun_at IS NOT NULL;

-- name: find_job_by_id
SELECT * FROM drumbeat.jobs WHERE given_id = :job_id;

-- name: find_job_by_number
SELECT * FROM drumbeat.jobs WHERE seq = CAST(:seq AS BIGINT) AND given_id IS NULL;

-- name: find_holder_of_key
SELECT seq, given_id FROM drumbeat.jobs
 WHERE pool_id = :pool_id AND unique_key = :unique_key AND status IN ('waiting', 'pending', 'claimed');

-- name: list_attempts
SELECT * FROM drumbeat.job_attempts WHERE seq = CAST(:seq AS BIGINT) ORDER BY n;

-- name: count_ready
-- Delayed jobs that are due count as ready.
SELECT (SELECT COUNT(*) FROM (SELECT 1 FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 0
                                 LIMIT CAST(:most AS INTEGER)) a)
     + (SELECT COUNT(*) FROM (SELECT 1 FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 1
                                 AND j.not_before <= @now LIMIT CAST(:most AS INTEGER)) b) AS ready;

-- name: count_ahead
-- Ready jobs of higher priority, and of the same priority with a lower number. Delayed jobs that are due count as ready.
SELECT (SELECT COUNT(*) FROM (SELECT 1 FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 0
                                 AND j.priority > CAST(:priority AS INTEGER) LIMIT CAST(:most AS INTEGER)) a)
     + (SELECT COUNT(*) FROM (SELECT 1 FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 0
                                 AND j.priority = CAST(:priority AS INTEGER) AND j.seq < CAST(:seq AS BIGINT)
                               LIMIT CAST(:most AS INTEGER)) b)
     + (SELECT COUNT(*) FROM (SELECT 1 FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 1
                                 AND j.not_before <= @now AND (j.priority > CAST(:priority AS INTEGER)
                                      OR (j.priority = CAST(:priority AS INTEGER) AND j.seq < CAST(:seq AS BIGINT)))
                               LIMIT CAST(:most AS INTEGER)) c) AS ahead;

-- name: count_recent_claims
SELECT COUNT(*) AS claims FROM drumbeat.group_claims
 WHERE pool_id = :pool_id AND group_key = :group AND at > @now - CAST(:per AS BIGINT);

-- name: count_queue
-- One statement, so that all counts are of the same moment. Jobs that end are counted when they end (see note_ended), so that
-- the count is exact and cheap; the others are counted by index, up to a limit. Delayed jobs that are due count as ready.
SELECT (SELECT COUNT(*) FROM (SELECT 1 FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 0
                                 LIMIT CAST(:most AS INTEGER)) a) AS ready,
       (SELECT COUNT(*) FROM (SELECT 1 FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 1
                                 AND j.not_before <= @now LIMIT CAST(:most AS INTEGER)) b) AS due,
       (SELECT COUNT(*) FROM (SELECT 1 FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 1
                                 AND j.not_before > @now LIMIT CAST(:most AS INTEGER)) c) AS delayed,
       (SELECT COUNT(*) FROM (SELECT 1 FROM drumbeat.jobs j @by(jobs_claimed) WHERE j.pool_id = :pool_id AND j.status = 'claimed'
                               LIMIT CAST(:most AS INTEGER)) d) AS claimed,
       (SELECT COUNT(*) FROM (SELECT 1 FROM drumbeat.jobs j @by(jobs_waiting) WHERE j.pool_id = :pool_id AND j.status = 'waiting'
                               LIMIT CAST(:most AS INTEGER)) w) AS waiting,
       (SELECT MIN(e.since) FROM (SELECT COALESCE(j.not_before, j.created_at) AS since FROM drumbeat.jobs j
                                   WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 0
                                   LIMIT CAST(:most AS INTEGER)) e) AS oldest_ready,
       (SELECT MIN(j.not_before) FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 1
           AND j.not_before <= @now) AS oldest_due,
       (SELECT CAST(SUM(k.jobs) AS BIGINT) FROM drumbeat.job_counts k WHERE k.pool_id = :pool_id AND k.status = 'done') AS done,
       (SELECT CAST(SUM(k.jobs) AS BIGINT) FROM drumbeat.job_counts k WHERE k.pool_id = :pool_id AND k.status = 'poisoned') AS poisoned,
       (SELECT CAST(SUM(k.jobs) AS BIGINT) FROM drumbeat.job_counts k WHERE k.pool_id = :pool_id AND k.status = 'cancelled') AS cancelled,
       (SELECT CAST(SUM(k.jobs) AS BIGINT) FROM drumbeat.job_counts k
         WHERE k.pool_id = :pool_id AND k.status IN ('done', 'pruned done')) AS done_so_far,
       (SELECT CAST(SUM(k.jobs) AS BIGINT) FROM drumbeat.job_counts k
         WHERE k.pool_id = :pool_id AND k.status IN ('poisoned', 'pruned poisoned')) AS poisoned_so_far,
       (SELECT COUNT(*) FROM drumbeat.job_counts k WHERE k.pool_id = :pool_id) AS parts;

-- name: count_demand
-- Counts up to a limit of ready jobs, and up to the same limit of delayed jobs that are due.
SELECT capability, limited, due, COUNT(*) AS jobs
  FROM (SELECT * FROM (SELECT COALESCE(j.capability, '') AS capability, 0 AS due,
                              CASE WHEN j.group_key IS NOT NULL AND (j.group_limit IS NOT NULL OR j.rate_count IS NOT NULL)
                                   THEN 1 ELSE 0 END AS limited
                         FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 0
                          AND (CAST(:types AS TEXT) = '[]' OR @among(j.type, :types))
                          AND (CAST(:without AS TEXT) = '[]' OR NOT @among(j.type, :without)) LIMIT CAST(:most AS INTEGER)) a
         UNION ALL
        SELECT * FROM (SELECT COALESCE(j.capability, '') AS capability, 1 AS due,
                              CASE WHEN j.group_key IS NOT NULL AND (j.group_limit IS NOT NULL OR j.rate_count IS NOT NULL)
                                   THEN 1 ELSE 0 END AS limited
                         FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 1
                          AND j.not_before <= @now AND (CAST(:types AS TEXT) = '[]' OR @among(j.type, :types))
                          AND (CAST(:without AS TEXT) = '[]' OR NOT @among(j.type, :without)) LIMIT CAST(:most AS INTEGER)) b) c
 GROUP BY capability, limited, due;

-- name: count_types
-- Counts up to a limit of the first ready jobs, and up to the same limit of delayed jobs that are due. Jobs of the types in
-- :without do not use up the limit.
SELECT type, COUNT(*) AS jobs
  FROM (SELECT * FROM (SELECT j.type FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 0
                          AND (CAST(:without AS TEXT) = '[]' OR NOT @among(j.type, :without))
                        ORDER BY j.priority DESC, j.seq LIMIT CAST(:most AS INTEGER)) a
         UNION ALL
        SELECT * FROM (SELECT j.type FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 1
                          AND j.not_before <= @now AND (CAST(:without AS TEXT) = '[]' OR NOT @among(j.type, :without))
                        LIMIT CAST(:most AS INTEGER)) b) c
 GROUP BY type;

-- name: note_progress
UPDATE drumbeat.jobs SET progress = CAST(:share AS @real), progress_note = :note
 WHERE seq = CAST(:seq AS BIGINT) AND status = 'claimed' AND lease_owner = :worker_id AND lease_pool = :holder_pool
   AND lease_instance = :instance AND lease_epoch = CAST(:epoch AS BIGINT)
RETURNING seq;

-- name: cancel_job
-- A pending or waiting job ends; a claimed job is marked, so that its worker stops it. Others stay as they are.
UPDATE drumbeat.jobs
   SET cancel_requested = CASE status WHEN 'claimed' THEN 1 ELSE cancel_requested END, waits_for = 0,
       finished_at = CASE status WHEN 'claimed' THEN finished_at ELSE @now END,
       status = CASE status WHEN 'claimed' THEN status ELSE 'cancelled' END
 WHERE seq = CAST(:seq AS BIGINT) AND status IN ('waiting', 'pending', 'claimed')
RETURNING *;

-- name: list_to_stop
SELECT seq, given_id, lease_epoch FROM drumbeat.jobs
 WHERE lease_owner = :worker_id AND lease_pool = :holder_pool AND lease_instance = :instance AND status = 'claimed'
   AND cancel_requested = 1 ORDER BY seq;

-- name: requeue_job
-- Skips a job whose unique key another unfinished job has (the unique index would refuse it), and a job whose status has
-- changed since it was read (the counts depend on it). A delay from the push is kept; a retry delay is dropped.
UPDATE drumbeat.jobs
   SET status = 'pending', failures = 0, crashes = 0, suspicions = 0, alone = 0, cancel_requested = 0, finished_at = NULL,
       delayed = CASE WHEN failures + crashes + suspicions = 0 AND not_before > @now THEN 1 ELSE 0 END,
       not_before = CASE WHEN failures + crashes + suspicions = 0 AND not_before > @now THEN not_before ELSE @now END
 WHERE seq = CAST(:seq AS BIGINT) AND pool_id = :pool_id AND status = :status AND status IN ('poisoned', 'cancelled')
   AND (unique_key IS NULL OR (
            SELECT o.seq FROM drumbeat.jobs o WHERE o.pool_id = :pool_id AND o.unique_key = jobs.unique_key
               AND o.unique_key IS NOT NULL AND o.status IN ('waiting', 'pending', 'claimed') LIMIT 1) IS NULL)
RETURNING seq, has_children;

-- name: change_pending_job
-- Changes only a pending job, so a job that was claimed since it was read stays as it is.
UPDATE drumbeat.jobs
   SET priority = COALESCE(CAST(:priority AS INTEGER), priority),
       delayed = CASE WHEN CAST(:run_at AS BIGINT) IS NULL THEN delayed WHEN CAST(:run_at AS BIGINT) > @now THEN 1 ELSE 0 END,
       not_before = CASE WHEN CAST(:run_at AS BIGINT) IS NULL THEN not_before
                         WHEN CAST(:run_at AS BIGINT) > @now THEN CAST(:run_at AS BIGINT) ELSE @now END
 WHERE seq = CAST(:seq AS BIGINT) AND pool_id = :pool_id AND status = 'pending'
RETURNING seq;

-- name: recount_ended
DELETE FROM drumbeat.job_counts WHERE status IN ('done', 'poisoned', 'cancelled');
INSERT INTO drumbeat.job_counts (pool_id, status, part, jobs)
SELECT j.pool_id, j.status, 0, COUNT(*) FROM drumbeat.jobs j @by(jobs_ended)
 WHERE j.status IN ('done', 'poisoned', 'cancelled') GROUP BY j.pool_id, j.status;

-- name: list_prunable
-- Ended jobs in the order of pushing: whether each is old enough to prune, and whether it was pushed too recently to be old
-- enough; if so, all later jobs were, too.
SELECT j.seq, j.has_children, CASE WHEN j.finished_at < @now - CAST(:age AS BIGINT) AND (j.has_children = 0 OR NOT EXISTS (
                   SELECT 1 FROM drumbeat.job_links l JOIN drumbeat.jobs c ON c.seq = l.child_seq
                    WHERE l.parent_seq = j.seq AND c.status IN ('waiting', 'pending', 'claimed', 'poisoned'))) THEN 1 ELSE 0 END AS is_old,
       CASE WHEN j.created_at >= @now - CAST(:age AS BIGINT) THEN 1 ELSE 0 END AS is_young
  FROM drumbeat.jobs j @by(jobs_ended)
 WHERE j.pool_id = :pool_id AND (j.status, j.seq) > (CAST(:status AS TEXT), CAST(:after AS BIGINT)) AND j.status <= CAST(:status AS TEXT)
   AND j.status IN ('done', 'poisoned', 'cancelled')
 ORDER BY j.status, j.seq LIMIT CAST(:limit AS INTEGER);

-- name: prune_jobs
-- Checks each job again: a job that was requeued since it was listed stays, and so does one that got its first child since.
DELETE FROM drumbeat.jobs
 WHERE @listed(seq, :numbers) AND status = :status AND finished_at < @now - CAST(:age AS BIGINT)
   AND (has_children = 0 OR @listed(seq, :parents))
RETURNING seq;

-- name: lock_prunable
-- Of the jobs with children, those that may be pruned; locked until commit, so that no child is added meanwhile.
SELECT seq FROM drumbeat.jobs WHERE @listed(seq, :numbers) ORDER BY seq @for_update;

-- name: list_needed_parents
-- Of the given jobs, those with a child that may still run: an unfinished one, or a poisoned one, which can be requeued.
SELECT DISTINCT l.parent_seq FROM drumbeat.job_links l JOIN drumbeat.jobs c ON c.seq = l.child_seq
 WHERE @listed(l.parent_seq, :numbers) AND c.status IN ('waiting', 'pending', 'claimed', 'poisoned');

-- name: prune_links
DELETE FROM drumbeat.job_links WHERE @listed(child_seq, :numbers);

-- name: prune_job_steps
DELETE FROM drumbeat.job_steps WHERE @listed(seq, :numbers);

-- name: prune_attempts
DELETE FROM drumbeat.job_attempts WHERE @listed(seq, :numbers);

-- name: forget_claims
DELETE FROM drumbeat.group_claims WHERE pool_id = :pool_id AND until <= CAST(:now AS BIGINT);

-- name: count_job_counts
SELECT COUNT(*) AS rows FROM drumbeat.job_counts;

-- name: count_group_claims
SELECT COUNT(*) AS rows FROM drumbeat.group_claims;

-- name: count_job_links
SELECT COUNT(*) AS rows FROM drumbeat.job_links;

-- name: count_job_steps
SELECT COUNT(*) AS rows FROM drumbeat.job_steps;

-- name: find_numbers
SELECT seq, given_id FROM drumbeat.jobs WHERE @among(given_id, :names);

-- name: lock_parents
-- Locked until commit, in one order: a parent ends either before its child is linked, and the push sees it, or after that, and
-- then finds the link.
SELECT seq, given_id, status FROM drumbeat.jobs WHERE @listed(seq, :numbers) ORDER BY seq @for_update;

-- name: count_links
-- Counts the links of parents. A transaction with an older snapshot, which cannot see a new link, then fails to end the parent:
-- PostgreSQL reports that to a caller with REPEATABLE READ or SERIALIZABLE.
UPDATE drumbeat.jobs SET has_children = has_children + CAST(:links AS INTEGER) WHERE @listed(seq, :numbers);

-- name: list_child_links
SELECT child_seq, parent_seq FROM drumbeat.job_links WHERE @listed(parent_seq, :parents);

-- name: lock_waiting
-- Locked in one order, so that two processes that end parents of the same jobs do not deadlock.
SELECT seq, pool_id, waits_for, after_any, if_failed, has_children,
       CASE WHEN attempts = 0 AND last_error IS NULL THEN 1 ELSE 0 END AS is_untried FROM drumbeat.jobs
 WHERE @listed(seq, :numbers) AND status = 'waiting' ORDER BY seq @for_update;

-- name: list_waiting_after_ends
-- The waiting jobs of a pool that have a parent that has ended.
SELECT DISTINCT j.seq FROM drumbeat.jobs j @by(jobs_waiting)
  JOIN drumbeat.job_links l ON l.child_seq = j.seq
  JOIN drumbeat.jobs p ON p.seq = l.parent_seq
 WHERE j.pool_id = :pool_id AND j.status = 'waiting' AND j.seq > CAST(:after AS BIGINT)
   AND p.status IN ('done', 'poisoned', 'cancelled')
 ORDER BY j.seq LIMIT CAST(:limit AS INTEGER);

-- name: list_parent_numbers
SELECT parent_seq FROM drumbeat.job_links WHERE @listed(child_seq, :numbers);

-- name: list_parent_states
SELECT l.child_seq, p.seq, p.given_id, p.status FROM drumbeat.job_links l JOIN drumbeat.jobs p ON p.seq = l.parent_seq
 WHERE @listed(l.child_seq, :numbers) ORDER BY p.seq;

-- name: set_waits
UPDATE drumbeat.jobs SET waits_for = CAST(:waits_for AS INTEGER) WHERE @listed(seq, :numbers) AND status = 'waiting';

-- name: release_jobs
-- The job waits for workers from now on, or from its start time if that is later.
UPDATE drumbeat.jobs
   SET status = 'pending', waits_for = 0, delayed = CASE WHEN not_before > @now THEN 1 ELSE 0 END,
       not_before = CASE WHEN not_before > @now THEN not_before ELSE @now END
 WHERE @listed(seq, :numbers) AND status = 'waiting';

-- name: skip_jobs
UPDATE drumbeat.jobs SET status = 'cancelled', waits_for = 0, last_error = :error, finished_at = @now
 WHERE @listed(seq, :numbers) AND status = 'waiting';

-- name: wait_again
UPDATE drumbeat.jobs SET status = 'waiting', waits_for = CAST(:waits_for AS INTEGER)
 WHERE @listed(seq, :numbers) AND status = 'pending';

-- name: reopen_children
-- A failed parent had counted as done for these jobs. It was requeued, so they wait for it again.
UPDATE drumbeat.jobs SET waits_for = waits_for + 1
 WHERE status = 'waiting' AND if_failed = 'run' AND after_any = 0
   AND seq IN (SELECT l.child_seq FROM drumbeat.job_links l WHERE l.parent_seq = CAST(:parent_seq AS BIGINT));

-- name: list_parents
SELECT * FROM drumbeat.jobs
 WHERE seq IN (SELECT l.parent_seq FROM drumbeat.job_links l WHERE l.child_seq = CAST(:seq AS BIGINT))
 ORDER BY seq LIMIT CAST(:limit AS INTEGER);

-- name: list_children
SELECT * FROM drumbeat.jobs
 WHERE seq IN (SELECT l.child_seq FROM drumbeat.job_links l WHERE l.parent_seq = CAST(:seq AS BIGINT))
 ORDER BY seq LIMIT CAST(:limit AS INTEGER);

-- name: find_child_elsewhere
SELECT c.* FROM drumbeat.jobs p
  JOIN drumbeat.job_links l ON l.parent_seq = p.seq
  JOIN drumbeat.jobs c ON c.seq = l.child_seq
 WHERE @of_pool(p.seq, j.has_children > 0) AND c.pool_id <> :pool_id AND c.status IN ('waiting', 'pending', 'claimed')
 LIMIT 1;

-- name: find_unfinished_child
SELECT c.seq, c.given_id, c.pool_id FROM drumbeat.job_links l JOIN drumbeat.jobs c ON c.seq = l.child_seq
 WHERE @listed(l.parent_seq, :numbers) AND c.status IN ('waiting', 'pending', 'claimed') LIMIT 1;

-- name: list_workflow
SELECT * FROM drumbeat.jobs
 WHERE workflow_id = :workflow_id AND workflow_id IS NOT NULL AND seq > CAST(:after AS BIGINT) AND @among(status, :statuses)
 ORDER BY seq LIMIT CAST(:limit AS INTEGER);

-- name: count_workflow
SELECT status, COUNT(*) AS jobs FROM drumbeat.jobs
 WHERE workflow_id = :workflow_id AND workflow_id IS NOT NULL GROUP BY status;

-- name: list_job_steps
SELECT * FROM drumbeat.job_steps WHERE seq = CAST(:seq AS BIGINT);

-- name: lock_job
-- Locked until commit: an attempt that waits for an event ends either before the event is sent, and is woken, or after that, and
-- then sees the number of events.
SELECT seq, pool_id, status, events_sent FROM drumbeat.jobs WHERE seq = CAST(:seq AS BIGINT) @for_update;

-- name: list_events_named
SELECT kind, finished_at FROM drumbeat.job_steps WHERE seq = CAST(:seq AS BIGINT) AND name = :name AND kind IN ('event', 'sent');

-- name: add_event
INSERT INTO drumbeat.job_steps (seq, n, name, kind, result, started_at, finished_at, epoch)
VALUES (CAST(:seq AS BIGINT), CAST(:n AS INTEGER), :name, 'sent', CAST(:result AS @document), @now, @now, 0);

-- name: note_event
-- A delayed job that waits for the event is due now; a claim makes it ready.
UPDATE drumbeat.jobs
   SET has_steps = 1, events_sent = events_sent + 1,
       not_before = CASE WHEN CAST(:wakes AS INTEGER) = 1 AND delayed = 1 AND not_before > @now THEN @now ELSE not_before END
 WHERE seq = CAST(:seq AS BIGINT);
