-- Queries that are specific to Snowflake. It has no RETURNING and no ON CONFLICT: a query changes rows, then reads them.
-- A transaction holds the writer's row of ``locks`` from its first statement to its commit, so that there is one writer at a
-- time, and what a script reads stays true until the script ends. Only worker_beat and renew_lease do without it.
-- ``@if_any``: go on only if the statement before returned or changed a row; otherwise the query returns nothing.
-- ``@if_none``: skip this statement if the one before changed a row. ``@if_given(:x)``: skip it if the value is not given.
-- The result is that of the last SELECT; without a SELECT it has as many rows as were changed.
-- ``:chosen...`` is the first column of the last SELECT, as a list; ``:x...`` is a list of values, ``:x{}`` a list of rows.

-- name: lock_writer
UPDATE locks SET n = n + 1 WHERE name = 'writer';

-- name: lock_migrations
-- The transaction holds the writer's row already, unless there are no tables yet.
SELECT 1 AS locked;

-- name: make_version_table
-- Creating a table ends the transaction, so nothing is created where the tables exist.
SELECT 1 AS missing WHERE NOT EXISTS (
    SELECT 1 FROM information_schema.tables WHERE table_schema = CURRENT_SCHEMA() AND table_name = 'SCHEMA_VERSION');
@if_any CREATE @kind TABLE IF NOT EXISTS locks (name VARCHAR NOT NULL, n BIGINT NOT NULL, PRIMARY KEY (name));
INSERT INTO locks (name, n) SELECT 'writer', 0 WHERE NOT EXISTS (SELECT 1 FROM locks WHERE name = 'writer');
INSERT INTO locks (name, n) SELECT 'jobs', 0 WHERE NOT EXISTS (SELECT 1 FROM locks WHERE name = 'jobs');
CREATE TABLE IF NOT EXISTS unfinished_copy (source VARCHAR NOT NULL, runner VARCHAR NOT NULL, rows_copied BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL, applied_at BIGINT NOT NULL);

-- name: find_version_table
SELECT 1 AS found FROM information_schema.tables WHERE table_schema = CURRENT_SCHEMA() AND table_name = 'SCHEMA_VERSION';
@if_any SELECT COUNT(*) AS is_copying FROM unfinished_copy;

-- name: add_version
INSERT INTO schema_version (version, applied_at)
SELECT CAST(:version AS INTEGER), @now WHERE NOT EXISTS (SELECT 1 FROM schema_version WHERE version = :version);

-- name: begin_copy
-- The table exists; a row in it says that a copy is unfinished.
SELECT 1 AS begun;

-- name: note_copied
UPDATE unfinished_copy SET rows_copied = rows_copied + CAST(:rows AS BIGINT) WHERE runner = :runner;

-- name: end_copy
DELETE FROM unfinished_copy;

-- name: list_columns
SELECT LOWER(c.table_name) AS table_name, LOWER(c.column_name) AS column_name, COALESCE(k.place, 0) AS key_place
  FROM information_schema.columns c
  LEFT JOIN (SELECT column1 AS table_name, column2 AS column_name, column3 AS place FROM VALUES @keys) k
    ON k.table_name = LOWER(c.table_name) AND k.column_name = LOWER(c.column_name)
 WHERE c.table_schema = CURRENT_SCHEMA() ORDER BY c.table_name, c.ordinal_position;

-- name: last_number
SELECT GREATEST(COALESCE((SELECT MAX(j.seq) FROM jobs j), 0), n) AS number FROM locks WHERE name = 'jobs';

-- name: set_last_number
UPDATE locks SET n = CAST(:number AS BIGINT) WHERE name = 'jobs' AND n < CAST(:number AS BIGINT);

-- name: add_pool
INSERT INTO pools (pool_id, kind, thresholds, policy, paused_until, created_at)
SELECT :pool_id, :kind, :thresholds, :policy, CAST(:paused_until AS BIGINT), @now
 WHERE NOT EXISTS (SELECT 1 FROM pools WHERE pool_id = :pool_id);
@if_any SELECT * FROM pools WHERE pool_id = :pool_id;

-- name: save_pool
UPDATE pools SET thresholds = :thresholds, policy = :policy, paused_until = CAST(:paused_until AS BIGINT) WHERE pool_id = :pool_id;
@if_any SELECT * FROM pools WHERE pool_id = :pool_id;

-- name: append_events
-- The pool's row counts its events. It is locked until commit, so numbers rise in commit order and have no gaps.
UPDATE pools SET next_event = next_event + CAST(:count AS BIGINT) WHERE pool_id = :pool_id;
@if_any INSERT INTO events (pool_id, sequence_id, type, scope, worker_id, slot, payload, created_at)
SELECT p.pool_id, p.next_event - CAST(:count AS BIGINT) + e.index, e.value:type::VARCHAR, e.value:scope::VARCHAR,
       e.value:worker_id::VARCHAR, e.value:slot::INTEGER, e.value:payload::VARCHAR, @now
  FROM pools p, TABLE(FLATTEN(INPUT => PARSE_JSON(:events{}))) e WHERE p.pool_id = :pool_id;
SELECT sequence_id AS first, created_at AS now FROM events
 WHERE pool_id = :pool_id
   AND sequence_id = (SELECT p.next_event - CAST(:count AS BIGINT) FROM pools p WHERE p.pool_id = :pool_id);

-- name: add_worker
INSERT INTO workers (pool_id, worker_id, slot, status, provider, provider_ref, capabilities, target, meta, created_at)
SELECT :pool_id, :worker_id, CAST(:slot AS INTEGER), 'spawning', :provider, :provider_ref, :capabilities,
       CAST(:target AS INTEGER), :meta, @now
 WHERE NOT EXISTS (SELECT 1 FROM workers WHERE pool_id = :pool_id AND worker_id = :worker_id);

-- name: lock_worker
-- A heartbeat does not wait for the writer's row, so the worker's own row is locked too: by a change that changes nothing.
UPDATE workers SET status = status WHERE pool_id = :pool_id AND worker_id = :worker_id;
@if_any SELECT * FROM workers WHERE pool_id = :pool_id AND worker_id = :worker_id;

-- name: move_worker
UPDATE workers
   SET status = :to_status,
       ready_at = CASE WHEN CAST(:to_status AS VARCHAR) = 'waiting' THEN @now ELSE ready_at END,
       ended_at = CASE WHEN CAST(:to_status AS VARCHAR) IN ('terminated', 'error', 'lost') THEN @now ELSE ended_at END,
       exit_code = COALESCE(CAST(:exit_code AS INTEGER), exit_code), error = COALESCE(:error, error),
       provider_ref = COALESCE(:provider_ref, provider_ref), meta = COALESCE(:meta, meta)
 WHERE pool_id = :pool_id AND worker_id = :worker_id;
@if_any SELECT * FROM workers WHERE pool_id = :pool_id AND worker_id = :worker_id;

-- name: set_target
UPDATE workers SET target = CAST(:target AS INTEGER), target_seq = CAST(:target_seq AS BIGINT)
 WHERE pool_id = :pool_id AND worker_id = :worker_id AND ended_at IS NULL;

-- name: set_drain_deadline
UPDATE workers SET drain_deadline = @now + CAST(:within AS BIGINT)
 WHERE pool_id = :pool_id AND worker_id = :worker_id AND ended_at IS NULL AND drain_deadline IS NULL;

-- name: mark_reaped
UPDATE workers SET reaped_at = COALESCE(reaped_at, @now)
 WHERE pool_id = :pool_id AND worker_id = :worker_id AND ended_at IS NOT NULL;

-- name: join_worker
-- Takes a row in state spawning, or inserts one. A row of another process or of an ended worker is not changed.
UPDATE workers
   SET status = 'starting', instance = :instance, host = :host, pid = CAST(:pid AS BIGINT), slot = CAST(:slot AS INTEGER),
       provider = COALESCE(:provider, provider), provider_ref = COALESCE(:provider_ref, provider_ref),
       capabilities = :capabilities, started_at = @now, heartbeat_at = @now, heartbeat_count = 1
 WHERE pool_id = :pool_id AND worker_id = :worker_id AND status = 'spawning';
@if_none INSERT INTO workers (pool_id, worker_id, slot, status, instance, host, pid, provider, provider_ref, capabilities, meta,
                              created_at, started_at, heartbeat_at, heartbeat_count)
