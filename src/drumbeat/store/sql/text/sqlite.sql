-- What SQLite says in its own way. It has one writer at a time: a query of several statements is one transaction.

-- name: lock_migrations
-- The writer's transaction has taken the file's lock already.
SELECT 1;

-- name: find_version_table
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_version';

-- name: worker_beat
-- The write lock is held from the first statement to the last, so the row that beats is the row that is read back.
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
          FROM (SELECT * FROM events WHERE pool_id = :pool_id AND sequence_id > :read_to
                   AND (scope = 'RUN' OR (scope = 'WORKER' AND worker_id = :worker_id) OR (scope = 'WORKER_GROUP' AND slot = w.slot))
                   AND type NOT IN ('WORKER_MOVED', 'SCALE_DOWN', 'GUARDRAIL_WARNING')
                 ORDER BY sequence_id LIMIT 101) e) END AS events
  FROM workers w JOIN pools p ON p.pool_id = w.pool_id
  LEFT JOIN runs r ON r.run_id = w.pool_id LEFT JOIN leases l ON l.name = w.pool_id
 WHERE w.pool_id = :pool_id AND w.worker_id = :worker_id AND w.instance = :instance AND w.ended_at IS NULL;

-- name: append_events
-- One writer at a time: numbers are handed out in commit order, so a reader never sees 11 before 10.
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
-- Run over many rows in one transaction; one that is there already is passed over.
INSERT INTO executions (run_id, worker_id, n, connection, kind, started_at, duration_ms, ok, error_class, error, rows_affected, warmup,
                        query_text)
VALUES (:run_id, :worker_id, :n, :connection, :kind, :started_at, :duration_ms, :ok, :error_class, :error, :rows_affected, :warmup,
        :query_text)
ON CONFLICT (run_id, worker_id, n) DO NOTHING;
