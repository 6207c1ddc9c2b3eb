-- Views with the table and column names of the earlier tools. Every migration creates them again.

-- name: view_run_status
DROP VIEW IF EXISTS drumbeat.run_status;
CREATE VIEW drumbeat.run_status AS
SELECT r.run_id, r.run_id AS test_id, r.template_id, r.name AS test_name, r.config AS scenario_config, r.status, r.phase,
       @time(r.started_at) AS start_time, @time(r.ended_at) AS end_time,
       @time(r.warmup_started_at) AS warmup_start_time, @time(r.warmup_ended_at) AS warmup_end_time,
       r.expected_workers AS total_workers_expected,
       (SELECT COUNT(*) FROM drumbeat.workers w WHERE w.pool_id = r.run_id AND w.started_at IS NOT NULL) AS workers_registered,
       (SELECT COUNT(*) FROM drumbeat.workers w WHERE w.pool_id = r.run_id AND w.status IN ('active', 'draining')) AS workers_active,
       (SELECT COUNT(*) FROM drumbeat.workers w WHERE w.pool_id = r.run_id AND w.status = 'terminated') AS workers_completed,
       r.operations AS total_ops, r.errors AS error_count, r.qps AS current_qps,
       @json_part(r.controller_state, 'find_max') AS find_max_state,
       @json_part(r.controller_state, 'qps') AS qps_controller_state,
       (SELECT @json_collect(w.worker_id, @json_object('target', w.target, 'target_connections', w.target, 'seq', w.target_seq))
          FROM drumbeat.workers w WHERE w.pool_id = r.run_id) AS worker_targets,
       p.next_event AS next_sequence_id,
       CASE WHEN r.status IN ('CANCELLING', 'CANCELLED', 'FAILED') THEN r.completion_reason END AS cancellation_reason,
       r.completion_reason, r.custom_metrics, @time(r.created_at) AS created_at, @time(r.updated_at) AS updated_at
  FROM drumbeat.runs r JOIN drumbeat.pools p ON p.pool_id = r.run_id;

-- name: view_run_control_events
DROP VIEW IF EXISTS drumbeat.run_control_events;
CREATE VIEW drumbeat.run_control_events AS
SELECT e.pool_id || '/' || e.sequence_id AS event_id, e.pool_id AS run_id, e.type AS event_type,
       @json_filled(e.payload, 'scope', e.scope, 'worker_id', e.worker_id, 'worker_group_id', e.slot) AS event_data,
       e.sequence_id, @time(e.created_at) AS created_at
  FROM drumbeat.events e;

-- name: view_worker_heartbeats
DROP VIEW IF EXISTS drumbeat.worker_heartbeats;
CREATE VIEW drumbeat.worker_heartbeats AS
SELECT w.pool_id AS run_id, w.worker_id, w.slot AS worker_group_id,
       CASE w.status WHEN 'starting' THEN 'STARTING' WHEN 'waiting' THEN 'WAITING'
                     WHEN 'active' THEN 'RUNNING' WHEN 'draining' THEN 'DRAINING' WHEN 'terminated' THEN 'COMPLETED'
                     ELSE 'DEAD' END AS status,
       w.phase, @time(w.heartbeat_at) AS last_heartbeat, w.heartbeat_count, w.active AS active_connections,
       w.target AS target_connections, w.cpu_percent, w.memory_percent, w.operations AS queries_processed,
       w.error AS last_error, w.errors AS error_count, @time(w.created_at) AS created_at,
       @time(w.heartbeat_at) AS updated_at
  FROM drumbeat.workers w WHERE w.heartbeat_at IS NOT NULL;