SELECT p.pool_id, :worker_id, CAST(:slot AS INTEGER), 'starting', :instance, :host, CAST(:pid AS BIGINT), :provider,
       :provider_ref, :capabilities, '{}', @now, @now, @now, 1
  FROM pools p
 WHERE p.pool_id = :pool_id AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.pool_id = :pool_id AND w.worker_id = :worker_id);
@if_any SELECT * FROM workers WHERE pool_id = :pool_id AND worker_id = :worker_id;

-- name: worker_beat
-- One worker's own row, without the writer's row: heartbeats wait for nothing but a change of the same worker.
UPDATE workers
   SET heartbeat_at = @now, heartbeat_count = heartbeat_count + 1, phase = :phase,
       applied_target = CAST(:applied_target AS INTEGER), active = CAST(:active AS INTEGER),
       operations = CAST(:operations AS BIGINT), errors = CAST(:errors AS BIGINT), error = COALESCE(:error, error),
       cpu_percent = CAST(:cpu_percent AS FLOAT), memory_percent = CAST(:memory_percent AS FLOAT), gpu = :gpu
 WHERE pool_id = :pool_id AND worker_id = :worker_id AND instance = :instance AND ended_at IS NULL;
@if_any SELECT w.heartbeat_at AS now, w.status, w.target, w.target_seq, w.drain_deadline,
       r.status AS run_status, r.phase AS run_phase, l.expires_at AS controller_until, p.next_event - 1 AS newest,
       (SELECT '[' || LISTAGG(TO_JSON(OBJECT_CONSTRUCT_KEEP_NULL(
                   'sequence_id', e.sequence_id, 'type', e.type, 'scope', e.scope, 'worker_id', e.worker_id, 'slot', e.slot,
                   'payload', e.payload, 'created_at', e.created_at)), ',') WITHIN GROUP (ORDER BY e.sequence_id) || ']'
          FROM (SELECT o.* FROM events o
                 WHERE o.pool_id = :pool_id AND o.sequence_id > CAST(:read_to AS BIGINT)
                   AND (o.scope = 'RUN' OR (o.scope = 'WORKER' AND o.worker_id = :worker_id)
                        OR (o.scope = 'WORKER_GROUP'
                            AND o.slot = (SELECT s.slot FROM workers s WHERE s.pool_id = :pool_id AND s.worker_id = :worker_id)))
                   AND o.type NOT IN ('WORKER_MOVED', 'SCALE_DOWN', 'GUARDRAIL_WARNING', 'WAITING_FOR_WORKERS')
                 ORDER BY o.sequence_id LIMIT 101) e) AS events
  FROM workers w JOIN pools p ON p.pool_id = w.pool_id
  LEFT JOIN runs r ON r.run_id = w.pool_id LEFT JOIN leases l ON l.name = w.pool_id
 WHERE w.pool_id = :pool_id AND w.worker_id = :worker_id AND w.instance = :instance AND w.ended_at IS NULL;
@if_given(:n) INSERT INTO samples (pool_id, worker_id, n, at, interval_us, phase, operations, reads, writes, errors, latency,
                     p50_ms, p95_ms, p99_ms, avg_ms, min_ms, max_ms, active, target, cpu_percent, memory_percent, gpu, extra)
SELECT w.pool_id, w.worker_id, CAST(:n AS BIGINT), w.heartbeat_at - CAST(:age_us AS BIGINT), CAST(:interval_us AS BIGINT),
       :sample_phase, CAST(:sample_operations AS BIGINT), CAST(:reads AS BIGINT), CAST(:writes AS BIGINT),
       CAST(:sample_errors AS BIGINT), :latency, CAST(:p50_ms AS FLOAT), CAST(:p95_ms AS FLOAT), CAST(:p99_ms AS FLOAT),
       CAST(:avg_ms AS FLOAT), CAST(:min_ms AS FLOAT), CAST(:max_ms AS FLOAT), CAST(:sample_active AS INTEGER),
       CAST(:target AS INTEGER), CAST(:sample_cpu AS FLOAT), CAST(:sample_memory AS FLOAT), :sample_gpu, :extra
  FROM workers w
 WHERE w.pool_id = :pool_id AND w.worker_id = :worker_id AND w.instance = :instance AND w.ended_at IS NULL
   AND NOT EXISTS (SELECT 1 FROM samples s WHERE s.pool_id = :pool_id AND s.worker_id = :worker_id AND s.n = :n);

-- name: add_sample
INSERT INTO samples (pool_id, worker_id, n, at, interval_us, phase, operations, reads, writes, errors, latency,
                     p50_ms, p95_ms, p99_ms, avg_ms, min_ms, max_ms, active, target, cpu_percent, memory_percent, gpu, extra)
SELECT :pool_id, :worker_id, CAST(:n AS BIGINT), @now - CAST(:age_us AS BIGINT), CAST(:interval_us AS BIGINT),
       :sample_phase, CAST(:sample_operations AS BIGINT), CAST(:reads AS BIGINT), CAST(:writes AS BIGINT),
       CAST(:sample_errors AS BIGINT), :latency, CAST(:p50_ms AS FLOAT), CAST(:p95_ms AS FLOAT), CAST(:p99_ms AS FLOAT),
       CAST(:avg_ms AS FLOAT), CAST(:min_ms AS FLOAT), CAST(:max_ms AS FLOAT), CAST(:sample_active AS INTEGER),
       CAST(:target AS INTEGER), CAST(:sample_cpu AS FLOAT), CAST(:sample_memory AS FLOAT), :sample_gpu, :extra
 WHERE NOT EXISTS (SELECT 1 FROM samples s WHERE s.pool_id = :pool_id AND s.worker_id = :worker_id AND s.n = :n);

-- name: acquire_lease
UPDATE leases SET owner = :owner, epoch = epoch + 1, expires_at = @now + CAST(:ttl AS BIGINT), released = 0
 WHERE name = :name AND (expires_at <= @now OR released = 1);
@if_none INSERT INTO leases (name, owner, epoch, expires_at)
SELECT :name, :owner, 1, @now + CAST(:ttl AS BIGINT) WHERE NOT EXISTS (SELECT 1 FROM leases WHERE name = :name);
@if_any SELECT * FROM leases WHERE name = :name;

-- name: renew_lease
UPDATE leases SET expires_at = @now + CAST(:ttl AS BIGINT)
 WHERE name = :name AND owner = :owner AND epoch = :epoch AND released = 0;
@if_any SELECT * FROM leases WHERE name = :name AND owner = :owner AND epoch = :epoch;

-- name: take_beat_number
UPDATE pools SET next_beat = next_beat + 1 WHERE pool_id = :pool_id;
@if_any SELECT next_beat - 1 AS n FROM pools WHERE pool_id = :pool_id;

-- name: add_beat
INSERT INTO beats (pool_id, n, owner, epoch, at, view, actions, why_not, error, duration_us, summary)
SELECT :pool_id, CAST(:n AS BIGINT), :owner, CAST(:epoch AS BIGINT), @now, :view, :actions, :why_not, :error,
       CAST(:duration_us AS BIGINT), :summary;
SELECT * FROM beats WHERE pool_id = :pool_id AND n = :n;

-- name: add_run
INSERT INTO runs (run_id, name, template_id, config, status, phase, expected_workers, controller_state, custom_metrics,
                  created_at, updated_at)
SELECT :run_id, :name, :template_id, :config, :status, :phase, CAST(:expected_workers AS INTEGER), :controller_state,
       :custom_metrics, @now, @now
 WHERE NOT EXISTS (SELECT 1 FROM runs WHERE run_id = :run_id);
@if_any SELECT * FROM runs WHERE run_id = :run_id;

-- name: update_run
UPDATE runs
   SET status = COALESCE(:status, status), phase = COALESCE(:phase, phase),
       completion_reason = COALESCE(:completion_reason, completion_reason),
       expected_workers = COALESCE(CAST(:expected_workers AS INTEGER), expected_workers),
       operations = COALESCE(CAST(:operations AS BIGINT), operations), errors = COALESCE(CAST(:errors AS BIGINT), errors),
       qps = COALESCE(CAST(:qps AS FLOAT), qps), controller_state = COALESCE(:controller_state, controller_state),
       custom_metrics = COALESCE(:custom_metrics, custom_metrics), updated_at = @now,
       started_at = COALESCE(started_at, CASE WHEN CAST(:started AS INTEGER) = 1 THEN @now END),
       warmup_started_at = COALESCE(warmup_started_at, CASE WHEN CAST(:warmup_started AS INTEGER) = 1 THEN @now END),
       warmup_ended_at = COALESCE(warmup_ended_at, CASE WHEN CAST(:warmup_ended AS INTEGER) = 1 THEN @now END),
       ended_at = COALESCE(ended_at, CASE WHEN CAST(:ended AS INTEGER) = 1 THEN @now END)
 WHERE run_id = :run_id;
