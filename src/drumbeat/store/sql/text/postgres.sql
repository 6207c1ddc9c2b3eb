-- What PostgreSQL says in its own way.

-- name: lock_migrations
-- Held until commit: whoever comes second finds the work done. The number spells "drumbeat".
SELECT pg_advisory_xact_lock(7238255498022478196);

-- name: find_version_table
SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = '@schema' AND tablename = 'schema_version';

-- name: make_version_table
CREATE SCHEMA IF NOT EXISTS "@schema";
CREATE TABLE IF NOT EXISTS drumbeat.schema_version (version integer PRIMARY KEY, applied_at bigint NOT NULL);

-- name: worker_beat
-- One statement, one round trip: the row that was updated is the row the rest depends on.
WITH alive AS (
    UPDATE drumbeat.workers
       SET heartbeat_at = @now, heartbeat_count = heartbeat_count + 1, phase = :phase, applied_target = :applied_target,
           active = :active, operations = :operations, errors = :errors, error = COALESCE(:error, error),
           cpu_percent = :cpu_percent, memory_percent = :memory_percent, gpu = CAST(:gpu AS jsonb)
     WHERE pool_id = :pool_id AND worker_id = :worker_id AND instance = :instance AND ended_at IS NULL
    RETURNING pool_id, worker_id, slot, heartbeat_at, status, target, target_seq, drain_deadline
), sampled AS (
    INSERT INTO drumbeat.samples (pool_id, worker_id, n, at, interval_us, phase, operations, reads, writes, errors, latency,
                                  p50_ms, p95_ms, p99_ms, avg_ms, min_ms, max_ms, active, target, cpu_percent, memory_percent,
                                  gpu, extra)
    SELECT pool_id, worker_id, CAST(:n AS bigint), heartbeat_at - CAST(:age_us AS bigint), CAST(:interval_us AS bigint),
           CAST(:sample_phase AS text), CAST(:sample_operations AS bigint), CAST(:reads AS bigint), CAST(:writes AS bigint),
           CAST(:sample_errors AS bigint), CAST(:latency AS bytea), CAST(:p50_ms AS float8), CAST(:p95_ms AS float8),
           CAST(:p99_ms AS float8), CAST(:avg_ms AS float8), CAST(:min_ms AS float8), CAST(:max_ms AS float8),
           CAST(:sample_active AS integer), CAST(:target AS integer), CAST(:sample_cpu AS float8),
           CAST(:sample_memory AS float8), CAST(:sample_gpu AS jsonb), CAST(:extra AS jsonb)
      FROM alive WHERE CAST(:n AS bigint) IS NOT NULL
    ON CONFLICT (pool_id, worker_id, n) DO NOTHING
)
SELECT alive.heartbeat_at AS now, alive.status, alive.target, alive.target_seq, alive.drain_deadline,
       r.status AS run_status, r.phase AS run_phase, l.expires_at AS controller_until, p.next_event - 1 AS newest,
       CASE WHEN p.next_event - 1 > CAST(:read_to AS bigint) THEN
       (SELECT jsonb_agg(jsonb_build_object('sequence_id', e.sequence_id, 'type', e.type, 'scope', e.scope,
                                            'worker_id', e.worker_id, 'slot', e.slot, 'payload', e.payload,
                                            'created_at', e.created_at) ORDER BY e.sequence_id)
          FROM (SELECT * FROM drumbeat.events WHERE pool_id = :pool_id AND sequence_id > CAST(:read_to AS bigint)
                   AND (scope = 'RUN' OR (scope = 'WORKER' AND worker_id = :worker_id)
                        OR (scope = 'WORKER_GROUP' AND slot = alive.slot))
                   AND type NOT IN ('WORKER_MOVED', 'SCALE_DOWN', 'GUARDRAIL_WARNING')
                 ORDER BY sequence_id LIMIT 101) e) END AS events
  FROM alive JOIN drumbeat.pools p ON p.pool_id = alive.pool_id
  LEFT JOIN drumbeat.runs r ON r.run_id = alive.pool_id LEFT JOIN drumbeat.leases l ON l.name = alive.pool_id;

-- name: append_events
-- The pool's row stays locked until commit: numbers are handed out in commit order, so a reader never sees 11 before 10.
WITH numbered AS (
    UPDATE drumbeat.pools SET next_event = next_event + CAST(:count AS bigint) WHERE pool_id = :pool_id
    RETURNING pool_id, next_event - CAST(:count AS bigint) AS first, @now AS now
), added AS (
    INSERT INTO drumbeat.events (pool_id, sequence_id, type, scope, worker_id, slot, payload, created_at)
    SELECT pool_id, first + n - 1, e ->> 'type', e ->> 'scope', e ->> 'worker_id', CAST(e ->> 'slot' AS integer),
           e -> 'payload', now
      FROM numbered, jsonb_array_elements(CAST(:events AS jsonb)) WITH ORDINALITY AS listed (e, n)
)
SELECT first, now FROM numbered;

-- name: add_logs
INSERT INTO drumbeat.logs (pool_id, log_id, at, worker_id, level, severity, logger, message, details)
SELECT :pool_id, CAST(:first AS bigint) + n - 1, @now - CAST(e ->> 'age_us' AS bigint), e ->> 'worker_id', e ->> 'level',
       CAST(e ->> 'severity' AS integer), e ->> 'logger', e ->> 'message', NULLIF(e -> 'details', 'null'::jsonb)
  FROM jsonb_array_elements(CAST(:entries AS jsonb)) WITH ORDINALITY AS listed (e, n);

-- name: load_executions
-- For rows of which some are there already: they are copied between the two statements. COPY itself cannot pass over a row.
CREATE TEMPORARY TABLE incoming (LIKE drumbeat.executions INCLUDING DEFAULTS) ON COMMIT DROP;
INSERT INTO drumbeat.executions SELECT * FROM incoming ON CONFLICT (run_id, worker_id, n) DO NOTHING;