-- name: view_worker_metrics_snapshots
DROP VIEW IF EXISTS drumbeat.worker_metrics_snapshots;
CREATE VIEW drumbeat.worker_metrics_snapshots AS
SELECT s.pool_id || '/' || s.worker_id || '/' || s.n AS snapshot_id, s.pool_id AS run_id,
       s.pool_id || '/' || s.worker_id AS test_id, s.worker_id, w.slot AS worker_group_id,
       (SELECT COUNT(DISTINCT o.slot) FROM drumbeat.workers o WHERE o.pool_id = s.pool_id) AS worker_group_count,
       @time(s.at) AS timestamp, CAST(s.at - w.started_at AS @real) / 1000000 AS elapsed_seconds, s.phase,
       CAST(SUM(CASE s.phase WHEN 'MEASUREMENT' THEN s.operations ELSE 0 END) OVER so_far AS BIGINT) AS total_queries,
       CAST(SUM(CASE s.phase WHEN 'MEASUREMENT' THEN s.reads ELSE 0 END) OVER so_far AS BIGINT) AS read_count,
       CAST(SUM(CASE s.phase WHEN 'MEASUREMENT' THEN s.writes ELSE 0 END) OVER so_far AS BIGINT) AS write_count,
       CAST(SUM(CASE s.phase WHEN 'MEASUREMENT' THEN s.errors ELSE 0 END) OVER so_far AS BIGINT) AS error_count,
       COALESCE(CAST(s.operations AS @real) * 1000000 / NULLIF(s.interval_us, 0), 0) AS qps,
       s.p50_ms AS p50_latency_ms, s.p95_ms AS p95_latency_ms, s.p99_ms AS p99_latency_ms,
       s.avg_ms AS avg_latency_ms, s.min_ms AS min_latency_ms, s.max_ms AS max_latency_ms,
       s.active AS active_connections, s.target AS target_connections, s.cpu_percent, s.memory_percent,
       s.extra AS custom_metrics, @time(s.at) AS created_at
  FROM drumbeat.samples s LEFT JOIN drumbeat.workers w ON w.pool_id = s.pool_id AND w.worker_id = s.worker_id
WINDOW so_far AS (PARTITION BY s.pool_id, s.worker_id ORDER BY s.n);

-- name: view_test_results
DROP VIEW IF EXISTS drumbeat.test_results;
CREATE VIEW drumbeat.test_results AS
SELECT CASE o.worker_id WHEN '' THEN o.run_id ELSE o.run_id || '/' || o.worker_id END AS test_id, o.run_id,
       NULLIF(o.worker_id, '') AS worker_id, w.slot AS worker_group_id, r.template_id, r.name AS test_name,
       @json_text(r.config, 'scenario_name') AS scenario_name, @json_text(r.config, 'table_name') AS table_name,
       @json_text(r.config, 'table_type') AS table_type, @json_text(r.config, 'warehouse') AS warehouse,
       @json_text(r.config, 'warehouse_size') AS warehouse_size, o.status, @time(o.started_at) AS start_time, @time(o.ended_at) AS end_time,
       CAST(o.ended_at - o.started_at AS @real) / 1000000 AS duration_seconds, o.connections AS concurrent_connections,
       o.operations AS total_operations, o.reads AS read_operations, o.writes AS write_operations,
       o.errors AS failed_operations, o.qps,
       CAST(o.reads AS @real) * 1000000 / NULLIF(o.ended_at - o.started_at, 0) AS reads_per_second,
       CAST(o.writes AS @real) * 1000000 / NULLIF(o.ended_at - o.started_at, 0) AS writes_per_second,
       o.avg_ms AS avg_latency_ms, o.p50_ms AS p50_latency_ms,
       o.p90_ms AS p90_latency_ms, o.p95_ms AS p95_latency_ms, o.p99_ms AS p99_latency_ms,
       o.min_ms AS min_latency_ms, o.max_ms AS max_latency_ms, o.errors AS error_count,
       COALESCE(CAST(o.errors AS @real) / NULLIF(o.operations, 0), 0) AS error_rate,
       o.find_max_result, o.failure_reason, r.completion_reason, o.enrichment_status, o.enrichment_error,
       r.config AS test_config, o.custom_metrics, @time(o.created_at) AS created_at
  FROM drumbeat.results o JOIN drumbeat.runs r ON r.run_id = o.run_id
  LEFT JOIN drumbeat.workers w ON w.pool_id = o.run_id AND w.worker_id = o.worker_id
 WHERE o.kind = '';

-- name: view_query_executions
DROP VIEW IF EXISTS drumbeat.query_executions;
CREATE VIEW drumbeat.query_executions AS
SELECT x.run_id || '/' || x.worker_id || '/' || x.n AS execution_id, x.run_id || '/' || x.worker_id AS test_id,
       'LOCAL_' || x.run_id || '/' || x.worker_id || '/' || x.n AS query_id, x.query_text,
       @time(x.started_at) AS start_time, @time(x.started_at + x.duration_ms * 1000) AS end_time, x.duration_ms,
       x.rows_affected, CAST(NULL AS BIGINT) AS bytes_scanned,
       (SELECT @json_text(r.config, 'warehouse') FROM drumbeat.runs r WHERE r.run_id = x.run_id) AS warehouse, x.ok AS success, x.error, x.connection AS connection_id,
       CAST(NULL AS @json) AS custom_metadata, x.kind AS query_kind,
       x.worker_id, x.warmup, x.duration_ms AS app_elapsed_ms
  FROM drumbeat.executions x;