@if_any SELECT * FROM runs WHERE run_id = :run_id;

-- name: save_result
UPDATE results
   SET status = :status, connections = CAST(:connections AS INTEGER), operations = CAST(:operations AS BIGINT),
       reads = CAST(:reads AS BIGINT), writes = CAST(:writes AS BIGINT), errors = CAST(:errors AS BIGINT),
       qps = CAST(:qps AS FLOAT), avg_ms = CAST(:avg_ms AS FLOAT), p50_ms = CAST(:p50_ms AS FLOAT),
       p90_ms = CAST(:p90_ms AS FLOAT), p95_ms = CAST(:p95_ms AS FLOAT), p99_ms = CAST(:p99_ms AS FLOAT),
       min_ms = CAST(:min_ms AS FLOAT), max_ms = CAST(:max_ms AS FLOAT), latency = :latency,
       find_max_result = :find_max_result, failure_reason = :failure_reason, enrichment_status = :enrichment_status,
       enrichment_error = :enrichment_error, custom_metrics = :custom_metrics, started_at = CAST(:started_at AS BIGINT),
       ended_at = CAST(:ended_at AS BIGINT)
 WHERE run_id = :run_id AND worker_id = :worker_id AND kind = :kind;
@if_none INSERT INTO results (run_id, worker_id, kind, status, connections, operations, reads, writes, errors, qps, avg_ms,
                     p50_ms, p90_ms, p95_ms, p99_ms, min_ms, max_ms, latency, find_max_result, failure_reason,
                     enrichment_status, enrichment_error, custom_metrics, started_at, ended_at, created_at)
SELECT r.run_id, :worker_id, :kind, :status, CAST(:connections AS INTEGER), CAST(:operations AS BIGINT),
       CAST(:reads AS BIGINT), CAST(:writes AS BIGINT), CAST(:errors AS BIGINT), CAST(:qps AS FLOAT),
       CAST(:avg_ms AS FLOAT), CAST(:p50_ms AS FLOAT), CAST(:p90_ms AS FLOAT), CAST(:p95_ms AS FLOAT),
       CAST(:p99_ms AS FLOAT), CAST(:min_ms AS FLOAT), CAST(:max_ms AS FLOAT), :latency, :find_max_result, :failure_reason,
       :enrichment_status, :enrichment_error, :custom_metrics, CAST(:started_at AS BIGINT), CAST(:ended_at AS BIGINT), @now
  FROM runs r WHERE r.run_id = :run_id;
@if_any SELECT run_id FROM runs WHERE run_id = :run_id;

-- name: add_execution_file
INSERT INTO execution_files (run_id, worker_id, path, host, rows_kept, bytes, created_at)
SELECT :run_id, :worker_id, :path, :host, CAST(:rows AS BIGINT), CAST(:size AS BIGINT), @now
 WHERE NOT EXISTS (SELECT 1 FROM execution_files WHERE run_id = :run_id AND worker_id = :worker_id AND path = :path);

-- name: save_step
UPDATE steps
   SET from_target = CAST(:from_target AS INTEGER), to_target = CAST(:to_target AS INTEGER), direction = :direction,
       started_at = CAST(:started_at AS BIGINT), ended_at = CAST(:ended_at AS BIGINT), operations = CAST(:operations AS BIGINT),
       qps = CAST(:qps AS FLOAT), target_qps = CAST(:target_qps AS FLOAT), p50_ms = CAST(:p50_ms AS FLOAT),
       p95_ms = CAST(:p95_ms AS FLOAT), p99_ms = CAST(:p99_ms AS FLOAT), errors = CAST(:errors AS BIGINT),
       failed_connects = CAST(:failed_connects AS BIGINT), error_rate = CAST(:error_rate AS FLOAT), qps_vs_prior = CAST(:qps_vs_prior AS FLOAT),
       p95_vs_baseline = CAST(:p95_vs_baseline AS FLOAT), queue_detected = CAST(:queue_detected AS INTEGER),
       outcome = :outcome, reason = :reason, is_probe = CAST(:is_probe AS INTEGER)
 WHERE run_id = :run_id AND type = :type AND n = :n;
@if_none INSERT INTO steps (run_id, n, type, from_target, to_target, direction, started_at, ended_at, operations, qps, target_qps,
                   p50_ms, p95_ms, p99_ms, errors, failed_connects, error_rate, qps_vs_prior, p95_vs_baseline, queue_detected, outcome, reason,
                   is_probe, created_at)
SELECT r.run_id, CAST(:n AS INTEGER), :type, CAST(:from_target AS INTEGER), CAST(:to_target AS INTEGER), :direction,
       CAST(:started_at AS BIGINT), CAST(:ended_at AS BIGINT), CAST(:operations AS BIGINT), CAST(:qps AS FLOAT),
       CAST(:target_qps AS FLOAT), CAST(:p50_ms AS FLOAT), CAST(:p95_ms AS FLOAT), CAST(:p99_ms AS FLOAT),
       CAST(:errors AS BIGINT), CAST(:failed_connects AS BIGINT), CAST(:error_rate AS FLOAT), CAST(:qps_vs_prior AS FLOAT), CAST(:p95_vs_baseline AS FLOAT),
       CAST(:queue_detected AS INTEGER), :outcome, :reason, CAST(:is_probe AS INTEGER), @now
  FROM runs r WHERE r.run_id = :run_id;
@if_any SELECT run_id FROM runs WHERE run_id = :run_id;

-- name: load_executions
-- Skips rows that exist.
INSERT INTO executions (run_id, worker_id, n, connection, kind, started_at, duration_ms, ok, error_class, error, rows_affected,
                        warmup, query_text)
SELECT v.* FROM (
    SELECT e.value[0]::VARCHAR AS run_id, e.value[1]::VARCHAR AS worker_id, e.value[2]::BIGINT AS n,
           e.value[3]::INTEGER AS connection, e.value[4]::VARCHAR AS kind, e.value[5]::BIGINT AS started_at,
           e.value[6]::FLOAT AS duration_ms, e.value[7]::INTEGER AS ok, e.value[8]::VARCHAR AS error_class,
           e.value[9]::VARCHAR AS error, e.value[10]::BIGINT AS rows_affected, e.value[11]::INTEGER AS warmup,
           e.value[12]::VARCHAR AS query_text
      FROM TABLE(FLATTEN(INPUT => PARSE_JSON(:records{}))) e
   QUALIFY ROW_NUMBER() OVER (PARTITION BY run_id, worker_id, n ORDER BY e.index) = 1) v
 WHERE NOT EXISTS (SELECT 1 FROM executions x WHERE x.run_id = v.run_id AND x.worker_id = v.worker_id AND x.n = v.n);

-- name: add_template
INSERT INTO templates (template_id, name, description, config, tags, created_at, updated_at)
SELECT :template_id, :name, :description, :config, :tags, @now, @now
 WHERE NOT EXISTS (SELECT 1 FROM templates WHERE template_id = :template_id OR name = :name);
@if_any SELECT * FROM templates WHERE template_id = :template_id;

-- name: save_template
UPDATE templates SET name = :name, description = :description, config = :config, tags = :tags, updated_at = @now
 WHERE template_id = :template_id;
@if_any SELECT * FROM templates WHERE template_id = :template_id;

-- name: note_template_use
UPDATE templates SET usage_count = usage_count + 1, last_used_at = @now WHERE template_id = :template_id;
@if_any SELECT * FROM templates WHERE template_id = :template_id;

-- name: add_connection
INSERT INTO connections (name, url, description, key_id, secret, created_at, updated_at)
SELECT :name, :url, :description, :key_id, :secret, @now, @now WHERE NOT EXISTS (SELECT 1 FROM connections WHERE name = :name);
@if_any SELECT * FROM connections WHERE name = :name;

-- name: save_connection
UPDATE connections SET url = :url, description = :description, key_id = :key_id, secret = :secret, updated_at = @now
 WHERE name = :name;
@if_any SELECT * FROM connections WHERE name = :name;

-- name: hold_answer
INSERT INTO answers (request_key, fingerprint, expires_at, created_at)
SELECT :key, :fingerprint, @now + CAST(:within AS BIGINT), @now WHERE NOT EXISTS (SELECT 1 FROM answers WHERE request_key = :key);
@if_any SELECT * FROM answers WHERE request_key = :key;

-- name: put_note
UPDATE notes SET value = :value, updated_at = @now WHERE name = :name;
@if_none INSERT INTO notes (name, value, updated_at) SELECT :name, :value, @now;
SELECT * FROM notes WHERE name = :name;

-- name: list_notes
SELECT * FROM notes WHERE STARTSWITH(name, :prefix) ORDER BY name;

-- name: take_log_numbers
UPDATE pools SET next_log = next_log + CAST(:count AS BIGINT) WHERE pool_id = :pool_id;
@if_any SELECT next_log - CAST(:count AS BIGINT) AS first FROM pools WHERE pool_id = :pool_id;

-- name: add_logs
INSERT INTO logs (pool_id, log_id, at, worker_id, level, severity, logger, message, details)
SELECT :pool_id, CAST(:first AS BIGINT) + e.index, @now - e.value:age_us::BIGINT, e.value:worker_id::VARCHAR,
       e.value:level::VARCHAR, e.value:severity::INTEGER, e.value:logger::VARCHAR, e.value:message::VARCHAR,
       e.value:details::VARCHAR
  FROM TABLE(FLATTEN(INPUT => PARSE_JSON(:entries{}))) e;

-- name: prune_samples
DELETE FROM samples WHERE pool_id = :pool_id AND at <= (
    SELECT MAX(o.at) FROM (SELECT s.at FROM samples s WHERE s.pool_id = :pool_id AND s.at < @now - CAST(:age AS BIGINT)
                            ORDER BY s.at LIMIT :limit) o);

-- name: prune_logs
DELETE FROM logs WHERE pool_id = :pool_id AND at < @now - CAST(:age AS BIGINT) AND log_id <= (
    SELECT MAX(o.log_id) FROM (SELECT l.log_id FROM logs l WHERE l.pool_id = :pool_id ORDER BY l.log_id LIMIT :limit) o);

-- name: prune_beats
DELETE FROM beats WHERE pool_id = :pool_id AND at < @now - CAST(:age AS BIGINT)
   AND n <= (SELECT MAX(o.n) FROM (SELECT b.n FROM beats b WHERE b.pool_id = :pool_id ORDER BY b.n LIMIT :limit) o)
   AND n < (SELECT p.next_beat - 1 FROM pools p WHERE p.pool_id = :pool_id)
   AND (view IS NULL OR n < (SELECT MAX(s.n) FROM beats s WHERE s.pool_id = :pool_id AND s.view IS NOT NULL));

-- name: prune_events
DELETE FROM events WHERE pool_id = :pool_id AND created_at < @now - CAST(:age AS BIGINT) AND sequence_id IN (
    SELECT o.sequence_id FROM (SELECT e.sequence_id FROM events e WHERE e.pool_id = :pool_id
       AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.run_id = :pool_id AND r.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED'))
       AND (e.scope = 'WORKER' OR e.type IN ('WORKER_MOVED', 'SCALE_DOWN', 'GUARDRAIL_WARNING', 'WAITING_FOR_WORKERS')
            OR EXISTS (SELECT 1 FROM runs s WHERE s.run_id = :pool_id))
     ORDER BY e.sequence_id LIMIT :limit) o);

-- name: prune_leases
SELECT l.name FROM leases l WHERE l.expires_at < @now - CAST(:age AS BIGINT) AND l.name LIKE '%/%'
   AND l.name NOT IN (SELECT p.pool_id FROM pools p) LIMIT :limit;
@if_any DELETE FROM leases WHERE name IN (:chosen...);

-- name: prune_workers
-- Deletes some of the workers that ended first. A fleet's workers stay while they may still cost money, or count for the month.
SELECT CASE WHEN kind = 'fleet' OR (kind = 'jobs' AND (GET(PARSE_JSON(policy), 'policy')) IS NOT NULL)
            THEN CAST(:billed_since AS BIGINT) ELSE 9000000000000000000 END AS billed FROM pools WHERE pool_id = :pool_id;
@if_any SELECT w.worker_id FROM workers w
 WHERE w.pool_id = :pool_id AND w.ended_at IS NOT NULL
   AND w.ended_at < @now - CAST(:age AS BIGINT) AND w.ended_at < :chosen...
   AND (:chosen... = 9000000000000000000 OR w.reaped_at < :chosen...)
 ORDER BY w.ended_at LIMIT :limit;
@if_any DELETE FROM workers WHERE pool_id = :pool_id AND worker_id IN (:chosen...);

-- name: claim_gate
-- Whether the worker may claim jobs of the pool, and whether the pool has due delayed jobs or limited groups. A process that
-- joined may not claim after another process has joined as its worker; a holder that never joined has no instance.
SELECT @now AS now,
       CASE WHEN p.paused_until > @now OR (
                SELECT COUNT(*) FROM workers w WHERE w.pool_id = :holder_pool AND w.worker_id = :worker_id
                   AND (w.status = 'draining' OR w.drain_deadline IS NOT NULL OR w.ended_at IS NOT NULL
                        OR :instance NOT IN ('', COALESCE(w.instance, '')))) > 0
            THEN 0 ELSE 1 END AS may_claim,
       (SELECT COUNT(*) FROM (SELECT 1 FROM jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 1
                                 AND j.not_before <= @now LIMIT 1) a) AS due,
       (SELECT COUNT(*) FROM (SELECT 1 FROM jobs j WHERE j.pool_id = :pool_id AND j.group_key IS NOT NULL
                                 AND j.status = 'pending' AND j.delayed = 0
                                 AND (j.group_limit IS NOT NULL OR j.rate_count IS NOT NULL) LIMIT 1) b) AS limited,
       (SELECT COUNT(*) FROM (SELECT 1 FROM jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.alone = 1
                               LIMIT 1) c) AS alone_waits
  FROM pools p WHERE p.pool_id = :pool_id;

-- name: queue_standing
SELECT @now AS now,
       (SELECT COUNT(*) FROM (SELECT 1 FROM jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 0
                               LIMIT 1) a) AS ready,
       (SELECT MIN(j.not_before) FROM jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 1) AS next_due
  FROM pools p WHERE p.pool_id = :pool_id;

-- name: find_next_due
SELECT @now AS now,
       (SELECT COUNT(*) FROM (SELECT 1 FROM jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending'
                                 AND (j.delayed = 0 OR j.not_before <= @now)
                                 AND (CAST(:types AS VARCHAR) = '[]' OR j.type IN (:types...))
                                 AND (CAST(:without AS VARCHAR) = '[]' OR j.type NOT IN (:without...))
                                 AND (j.capability IS NULL OR j.capability IN (:capabilities...)) LIMIT 1) a) AS ready,
       (SELECT MIN(j.not_before) FROM jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 1
           AND j.not_before > @now AND (CAST(:types AS VARCHAR) = '[]' OR j.type IN (:types...))
           AND (CAST(:without AS VARCHAR) = '[]' OR j.type NOT IN (:without...))
           AND (j.capability IS NULL OR j.capability IN (:capabilities...))) AS next_due;

-- name: note_progress
UPDATE jobs SET progress = CAST(:share AS FLOAT), progress_note = :note
 WHERE seq = CAST(:seq AS BIGINT) AND status = 'claimed' AND lease_owner = :worker_id AND lease_pool = :holder_pool
   AND lease_instance = :instance AND lease_epoch = CAST(:epoch AS BIGINT);

-- name: cancel_job
SELECT seq FROM jobs WHERE seq = CAST(:seq AS BIGINT) AND status IN ('waiting', 'pending', 'claimed');
@if_any UPDATE jobs
   SET cancel_requested = CASE status WHEN 'claimed' THEN 1 ELSE cancel_requested END, waits_for = 0,
       finished_at = CASE status WHEN 'claimed' THEN finished_at ELSE @now END,
       status = CASE status WHEN 'claimed' THEN status ELSE 'cancelled' END
 WHERE seq IN (:chosen...);
@if_any SELECT * FROM jobs WHERE seq = CAST(:seq AS BIGINT);

-- name: requeue_job
SELECT j.seq, j.has_children FROM jobs j
 WHERE j.seq = CAST(:seq AS BIGINT) AND j.pool_id = :pool_id AND j.status = :status AND j.status IN ('poisoned', 'cancelled')
   AND NOT EXISTS (SELECT 1 FROM jobs o WHERE o.pool_id = j.pool_id AND o.unique_key = j.unique_key
                      AND o.status IN ('waiting', 'pending', 'claimed'));