-- name: view_find_max_step_history
DROP VIEW IF EXISTS drumbeat.find_max_step_history;
CREATE VIEW drumbeat.find_max_step_history AS
SELECT s.run_id || '/' || s.n AS step_id, s.run_id, s.n AS step_number, s.type AS step_type,
       s.from_target AS from_threads, s.to_target AS to_threads, s.direction, s.to_target AS target_workers,
       s.to_target AS total_target_connections, @time(s.started_at) AS step_start_time, @time(s.ended_at) AS step_end_time,
       CAST(s.ended_at - s.started_at AS @real) / 1000000 AS step_duration_seconds, s.operations AS total_queries, s.qps,
       s.p50_ms AS p50_latency_ms, s.p95_ms AS p95_latency_ms, s.p99_ms AS p99_latency_ms, s.errors AS error_count,
       s.error_rate, s.qps_vs_prior AS qps_vs_prior_pct, s.p95_vs_baseline AS p95_vs_baseline_pct, s.queue_detected,
       s.target_qps, (s.qps - s.target_qps) * 100 / NULLIF(s.target_qps, 0) AS qps_error_pct,
       s.outcome, s.reason AS stop_reason, s.is_probe, @time(s.created_at) AS created_at
  FROM drumbeat.steps s WHERE s.type = 'FIND_MAX';

-- name: view_test_logs
DROP VIEW IF EXISTS drumbeat.test_logs;
CREATE VIEW drumbeat.test_logs AS
SELECT l.pool_id || '/' || l.log_id AS log_id, l.pool_id AS run_id, l.pool_id || '/' || l.worker_id AS test_id, l.worker_id,
       l.log_id AS seq, l.level, l.logger, l.message, l.details, @json_text(l.details, 'exception') AS exception,
       @time(l.at) AS timestamp, @time(l.at) AS created_at
  FROM drumbeat.logs l;

-- name: view_test_templates
DROP VIEW IF EXISTS drumbeat.test_templates;
CREATE VIEW drumbeat.test_templates AS
SELECT t.template_id, t.name AS template_name, t.description, t.config, t.tags, t.usage_count,
       @time(t.last_used_at) AS last_used_at, @time(t.created_at) AS created_at, @time(t.updated_at) AS updated_at
  FROM drumbeat.templates t;

-- name: view_worker_registry
DROP VIEW IF EXISTS drumbeat.worker_registry;
CREATE VIEW drumbeat.worker_registry AS
SELECT w.worker_id,
       CASE WHEN w.status = 'terminated' THEN 'terminated' WHEN w.status IN ('error', 'lost') THEN 'lost'
            WHEN w.status = 'draining' OR w.drain_deadline IS NOT NULL THEN 'terminating' ELSE 'active' END AS status,
       w.host, w.pid, w.capabilities, w.pool_id, @time(w.started_at) AS started_at,
       @time(w.heartbeat_at) AS last_heartbeat,
       (SELECT MIN(@job_id(j.given_id, j.seq)) FROM drumbeat.jobs j
         WHERE j.lease_pool = w.pool_id AND j.status = 'claimed' AND j.lease_owner = w.worker_id
           AND j.lease_instance = COALESCE(w.instance, '')) AS current_task_id
  FROM drumbeat.workers w WHERE w.heartbeat_at IS NOT NULL;

-- name: view_work_pool
DROP VIEW IF EXISTS drumbeat.work_pool;
CREATE VIEW drumbeat.work_pool AS
SELECT @job_id(j.given_id, j.seq) AS id, j.pool_id AS pool_name, j.payload AS data, j.status, j.lease_owner AS claimed_by,
       @time(j.claimed_at) AS claimed_at, j.attempts, j.max_attempts AS max_retries, j.result, j.last_error AS error,
       @time(j.created_at) AS created_at
  FROM drumbeat.jobs j;