@if_any UPDATE jobs
   SET status = 'pending', failures = 0, crashes = 0, suspicions = 0, alone = 0, cancel_requested = 0, finished_at = NULL,
       delayed = CASE WHEN failures + crashes + suspicions = 0 AND not_before > @now THEN 1 ELSE 0 END,
       not_before = CASE WHEN failures + crashes + suspicions = 0 AND not_before > @now THEN not_before ELSE @now END
 WHERE seq IN (:chosen...);

-- name: change_pending_job
SELECT seq FROM jobs WHERE seq = CAST(:seq AS BIGINT) AND pool_id = :pool_id AND status = 'pending';
@if_any UPDATE jobs
   SET priority = COALESCE(CAST(:priority AS INTEGER), priority),
       delayed = CASE WHEN CAST(:run_at AS BIGINT) IS NULL THEN delayed WHEN CAST(:run_at AS BIGINT) > @now THEN 1 ELSE 0 END,
       not_before = CASE WHEN CAST(:run_at AS BIGINT) IS NULL THEN not_before
                         WHEN CAST(:run_at AS BIGINT) > @now THEN CAST(:run_at AS BIGINT) ELSE @now END
 WHERE seq IN (:chosen...);

-- name: list_prunable
SELECT j.seq, j.has_children,
       CASE WHEN j.finished_at < @now - CAST(:age AS BIGINT) AND k.parent_seq IS NULL THEN 1 ELSE 0 END AS is_old,
       CASE WHEN j.created_at >= @now - CAST(:age AS BIGINT) THEN 1 ELSE 0 END AS is_young
  FROM jobs j
  LEFT JOIN (SELECT DISTINCT l.parent_seq FROM job_links l JOIN jobs c ON c.seq = l.child_seq
              WHERE c.status IN ('waiting', 'pending', 'claimed', 'poisoned')) k ON k.parent_seq = j.seq
 WHERE j.pool_id = :pool_id AND j.status = :status AND j.status IN ('done', 'poisoned', 'cancelled')
   AND j.seq > CAST(:after AS BIGINT)
 ORDER BY j.seq LIMIT :limit;

-- name: delete_pool_parents
SELECT seq FROM jobs WHERE pool_id = :pool_id AND has_children > 0;
@if_any DELETE FROM jobs WHERE pool_id = :pool_id AND has_children > 0;

-- name: prune_jobs
SELECT seq FROM jobs WHERE seq IN (:numbers...) AND status = :status AND finished_at < @now - CAST(:age AS BIGINT)
   AND (has_children = 0 OR seq IN (:parents...));
@if_any DELETE FROM jobs WHERE seq IN (:chosen...);

-- name: push_plain
INSERT INTO jobs (seq, pool_id, type, payload, priority, created_at)
SELECT e.value[0]::BIGINT, e.value[1]::VARCHAR, e.value[2]::VARCHAR, e.value[3]::VARCHAR, e.value[4]::INTEGER, e.value[5]::BIGINT
  FROM TABLE(FLATTEN(INPUT => PARSE_JSON(:records{}))) e;

-- name: next_number
-- The numbers of jobs rise, also across pools, and are never used again: they are the time, or follow the last number.
UPDATE locks SET n = GREATEST(n, @now) + CAST(:count AS BIGINT) WHERE name = 'jobs';
SELECT l.n - CAST(:count AS BIGINT) + 1 AS seq, @now AS now FROM locks l, pools p
 WHERE l.name = 'jobs' AND p.pool_id = :pool_id AND p.kind = 'jobs';

-- name: push_job
-- A job whose id, or whose key in an unfinished job, exists is skipped: both are unique.
INSERT INTO jobs (seq, pool_id, given_id, status, workflow_id, waits_for, after_any, if_failed, has_children, type, payload,
                  delayed, priority, max_attempts, max_crashes, backoff, timeout_us, unique_key, group_key, group_limit, rate_count, rate_us,
                  capability, not_before, created_at)
SELECT CAST(:seq AS BIGINT), :pool_id, :given_id, :status, :workflow_id, CAST(:waits_for AS INTEGER),
       CAST(:after_any AS INTEGER), :if_failed, CAST(:has_children AS INTEGER), :type, :payload,
       CASE WHEN v.due > v.now THEN 1 ELSE 0 END,
       CAST(:priority AS INTEGER), CAST(:max_attempts AS INTEGER), CAST(:max_crashes AS INTEGER), :backoff,
       CAST(:timeout_us AS BIGINT), :unique_key, :group_key, CAST(:group_limit AS INTEGER), CAST(:rate_count AS INTEGER),
       CAST(:rate_us AS BIGINT), :capability, CASE WHEN v.due > v.now THEN v.due END, v.now
  FROM (SELECT g.now, GREATEST(g.run_at, g.after_delay) AS due
          FROM (SELECT CAST(:now AS BIGINT) AS now, COALESCE(CAST(:run_at AS BIGINT), 0) AS run_at,
                       CAST(:now AS BIGINT) + CAST(:delay AS BIGINT) AS after_delay) g) v
 WHERE NOT EXISTS (SELECT 1 FROM jobs i WHERE i.given_id = :given_id)
   AND NOT EXISTS (SELECT 1 FROM jobs k WHERE k.pool_id = :pool_id AND k.unique_key = :unique_key
                      AND k.status IN ('waiting', 'pending', 'claimed'));

-- name: promote_jobs
UPDATE jobs SET delayed = 0
 WHERE pool_id = :pool_id AND status = 'pending' AND delayed = 1 AND not_before <= CAST(:now AS BIGINT);

-- name: claim_jobs
-- Chooses the jobs, claims those that are still pending, and reads what it claimed.
SELECT seq FROM jobs
 WHERE pool_id = :pool_id AND status = 'pending' AND delayed = 0 AND (alone = 0 OR CAST(:alone AS BOOLEAN))
   AND (capability IS NULL OR capability IN (:capabilities...))
   AND (CAST(:types AS VARCHAR) = '[]' OR type IN (:types...))
   AND (CAST(:without AS VARCHAR) = '[]' OR type NOT IN (:without...))
 ORDER BY priority DESC, seq LIMIT :limit;
@if_any UPDATE jobs
   SET status = 'claimed', attempts = attempts + CASE WHEN CAST(:ahead AS BOOLEAN) THEN 0 ELSE 1 END,
       begun_at = CASE WHEN CAST(:ahead AS BOOLEAN) THEN NULL ELSE CAST(:now AS BIGINT) END, in_company = 0,
       lease_owner = :worker_id, lease_pool = :holder_pool, lease_instance = :instance, lease_epoch = lease_epoch + 1,
       lease_until = CAST(:now AS BIGINT) + CAST(:lease AS BIGINT), lease_us = CAST(:lease AS BIGINT), lease_extended = 0,
       claimed_at = CAST(:now AS BIGINT), progress = NULL, progress_note = NULL
 WHERE seq IN (:chosen...) AND status = 'pending';
@if_any SELECT * FROM jobs
 WHERE seq IN (:chosen...) AND status = 'claimed' AND lease_owner = :worker_id AND lease_pool = :holder_pool
   AND lease_instance = :instance;

-- name: claim_limited
-- Jobs in claim order, of each group no more than it has room for.
SELECT seq FROM (
    SELECT c.*, ROW_NUMBER() OVER (PARTITION BY c.group_key ORDER BY c.priority DESC, c.seq) AS place
      FROM (SELECT j.seq, j.priority, j.group_key, j.group_limit, j.rate_count, COALESCE(r.jobs, 0) AS running,
                   COALESCE(g.claims, 0) AS recent
              FROM jobs j
              LEFT JOIN (SELECT o.group_key, COUNT(*) AS jobs FROM jobs o
                          WHERE o.pool_id = :pool_id AND o.group_key IS NOT NULL AND o.status = 'claimed'
                          GROUP BY o.group_key) r ON r.group_key = j.group_key
              LEFT JOIN (SELECT k.group_key, k.rate_us, COUNT(*) AS claims
                           FROM group_claims c
                           JOIN (SELECT DISTINCT o.group_key, o.rate_us FROM jobs o
                                  WHERE o.pool_id = :pool_id AND o.status = 'pending' AND o.delayed = 0
                                    AND o.group_key IS NOT NULL AND o.rate_us IS NOT NULL) k ON k.group_key = c.group_key
                          WHERE c.pool_id = :pool_id AND c.at > CAST(:now AS BIGINT) - k.rate_us
                          GROUP BY k.group_key, k.rate_us) g ON g.group_key = j.group_key AND g.rate_us = j.rate_us
             WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 0
               AND (j.alone = 0 OR CAST(:alone AS BOOLEAN))
               AND (j.capability IS NULL OR j.capability IN (:capabilities...))
               AND (CAST(:types AS VARCHAR) = '[]' OR j.type IN (:types...))
               AND (CAST(:without AS VARCHAR) = '[]' OR j.type NOT IN (:without...))) c
     WHERE (c.group_limit IS NULL OR c.group_key IS NULL OR c.running < c.group_limit)
       AND (c.rate_count IS NULL OR c.group_key IS NULL OR c.recent < c.rate_count)) d
 WHERE d.group_key IS NULL OR ((d.group_limit IS NULL OR d.running + d.place <= d.group_limit)
                               AND (d.rate_count IS NULL OR d.recent + d.place <= d.rate_count))
 ORDER BY d.priority DESC, d.seq LIMIT :limit;
@if_any UPDATE jobs
   SET status = 'claimed', attempts = attempts + CASE WHEN CAST(:ahead AS BOOLEAN) THEN 0 ELSE 1 END,
       begun_at = CASE WHEN CAST(:ahead AS BOOLEAN) THEN NULL ELSE CAST(:now AS BIGINT) END, in_company = 0,
       lease_owner = :worker_id, lease_pool = :holder_pool, lease_instance = :instance, lease_epoch = lease_epoch + 1,
       lease_until = CAST(:now AS BIGINT) + CAST(:lease AS BIGINT), lease_us = CAST(:lease AS BIGINT), lease_extended = 0,
       claimed_at = CAST(:now AS BIGINT), progress = NULL, progress_note = NULL
 WHERE seq IN (:chosen...) AND status = 'pending';
@if_any SELECT * FROM jobs
 WHERE seq IN (:chosen...) AND status = 'claimed' AND lease_owner = :worker_id AND lease_pool = :holder_pool
   AND lease_instance = :instance;

-- name: list_limited
-- Limited groups with ready jobs. For each: how many jobs run, how many were claimed within the period of its rate, and what
-- its first jobs need, as a JSON list.
WITH ready AS (
    SELECT j.group_key, j.capability, j.group_limit, j.rate_count, j.rate_us,
           ROW_NUMBER() OVER (PARTITION BY j.group_key ORDER BY j.seq) AS place
      FROM jobs j
     WHERE j.pool_id = :pool_id AND j.group_key IS NOT NULL AND j.status = 'pending' AND j.delayed = 0
       AND (CAST(:types AS VARCHAR) = '[]' OR j.type IN (:types...))
       AND (CAST(:without AS VARCHAR) = '[]' OR j.type NOT IN (:without...)) AND (j.group_limit IS NOT NULL OR j.rate_count IS NOT NULL)
), groups AS (
    SELECT r.group_key, MAX(CASE WHEN r.place = 1 THEN r.rate_us END) AS rate_us,
           '[' || LISTAGG('[' || COALESCE(TO_JSON(TO_VARIANT(r.capability)), 'null') || ','
                          || COALESCE(TO_VARCHAR(r.group_limit), 'null') || ','
                          || COALESCE(TO_VARCHAR(r.rate_count), 'null') || ']', ',') WITHIN GROUP (ORDER BY r.place) || ']' AS firsts
      FROM ready r WHERE r.place <= CAST(:most AS INTEGER) GROUP BY r.group_key
), running AS (
    SELECT o.group_key, COUNT(*) AS jobs FROM jobs o
     WHERE o.pool_id = :pool_id AND o.group_key IS NOT NULL AND o.status = 'claimed' GROUP BY o.group_key
), recent AS (
    SELECT c.group_key, COUNT(*) AS claims FROM group_claims c JOIN groups g ON g.group_key = c.group_key
     WHERE c.pool_id = :pool_id AND c.at > @now - g.rate_us GROUP BY c.group_key
)
SELECT COALESCE(n.jobs, 0) AS running, COALESCE(c.claims, 0) AS recent, g.firsts
  FROM groups g LEFT JOIN running n ON n.group_key = g.group_key LEFT JOIN recent c ON c.group_key = g.group_key
 ORDER BY g.group_key;

-- name: note_claims
INSERT INTO group_claims (pool_id, group_key, seq, n, at, until)
SELECT :pool_id, :group_key, CAST(:seq AS BIGINT), CAST(:n AS BIGINT), CAST(:at AS BIGINT), CAST(:until AS BIGINT)
 WHERE NOT EXISTS (SELECT 1 FROM group_claims WHERE pool_id = :pool_id AND group_key = :group_key AND seq = :seq AND n = :n);

-- name: settle_done
-- A job whose present claim is not that of the token is not among those read, and stays as it is.
SELECT j.seq, j.pool_id, j.has_children FROM jobs j
  JOIN (SELECT e.value[0]::BIGINT AS seq, e.value[1]::BIGINT AS epoch FROM TABLE(FLATTEN(INPUT => PARSE_JSON(:verdicts{}))) e) v
    ON j.seq = v.seq AND j.lease_epoch = v.epoch
 WHERE j.status = 'claimed' AND j.lease_owner = :worker_id AND j.lease_pool = :holder_pool AND j.lease_instance = :instance;
@if_any UPDATE jobs SET status = 'done', result = v.result, lease_until = NULL, finished_at = @now
  FROM (SELECT e.value[0]::BIGINT AS seq, e.value[1]::BIGINT AS epoch, e.value[2]::VARCHAR AS result
          FROM TABLE(FLATTEN(INPUT => PARSE_JSON(:verdicts{}))) e) v
 WHERE jobs.seq = v.seq AND jobs.seq IN (:chosen...) AND jobs.status = 'claimed' AND jobs.lease_epoch = v.epoch;

-- name: pass_on_done
SELECT c.seq FROM jobs c
 WHERE c.seq IN (SELECT child_seq FROM job_links WHERE @listed(parent_seq, :parents)) AND c.status = 'waiting';
@if_any UPDATE jobs
   SET waits_for = GREATEST(jobs.waits_for - f.ended, 0),
       status = CASE WHEN jobs.waits_for > f.ended THEN jobs.status ELSE 'pending' END,
       delayed = CASE WHEN jobs.waits_for > f.ended THEN jobs.delayed WHEN jobs.not_before > @now THEN 1 ELSE 0 END,
       not_before = CASE WHEN jobs.waits_for > f.ended OR jobs.not_before > @now THEN jobs.not_before ELSE @now END
  FROM (SELECT child_seq, COUNT(*) AS ended FROM job_links WHERE @listed(parent_seq, :parents) GROUP BY child_seq) f
 WHERE jobs.seq = f.child_seq AND jobs.seq IN (:chosen...) AND jobs.status = 'waiting';
SELECT DISTINCT c.pool_id FROM jobs c
 WHERE c.seq IN (SELECT child_seq FROM job_links WHERE @listed(parent_seq, :parents)) AND c.status = 'pending';

-- name: lock_held
SELECT j.* FROM jobs j
  JOIN (SELECT e.value:seq::BIGINT AS seq, e.value:epoch::BIGINT AS epoch FROM TABLE(FLATTEN(INPUT => PARSE_JSON(:tokens{}))) e) v
    ON j.seq = v.seq AND j.lease_epoch = v.epoch
 WHERE j.status = 'claimed' AND j.lease_owner = :worker_id AND j.lease_pool = :holder_pool AND j.lease_instance = :instance;

-- name: renew_held
SELECT j.seq, j.cancel_requested FROM jobs j
  JOIN (SELECT e.value:seq::BIGINT AS seq, e.value:epoch::BIGINT AS epoch FROM TABLE(FLATTEN(INPUT => PARSE_JSON(:tokens{}))) e) v
    ON j.seq = v.seq AND j.lease_epoch = v.epoch
 WHERE j.status = 'claimed' AND j.lease_owner = :worker_id AND j.lease_pool = :holder_pool AND j.lease_instance = :instance;
@if_any UPDATE jobs SET lease_until = @now + CAST(:lease AS BIGINT), lease_us = CAST(:lease AS BIGINT), lease_extended = 0, in_company = 0
 WHERE seq IN (:chosen...);