-- name: view_orchestrator_status
DROP VIEW IF EXISTS drumbeat.orchestrator_status;
CREATE VIEW drumbeat.orchestrator_status AS
SELECT p.pool_id,
       (SELECT COUNT(*) FROM drumbeat.jobs j WHERE j.pool_id = p.pool_id AND j.status = 'pending' AND j.delayed = 0)
         + (SELECT COUNT(*) FROM drumbeat.jobs j WHERE j.pool_id = p.pool_id AND j.status = 'pending' AND j.delayed = 1) AS queued_tasks,
       (SELECT COUNT(*) FROM drumbeat.jobs j WHERE j.pool_id = p.pool_id AND j.status = 'claimed') AS in_progress_tasks,
       (SELECT COUNT(*) FROM drumbeat.workers w WHERE w.pool_id = p.pool_id AND w.status IN ('spawning', 'starting')
           AND w.drain_deadline IS NULL) AS spawning_workers,
       (SELECT COUNT(*) FROM drumbeat.workers w WHERE w.pool_id = p.pool_id AND w.status IN ('waiting', 'active')
           AND w.drain_deadline IS NULL) AS active_workers,
       (SELECT COUNT(*) FROM drumbeat.workers w WHERE w.pool_id = p.pool_id AND w.ended_at IS NULL
           AND (w.status = 'draining' OR w.drain_deadline IS NOT NULL)) AS terminating_workers,
       (SELECT COUNT(*) FROM drumbeat.workers w WHERE w.pool_id = p.pool_id AND w.ended_at IS NULL) AS total_workers,
       (SELECT COUNT(*) FROM drumbeat.workers w WHERE w.pool_id = p.pool_id AND w.ended_at IS NULL
           AND @now - w.heartbeat_at > @json_number(p.thresholds, 'stale_after') * 1000000) AS stale_workers,
       @time(p.paused_until) AS paused_until, @time(@now) AS timestamp
  FROM drumbeat.pools p;

-- name: view_active_workers_health
DROP VIEW IF EXISTS drumbeat.active_workers_health;
CREATE VIEW drumbeat.active_workers_health AS
SELECT w.pool_id, w.worker_id AS id,
       CASE WHEN w.status = 'draining' OR w.drain_deadline IS NOT NULL THEN 'terminating'
            WHEN w.status = 'starting' THEN 'spawning' ELSE 'active' END AS status,
       @time(w.heartbeat_at) AS last_heartbeat, CAST(@now - w.heartbeat_at AS @real) / 1000000 AS heartbeat_age_seconds,
       CASE WHEN @now - w.heartbeat_at > @json_number(p.thresholds, 'lost_after') * 1000000 THEN 'DEAD'
            WHEN @now - w.heartbeat_at > @json_number(p.thresholds, 'stale_after') * 1000000 THEN 'STALE'
            ELSE 'HEALTHY' END AS health_status,
       w.cpu_percent, w.memory_percent, @json_part(w.gpu, 'memory_total_mb') AS vram_total_mb,
       @json_part(w.gpu, 'memory_used_mb') AS vram_used_mb,
       (SELECT COUNT(*) FROM drumbeat.jobs j
         WHERE j.lease_pool = w.pool_id AND j.status = 'claimed' AND j.lease_owner = w.worker_id
           AND j.lease_instance = COALESCE(w.instance, '')) AS running_tasks
  FROM drumbeat.workers w JOIN drumbeat.pools p ON p.pool_id = w.pool_id
 WHERE w.status IN ('starting', 'waiting', 'active', 'draining');

-- name: view_worker_performance
DROP VIEW IF EXISTS drumbeat.worker_performance;
CREATE VIEW drumbeat.worker_performance AS
SELECT w.pool_id, w.worker_id AS id,
       COUNT(a.n) AS total_tasks,
       SUM(CASE a.outcome WHEN 'done' THEN 1 ELSE 0 END) AS completed_tasks,
       SUM(CASE WHEN a.outcome NOT IN ('done', 'released', 'suspended') THEN 1 ELSE 0 END) AS failed_tasks,
       AVG(CAST(CASE WHEN a.outcome = 'done' THEN 1 WHEN a.outcome NOT IN ('released', 'suspended') THEN 0 END AS @real)) AS success_rate,
       AVG(CAST(a.ended_at - a.started_at AS @real) / 1000000) AS avg_processing_time_seconds,
       CAST(COALESCE(w.ended_at, @now) - COALESCE(w.started_at, w.created_at) AS @real) / 3600000000 AS uptime_hours
  FROM drumbeat.workers w LEFT JOIN (
       SELECT COALESCE(t.worker_pool, j.pool_id) AS pool_id, t.worker_id, t.n, t.outcome, t.started_at, t.ended_at
         FROM drumbeat.job_attempts t JOIN drumbeat.jobs j ON j.seq = t.seq
        UNION ALL
       SELECT COALESCE(j.lease_pool, j.pool_id), j.lease_owner, j.lease_epoch, CASE j.status WHEN 'done' THEN 'done' END,
              j.claimed_at, j.finished_at
         FROM drumbeat.jobs j WHERE j.status IN ('claimed', 'done')) a ON a.worker_id = w.worker_id AND a.pool_id = w.pool_id
 GROUP BY w.pool_id, w.worker_id, w.ended_at, w.started_at, w.created_at;