-- name: begin_held
-- An attempt is counted once, also if this is repeated.
SELECT j.seq FROM jobs j
  JOIN (SELECT e.value:seq::BIGINT AS seq, e.value:epoch::BIGINT AS epoch FROM TABLE(FLATTEN(INPUT => PARSE_JSON(:tokens{}))) e) v
    ON j.seq = v.seq AND j.lease_epoch = v.epoch
 WHERE j.status = 'claimed' AND j.lease_owner = :worker_id AND j.lease_pool = :holder_pool AND j.lease_instance = :instance;
@if_any UPDATE jobs SET attempts = attempts + CASE WHEN begun_at IS NULL THEN 1 ELSE 0 END, begun_at = COALESCE(begun_at, @now)
 WHERE seq IN (:chosen...);

-- name: lock_jobs_of_worker
SELECT * FROM jobs
 WHERE lease_owner = :worker_id AND lease_pool = :holder_pool AND lease_instance = :instance AND status = 'claimed' ORDER BY seq;

-- name: extend_leases
-- Extends leases that expired for the first time: the store may have been unreachable.
SELECT seq FROM jobs WHERE status = 'claimed' AND lease_until <= @now AND lease_extended = 0 LIMIT :limit;
@if_any UPDATE jobs SET lease_until = @now + lease_us, lease_extended = 1 WHERE seq IN (:chosen...);

-- name: lock_expired
SELECT * FROM jobs WHERE status = 'claimed' AND lease_until <= @now AND lease_extended = 1 ORDER BY lease_owner LIMIT :limit;

-- name: save_jobs
UPDATE jobs
   SET status = v.status, delayed = v.delayed, attempts = v.attempts, failures = v.failures, crashes = v.crashes,
       suspicions = v.suspicions, alone = v.alone, begun_at = v.begun_at, lease_extended = 0, result = v.result,
       lease_owner = v.lease_owner, lease_pool = v.lease_pool, lease_instance = v.lease_instance, lease_until = NULL,
       not_before = v.not_before, last_error = v.last_error, finished_at = v.finished_at
  FROM (SELECT e.value:seq::BIGINT AS seq, e.value:status::VARCHAR AS status, e.value:delayed::INTEGER AS delayed,
               e.value:attempts::INTEGER AS attempts, e.value:failures::INTEGER AS failures,
               e.value:crashes::INTEGER AS crashes, e.value:suspicions::INTEGER AS suspicions,
               e.value:alone::INTEGER AS alone, e.value:begun_at::BIGINT AS begun_at, e.value:result::VARCHAR AS result,
               e.value:lease_owner::VARCHAR AS lease_owner, e.value:lease_pool::VARCHAR AS lease_pool,
               e.value:lease_instance::VARCHAR AS lease_instance, e.value:not_before::BIGINT AS not_before,
               e.value:last_error::VARCHAR AS last_error, e.value:finished_at::BIGINT AS finished_at
          FROM TABLE(FLATTEN(INPUT => PARSE_JSON(:rows{}))) e) v
 WHERE jobs.seq = v.seq;

-- name: add_attempts
INSERT INTO job_attempts (seq, n, worker_id, worker_pool, started_at, ended_at, outcome, error)
SELECT e.value:seq::BIGINT, e.value:n::BIGINT, e.value:worker_id::VARCHAR, e.value:worker_pool::VARCHAR,
       e.value:started_at::BIGINT, e.value:ended_at::BIGINT, e.value:outcome::VARCHAR, e.value:error::VARCHAR
  FROM TABLE(FLATTEN(INPUT => PARSE_JSON(:rows{}))) e;

-- name: free_space
-- Snowflake manages its own storage.
SELECT 0 AS free, 0 AS pages;

-- name: give_back
SELECT 1 AS given;

-- name: note_ended
UPDATE job_counts SET jobs = jobs + CAST(:jobs AS BIGINT) WHERE pool_id = :pool_id AND status = :status AND part = 0;
@if_none INSERT INTO job_counts (pool_id, status, part, jobs) SELECT :pool_id, :status, 0, CAST(:jobs AS BIGINT);

-- name: fold_counts
-- There is only one row.
SELECT 1 AS folded;

-- name: lock_counts
SELECT 1 AS locked;

-- name: list_jobs
SELECT * FROM jobs
 WHERE pool_id = :pool_id AND status IN (:statuses...) AND seq > CAST(:after AS BIGINT)
   AND (CAST(:type AS VARCHAR) IS NULL OR type = :type) AND (CAST(:group AS VARCHAR) IS NULL OR group_key = :group)
   AND (CAST(:worker_id AS VARCHAR) IS NULL OR lease_owner = :worker_id)
   AND (CAST(:holder_pool AS VARCHAR) IS NULL OR COALESCE(lease_pool, pool_id) = :holder_pool)
   AND (CAST(:instance AS VARCHAR) IS NULL OR COALESCE(lease_instance, '') = :instance)
 ORDER BY seq LIMIT :limit;

-- name: add_links
INSERT INTO job_links (child_seq, parent_seq)
SELECT e.value[0]::BIGINT, e.value[1]::BIGINT FROM TABLE(FLATTEN(INPUT => PARSE_JSON(:links{}))) e;

-- name: record_steps
-- There is one writer at a time, so a job that is held when it is read is held until the end.
SELECT DISTINCT j.seq, j.lease_epoch FROM jobs j
  JOIN (SELECT e.value:seq::BIGINT AS seq, e.value:epoch::BIGINT AS epoch FROM TABLE(FLATTEN(INPUT => PARSE_JSON(:steps{}))) e) v
    ON j.seq = v.seq AND j.lease_epoch = v.epoch
 WHERE j.status = 'claimed' AND j.lease_owner = :worker_id AND j.lease_pool = :holder_pool AND j.lease_instance = :instance;
@if_any UPDATE jobs SET has_steps = 1 WHERE seq IN (:chosen...);
DELETE FROM job_steps
 USING (SELECT g.seq, g.n
          FROM (SELECT e.value:seq::BIGINT AS seq, e.value:epoch::BIGINT AS epoch, e.value:n::INTEGER AS n
                  FROM TABLE(FLATTEN(INPUT => PARSE_JSON(:steps{}))) e) g
          JOIN jobs j ON j.seq = g.seq AND j.lease_epoch = g.epoch) v
 WHERE job_steps.seq = v.seq AND job_steps.n = v.n AND job_steps.seq IN (:chosen...);
INSERT INTO job_steps (seq, n, name, kind, result, error, started_at, finished_at, until, epoch)
SELECT v.seq, v.n, v.name, v.kind, v.result, v.error, v.started_at, v.finished_at, v.until, v.epoch
  FROM (SELECT e.value:seq::BIGINT AS seq, e.value:epoch::BIGINT AS epoch, e.value:n::INTEGER AS n, e.value:name::VARCHAR AS name,
               e.value:kind::VARCHAR AS kind, e.value:result::VARCHAR AS result, e.value:error::VARCHAR AS error,
               e.value:started_at::BIGINT AS started_at, e.value:finished_at::BIGINT AS finished_at, e.value:until::BIGINT AS until
          FROM TABLE(FLATTEN(INPUT => PARSE_JSON(:steps{}))) e) v
  JOIN jobs j ON j.seq = v.seq AND j.lease_epoch = v.epoch
 WHERE j.seq IN (:chosen...);

-- name: add_event
INSERT INTO job_steps (seq, n, name, kind, result, started_at, finished_at, epoch)
SELECT CAST(:seq AS BIGINT), CAST(:n AS INTEGER), :name, 'sent', :result, @now, @now, 0;

-- name: list_unreaped_workers
SELECT worker_id FROM workers WHERE pool_id = :pool_id AND ended_at IS NOT NULL AND reaped_at IS NULL
 ORDER BY ended_at LIMIT :limit;
SELECT * FROM workers
 WHERE pool_id = :pool_id AND (ended_at IS NULL OR worker_id IN (:chosen...) OR worker_id IN (:named...))
 ORDER BY slot, created_at, worker_id;

-- name: view_run_status
-- These views show the same as in other databases. Snowflake has no WINDOW clause and few correlated subqueries, so they join.
DROP VIEW IF EXISTS drumbeat.run_status;
CREATE VIEW drumbeat.run_status AS
SELECT r.run_id, r.run_id AS test_id, r.template_id, r.name AS test_name, r.config AS scenario_config, r.status, r.phase,
       @time(r.started_at) AS start_time, @time(r.ended_at) AS end_time,
       @time(r.warmup_started_at) AS warmup_start_time, @time(r.warmup_ended_at) AS warmup_end_time,
       r.expected_workers AS total_workers_expected,
       COALESCE(w.registered, 0) AS workers_registered, COALESCE(w.active, 0) AS workers_active,
       COALESCE(w.completed, 0) AS workers_completed,
       r.operations AS total_ops, r.errors AS error_count, r.qps AS current_qps,
       @json_part(r.controller_state, 'find_max') AS find_max_state,
       @json_part(r.controller_state, 'qps') AS qps_controller_state,
       w.targets AS worker_targets,
       p.next_event AS next_sequence_id,
       CASE WHEN r.status IN ('CANCELLING', 'CANCELLED', 'FAILED') THEN r.completion_reason END AS cancellation_reason,
       r.completion_reason, r.custom_metrics, @time(r.created_at) AS created_at, @time(r.updated_at) AS updated_at
  FROM runs r JOIN pools p ON p.pool_id = r.run_id
  LEFT JOIN (SELECT o.pool_id, COUNT(o.started_at) AS registered,
                    COUNT(CASE WHEN o.status IN ('active', 'draining') THEN 1 END) AS active,
                    COUNT(CASE WHEN o.status = 'terminated' THEN 1 END) AS completed,
                    @json_collect(o.worker_id, @json_object('target', o.target, 'target_connections', o.target, 'seq', o.target_seq)) AS targets
               FROM workers o GROUP BY o.pool_id) w ON w.pool_id = r.run_id;

-- name: view_worker_metrics_snapshots
DROP VIEW IF EXISTS drumbeat.worker_metrics_snapshots;
CREATE VIEW drumbeat.worker_metrics_snapshots AS
SELECT s.pool_id || '/' || s.worker_id || '/' || s.n AS snapshot_id, s.pool_id AS run_id,
       s.pool_id || '/' || s.worker_id AS test_id, s.worker_id, w.slot AS worker_group_id,
       COALESCE(g.slots, 0) AS worker_group_count,
       @time(s.at) AS timestamp, CAST(s.at - w.started_at AS @real) / 1000000 AS elapsed_seconds, s.phase,
       CAST(SUM(CASE s.phase WHEN 'MEASUREMENT' THEN s.operations ELSE 0 END) OVER (PARTITION BY s.pool_id, s.worker_id ORDER BY s.n) AS BIGINT) AS total_queries,
       CAST(SUM(CASE s.phase WHEN 'MEASUREMENT' THEN s.reads ELSE 0 END) OVER (PARTITION BY s.pool_id, s.worker_id ORDER BY s.n) AS BIGINT) AS read_count,
       CAST(SUM(CASE s.phase WHEN 'MEASUREMENT' THEN s.writes ELSE 0 END) OVER (PARTITION BY s.pool_id, s.worker_id ORDER BY s.n) AS BIGINT) AS write_count,
       CAST(SUM(CASE s.phase WHEN 'MEASUREMENT' THEN s.errors ELSE 0 END) OVER (PARTITION BY s.pool_id, s.worker_id ORDER BY s.n) AS BIGINT) AS error_count,
       COALESCE(CAST(s.operations AS @real) * 1000000 / NULLIF(s.interval_us, 0), 0) AS qps,
       s.p50_ms AS p50_latency_ms, s.p95_ms AS p95_latency_ms, s.p99_ms AS p99_latency_ms,
       s.avg_ms AS avg_latency_ms, s.min_ms AS min_latency_ms, s.max_ms AS max_latency_ms,
       s.active AS active_connections, s.target AS target_connections, s.cpu_percent, s.memory_percent,
       s.extra AS custom_metrics, @time(s.at) AS created_at
  FROM drumbeat.samples s LEFT JOIN drumbeat.workers w ON w.pool_id = s.pool_id AND w.worker_id = s.worker_id
  LEFT JOIN (SELECT o.pool_id, COUNT(DISTINCT o.slot) AS slots FROM workers o GROUP BY o.pool_id) g ON g.pool_id = s.pool_id;

-- name: view_query_executions
DROP VIEW IF EXISTS drumbeat.query_executions;
CREATE VIEW drumbeat.query_executions AS
SELECT x.run_id || '/' || x.worker_id || '/' || x.n AS execution_id, x.run_id || '/' || x.worker_id AS test_id,
       'LOCAL_' || x.run_id || '/' || x.worker_id || '/' || x.n AS query_id, x.query_text,
       @time(x.started_at) AS start_time, @time(x.started_at + x.duration_ms * 1000) AS end_time, x.duration_ms,
       x.rows_affected, CAST(NULL AS BIGINT) AS bytes_scanned,
       @json_text(r.config, 'warehouse') AS warehouse, x.ok AS success, x.error, x.connection AS connection_id,
       CAST(NULL AS @json) AS custom_metadata, x.kind AS query_kind,
       x.worker_id, x.warmup, x.duration_ms AS app_elapsed_ms
  FROM executions x LEFT JOIN runs r ON r.run_id = x.run_id;

-- name: view_worker_registry
DROP VIEW IF EXISTS drumbeat.worker_registry;
CREATE VIEW drumbeat.worker_registry AS
SELECT w.worker_id,
       CASE WHEN w.status = 'terminated' THEN 'terminated' WHEN w.status IN ('error', 'lost') THEN 'lost'
            WHEN w.status = 'draining' OR w.drain_deadline IS NOT NULL THEN 'terminating' ELSE 'active' END AS status,
       w.host, w.pid, w.capabilities, w.pool_id, @time(w.started_at) AS started_at,
       @time(w.heartbeat_at) AS last_heartbeat,
       j.first_job AS current_task_id
  FROM workers w
  LEFT JOIN (SELECT o.lease_pool, o.lease_owner, o.lease_instance, MIN(@job_id(o.given_id, o.seq)) AS first_job FROM jobs o
              WHERE o.status = 'claimed' GROUP BY o.lease_pool, o.lease_owner, o.lease_instance) j
    ON j.lease_pool = w.pool_id AND j.lease_owner = w.worker_id AND j.lease_instance = COALESCE(w.instance, '')
 WHERE w.heartbeat_at IS NOT NULL;

-- name: view_orchestrator_status
DROP VIEW IF EXISTS orchestrator_status;
CREATE VIEW orchestrator_status AS
SELECT p.pool_id, COALESCE(j.queued, 0) AS queued_tasks, COALESCE(j.claimed, 0) AS in_progress_tasks,
       COALESCE(w.spawning, 0) AS spawning_workers, COALESCE(w.active, 0) AS active_workers,
       COALESCE(w.terminating, 0) AS terminating_workers, COALESCE(w.total, 0) AS total_workers,
       COALESCE(w.stale, 0) AS stale_workers, @time(p.paused_until) AS paused_until, @time(@now) AS timestamp
  FROM pools p
  LEFT JOIN (SELECT o.pool_id, COUNT(CASE WHEN o.status = 'pending' THEN 1 END) AS queued,
                    COUNT(CASE WHEN o.status = 'claimed' THEN 1 END) AS claimed FROM jobs o GROUP BY o.pool_id) j
    ON j.pool_id = p.pool_id
  LEFT JOIN (SELECT o.pool_id,
                    COUNT(CASE WHEN o.status IN ('spawning', 'starting') AND o.drain_deadline IS NULL THEN 1 END) AS spawning,
                    COUNT(CASE WHEN o.status IN ('waiting', 'active') AND o.drain_deadline IS NULL THEN 1 END) AS active,
                    COUNT(CASE WHEN o.ended_at IS NULL AND (o.status = 'draining' OR o.drain_deadline IS NOT NULL) THEN 1 END) AS terminating,
                    COUNT(CASE WHEN o.ended_at IS NULL THEN 1 END) AS total,
                    COUNT(CASE WHEN o.ended_at IS NULL AND @now - o.heartbeat_at > @json_number(h.thresholds, 'stale_after') * 1000000 THEN 1 END) AS stale
               FROM workers o JOIN pools h ON h.pool_id = o.pool_id GROUP BY o.pool_id) w ON w.pool_id = p.pool_id;

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
       COALESCE(j.jobs, 0) AS running_tasks
  FROM workers w JOIN pools p ON p.pool_id = w.pool_id
  LEFT JOIN (SELECT o.lease_pool, o.lease_owner, o.lease_instance, COUNT(*) AS jobs FROM jobs o
              WHERE o.status = 'claimed' GROUP BY o.lease_pool, o.lease_owner, o.lease_instance) j
    ON j.lease_pool = w.pool_id AND j.lease_owner = w.worker_id AND j.lease_instance = COALESCE(w.instance, '')
 WHERE w.status IN ('starting', 'waiting', 'active', 'draining');
