-- Queries that are specific to PostgreSQL.

-- name: lock_migrations
-- Locked until commit: a second process waits and then finds the migrations applied. The number spells "drumbeat".
SELECT pg_advisory_xact_lock(7238255498022478196);

-- name: find_version_table
SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = '@schema' AND tablename = 'unfinished_copy') AS is_copying
  FROM pg_catalog.pg_tables WHERE schemaname = '@schema' AND tablename = 'schema_version';

-- name: list_columns
SELECT CAST(t.relname AS text) AS table_name, CAST(a.attname AS text) AS column_name,
       COALESCE(array_position(CAST(i.indkey AS smallint[]), a.attnum) + 1, 0) AS key_place
  FROM pg_catalog.pg_class t
  JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_catalog.pg_index i ON i.indrelid = t.oid AND i.indisprimary
 WHERE t.relnamespace = (SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = '@schema') AND t.relkind IN ('r', 'p')
 ORDER BY t.relname, a.attnum;

-- name: last_number
SELECT GREATEST(COALESCE((SELECT MAX(seq) FROM drumbeat.jobs), 0), COALESCE(pg_catalog.pg_sequence_last_value(
           CAST(pg_get_serial_sequence('"@schema".jobs', 'seq') AS regclass)), 0)) AS number;

-- name: set_last_number
-- The next job gets a number that no earlier job had.
SELECT setval(CAST(pg_get_serial_sequence('"@schema".jobs', 'seq') AS regclass), GREATEST(CAST(:number AS bigint), 1),
              CAST(:number AS bigint) > 0);

-- name: make_version_table
CREATE SCHEMA IF NOT EXISTS "@schema";
CREATE TABLE IF NOT EXISTS drumbeat.schema_version (version integer PRIMARY KEY, applied_at bigint NOT NULL);

-- name: worker_beat
-- One statement and one round trip; the other parts depend on the row that was updated.
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
          FROM ((SELECT * FROM drumbeat.events
                  WHERE pool_id = :pool_id AND sequence_id > CAST(:read_to AS bigint) AND scope = 'RUN'
                    AND type NOT IN ('WORKER_MOVED', 'SCALE_DOWN', 'GUARDRAIL_WARNING', 'WAITING_FOR_WORKERS')
                  ORDER BY sequence_id LIMIT 101)
                UNION ALL
                (SELECT * FROM drumbeat.events
                  WHERE pool_id = :pool_id AND sequence_id > CAST(:read_to AS bigint) AND scope = 'WORKER' AND worker_id = :worker_id
                    AND type NOT IN ('WORKER_MOVED', 'SCALE_DOWN', 'GUARDRAIL_WARNING', 'WAITING_FOR_WORKERS')
                  ORDER BY sequence_id LIMIT 101)
                UNION ALL
                (SELECT * FROM drumbeat.events
                  WHERE pool_id = :pool_id AND sequence_id > CAST(:read_to AS bigint) AND scope = 'WORKER_GROUP' AND slot = alive.slot
                    AND type NOT IN ('WORKER_MOVED', 'SCALE_DOWN', 'GUARDRAIL_WARNING', 'WAITING_FOR_WORKERS')
                  ORDER BY sequence_id LIMIT 101)
                ORDER BY sequence_id LIMIT 101) e) END AS events
  FROM alive JOIN drumbeat.pools p ON p.pool_id = alive.pool_id
  LEFT JOIN drumbeat.runs r ON r.run_id = alive.pool_id LEFT JOIN drumbeat.leases l ON l.name = alive.pool_id;

-- name: append_events
-- The pool's row stays locked until commit, so numbers rise in commit order: a reader never sees 11 before 10.
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
-- Used if some rows exist already: COPY cannot skip rows, so it fills a temporary table between these two statements.
CREATE TEMPORARY TABLE incoming (LIKE drumbeat.executions INCLUDING DEFAULTS) ON COMMIT DROP;
INSERT INTO drumbeat.executions SELECT * FROM incoming ON CONFLICT (run_id, worker_id, n) DO NOTHING;

-- name: push_alike
-- Jobs of one type and priority; numbers are drawn in the order of the list. The notification is sent at commit.
-- The sub-selects run once, not for each row. The pool is locked as in push_one.
WITH home AS MATERIALIZED (SELECT pool_id FROM drumbeat.pools WHERE pool_id = :pool_id AND kind = 'jobs' FOR KEY SHARE)
INSERT INTO drumbeat.jobs (pool_id, type, payload, priority, created_at)
SELECT p.pool_id, CAST(:type AS text), j.payload, CAST(:priority AS integer), (SELECT @now)
  FROM home p, json_array_elements(CAST(:payloads AS json)) AS j (payload)
RETURNING seq, (SELECT CASE WHEN CAST(:channel AS text) IS NOT NULL THEN CAST(pg_notify(:channel, '') AS text) END) AS told;

-- name: push_plain
-- Like push_alike, but each job has its own type and priority.
WITH home AS MATERIALIZED (SELECT pool_id FROM drumbeat.pools WHERE pool_id = :pool_id AND kind = 'jobs' FOR KEY SHARE)
INSERT INTO drumbeat.jobs (pool_id, type, payload, priority, created_at)
SELECT p.pool_id, j.type, j.payload, j.priority, (SELECT @now)
  FROM home p,
       ROWS FROM (unnest(CAST(:types AS text[])), unnest(CAST(:priorities AS integer[])), json_array_elements(CAST(:payloads AS json)))
       AS j (type, priority, payload)
RETURNING seq, (SELECT CASE WHEN CAST(:channel AS text) IS NOT NULL THEN CAST(pg_notify(:channel, '') AS text) END) AS told;

-- name: push_one
-- The lock on the pool's row keeps the pool from being deleted before this commits. It does not conflict with other pushes, nor
-- with changes of the pool. Only a pool of jobs has a queue: in a benchmark's or a fleet's pool, no worker would claim the job.
INSERT INTO drumbeat.jobs (pool_id, type, payload, priority, created_at)
SELECT pool_id, CAST(:type AS text), CAST(:payload AS json), CAST(:priority AS integer), @now
  FROM drumbeat.pools WHERE pool_id = :pool_id AND kind = 'jobs' FOR KEY SHARE
RETURNING seq, CASE WHEN CAST(:channel AS text) IS NOT NULL THEN CAST(pg_notify(:channel, '') AS text) END AS told;

-- name: share_pool
-- Locks the pool's row like push_one, for a push of several statements.
SELECT pool_id FROM drumbeat.pools WHERE pool_id = :pool_id AND kind = 'jobs' FOR KEY SHARE;

-- name: find_home
-- Identifies the database and the server of a connection; no two servers start in the same microsecond.
SELECT current_database() AS database, CAST(extract(epoch FROM pg_postmaster_start_time()) AS text) AS started;

-- name: find_unlocked
-- A job, unless a transaction has locked it. The lock that this takes ends with the statement.
SELECT seq FROM drumbeat.jobs
 WHERE (given_id = CAST(:job_id AS text) OR (seq = CAST(:seq AS bigint) AND given_id IS NULL)) FOR UPDATE SKIP LOCKED;

-- name: push_jobs
-- A job whose id, or whose key in an unfinished job, exists is skipped: both are unique. Numbers are drawn in the order of the
-- list, rows are inserted in the order of their keys, so that two pushes of the same keys cannot deadlock.
WITH moment AS MATERIALIZED (SELECT @now AS now), listed AS MATERIALIZED (
SELECT j.*, due, now
  FROM moment, ROWS FROM (json_to_recordset(CAST(:jobs AS json)) AS (
           given_id text, type text, payload text, priority integer, max_attempts integer, max_crashes integer, backoff text,
           timeout_us bigint, unique_key text, group_key text, group_limit integer, rate_count integer, rate_us bigint,
           capability text, run_at bigint, delay bigint, status text, workflow_id text, waits_for integer, after_any integer,
           if_failed text, has_children integer)) WITH ORDINALITY AS j
       (given_id, type, payload, priority, max_attempts, max_crashes, backoff, timeout_us, unique_key, group_key, group_limit,
        rate_count, rate_us, capability, run_at, delay, status, workflow_id, waits_for, after_any, if_failed,
        has_children, place),
       LATERAL (SELECT GREATEST(j.run_at, moment.now + j.delay) AS due) d
 ORDER BY j.place
), numbered AS MATERIALIZED (
SELECT nextval((SELECT CAST(pg_get_serial_sequence('drumbeat.jobs', 'seq') AS regclass))) AS seq, listed.* FROM listed
)
INSERT INTO drumbeat.jobs (seq, pool_id, given_id, type, payload, delayed, priority, max_attempts, max_crashes, backoff, timeout_us,
                           unique_key, group_key, group_limit, rate_count, rate_us, capability, not_before, created_at, status,
                           workflow_id, waits_for, after_any, if_failed, has_children)
SELECT j.seq, :pool_id, j.given_id, j.type, CAST(j.payload AS json), CASE WHEN due > now THEN 1 ELSE 0 END, j.priority,
       j.max_attempts, j.max_crashes, CAST(j.backoff AS json), j.timeout_us, j.unique_key, j.group_key, j.group_limit, j.rate_count,
       j.rate_us, j.capability, CASE WHEN due > now THEN due END, now, j.status, j.workflow_id, j.waits_for, j.after_any,
       j.if_failed, j.has_children
  FROM numbered j
 ORDER BY j.unique_key, CASE WHEN j.unique_key IS NULL THEN j.given_id END, j.place
ON CONFLICT DO NOTHING
RETURNING seq, given_id, unique_key;

-- name: notify
SELECT pg_notify(:channel, '');

-- name: promote_jobs
UPDATE drumbeat.jobs SET delayed = 0
 WHERE seq IN (SELECT seq FROM drumbeat.jobs WHERE pool_id = :pool_id AND status = 'pending' AND delayed = 1 AND not_before <= @now
                LIMIT 1000 FOR UPDATE SKIP LOCKED);

-- name: claim_jobs
-- Rows are locked when they are chosen, and locked rows are skipped: no two claims get the same job, and no claim waits.
-- If one of the jobs is of a limited group, none is claimed: that needs claim_limited.
WITH gate AS MATERIALIZED (
    SELECT @now AS now, COALESCE(p.paused_until <= @now, TRUE) AND NOT EXISTS (
               SELECT 1 FROM drumbeat.workers w WHERE w.pool_id = :holder_pool AND w.worker_id = :worker_id
                  AND (w.status = 'draining' OR w.drain_deadline IS NOT NULL OR w.ended_at IS NOT NULL
                       OR :instance NOT IN ('', COALESCE(w.instance, '')))) AS may_claim
      FROM drumbeat.pools p WHERE p.pool_id = :pool_id
), picked AS MATERIALIZED (
    SELECT j.seq, j.group_key IS NOT NULL AND (j.group_limit IS NOT NULL OR j.rate_count IS NOT NULL) AS limited
      FROM drumbeat.jobs j
     WHERE j.pool_id = :pool_id AND j.priority >= CAST(:priority AS integer) AND j.seq >= CAST(:number AS bigint)
       AND j.status = 'pending' AND j.delayed = 0 AND (SELECT may_claim FROM gate) AND (j.alone = 0 OR CAST(:alone AS boolean))
       AND (j.capability IS NULL OR j.capability = ANY(CAST(:capabilities AS text[])))
       AND (CAST(:types AS text[]) = '{}' OR j.type = ANY(CAST(:types AS text[])))
       AND CASE WHEN j.type = ANY(CAST(:without AS text[])) THEN FALSE ELSE TRUE END
     ORDER BY j.priority DESC, j.seq LIMIT CAST(:limit AS integer) FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE drumbeat.jobs j
       SET status = 'claimed', attempts = attempts + CASE WHEN CAST(:ahead AS boolean) THEN 0 ELSE 1 END,
           begun_at = CASE WHEN CAST(:ahead AS boolean) THEN NULL ELSE gate.now END, in_company = 0,
           lease_owner = :worker_id, lease_pool = :holder_pool, lease_instance = :instance, lease_epoch = lease_epoch + 1,
           lease_until = gate.now + CAST(:lease AS bigint), lease_us = CAST(:lease AS bigint), lease_extended = 0,
           claimed_at = gate.now, progress = NULL, progress_note = NULL
      FROM gate
     WHERE j.seq = ANY(ARRAY(SELECT seq FROM picked)) AND NOT EXISTS (SELECT 1 FROM picked WHERE limited)
    RETURNING j.*
)
SELECT claimed.*, CASE WHEN ROW_NUMBER() OVER () = 1 THEN EXISTS (SELECT 1 FROM picked WHERE limited) END AS limited,
       CASE WHEN ROW_NUMBER() OVER () = 1 THEN EXISTS (
           SELECT 1 FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 1
              AND j.not_before <= gate.now) END AS due,
       CASE WHEN ROW_NUMBER() OVER () = 1 THEN EXISTS (
           SELECT 1 FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.alone = 1) END AS alone_waits
  FROM gate LEFT JOIN claimed ON TRUE;

-- name: settle_and_claim
-- Ends finished jobs and does what claim_jobs does, in one statement: one round trip, one commit. Also lets their children wait
-- for fewer jobs. A statement cannot see a link that was committed after it began. So a job is ended here only if as many links
-- are seen as its row counts, and that count is compared with the newest version of the row; if not, settle_locked ends it.
-- The links are read before they are grouped: grouped at once, they may be read in the order of all children in the table.
-- Tokens are compared in a subquery inside CASE, which becomes one hash table. With a join, the plan for any number of jobs would
-- compare each job with each token.
WITH gate AS MATERIALIZED (
    SELECT @now AS now, COALESCE(p.paused_until <= @now, TRUE) AND NOT EXISTS (
               SELECT 1 FROM drumbeat.workers w WHERE w.pool_id = :holder_pool AND w.worker_id = :worker_id
                  AND (w.status = 'draining' OR w.drain_deadline IS NOT NULL OR w.ended_at IS NOT NULL
                       OR :instance NOT IN ('', COALESCE(w.instance, '')))) AS may_claim
      FROM drumbeat.pools p WHERE p.pool_id = :pool_id
), done AS (
    UPDATE drumbeat.jobs j
       SET status = 'done', lease_until = NULL, finished_at = gate.now,
           result = CAST((CAST(:results AS text[]))[array_position(CAST(:seqs AS bigint[]), j.seq)] AS json)
      FROM gate
     WHERE j.seq = ANY(CAST(:seqs AS bigint[]))
       AND CASE WHEN (j.seq, j.lease_epoch) IN (SELECT * FROM unnest(CAST(:seqs AS bigint[]), CAST(:epochs AS bigint[])))
                     AND j.status = 'claimed' AND j.lease_owner = :worker_id AND j.lease_pool = :holder_pool
                     AND j.lease_instance = :instance AND (j.has_children = 0 OR j.has_children = (
                         SELECT COUNT(*) FROM drumbeat.job_links l WHERE l.parent_seq = j.seq)) THEN TRUE ELSE FALSE END
    RETURNING j.seq, j.pool_id, j.has_children
), counted AS (
    INSERT INTO drumbeat.job_counts (pool_id, status, part, jobs)
    SELECT done.pool_id, 'done', pg_backend_pid(), COUNT(*) FROM done GROUP BY done.pool_id
    ON CONFLICT (pool_id, status, part) DO UPDATE SET jobs = job_counts.jobs + excluded.jobs
), links AS MATERIALIZED (
    SELECT l.child_seq FROM drumbeat.job_links l
     WHERE l.parent_seq = ANY(ARRAY(SELECT seq FROM done WHERE has_children > 0))
), freed AS MATERIALIZED (
    SELECT child_seq, COUNT(*) AS ended FROM links GROUP BY child_seq
), waiting AS MATERIALIZED (
    SELECT c.seq FROM drumbeat.jobs c
     WHERE c.seq = ANY(ARRAY(SELECT child_seq FROM freed)) AND CASE WHEN c.status = 'waiting' THEN TRUE ELSE FALSE END
     ORDER BY c.seq FOR UPDATE
), passed AS (
    UPDATE drumbeat.jobs c
       SET waits_for = GREATEST(c.waits_for - f.ended, 0), status = CASE WHEN c.waits_for > f.ended THEN c.status ELSE 'pending' END,
           delayed = CASE WHEN c.waits_for > f.ended THEN c.delayed WHEN c.not_before > gate.now THEN 1 ELSE 0 END,
           not_before = CASE WHEN c.waits_for > f.ended OR c.not_before > gate.now THEN c.not_before ELSE gate.now END
      FROM gate, freed f
     WHERE c.seq = ANY(ARRAY(SELECT seq FROM waiting)) AND c.seq = f.child_seq
       AND CASE WHEN c.status = 'waiting' THEN TRUE ELSE FALSE END
    RETURNING c.pool_id, c.status
), picked AS MATERIALIZED (
    SELECT j.seq, j.group_key IS NOT NULL AND (j.group_limit IS NOT NULL OR j.rate_count IS NOT NULL) AS limited
      FROM drumbeat.jobs j
     WHERE j.pool_id = :pool_id AND j.priority >= CAST(:priority AS integer) AND j.seq >= CAST(:number AS bigint)
       AND j.status = 'pending' AND j.delayed = 0 AND (SELECT may_claim FROM gate) AND (j.alone = 0 OR CAST(:alone AS boolean))
       AND (j.capability IS NULL OR j.capability = ANY(CAST(:capabilities AS text[])))
       AND (CAST(:types AS text[]) = '{}' OR j.type = ANY(CAST(:types AS text[])))
       AND CASE WHEN j.type = ANY(CAST(:without AS text[])) THEN FALSE ELSE TRUE END
     ORDER BY j.priority DESC, j.seq LIMIT CAST(:limit AS integer) FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE drumbeat.jobs j
       SET status = 'claimed', attempts = attempts + CASE WHEN CAST(:ahead AS boolean) THEN 0 ELSE 1 END,
           begun_at = CASE WHEN CAST(:ahead AS boolean) THEN NULL ELSE gate.now END, in_company = 0,
           lease_owner = :worker_id, lease_pool = :holder_pool, lease_instance = :instance, lease_epoch = lease_epoch + 1,
           lease_until = gate.now + CAST(:lease AS bigint), lease_us = CAST(:lease AS bigint), lease_extended = 0,
           claimed_at = gate.now, progress = NULL, progress_note = NULL
      FROM gate
     WHERE j.seq = ANY(ARRAY(SELECT seq FROM picked)) AND NOT EXISTS (SELECT 1 FROM picked WHERE limited)
    RETURNING j.*
)
SELECT claimed.*, CASE WHEN ROW_NUMBER() OVER () = 1 THEN EXISTS (SELECT 1 FROM picked WHERE limited) END AS limited,
       CASE WHEN ROW_NUMBER() OVER () = 1 THEN EXISTS (
           SELECT 1 FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 1
              AND j.not_before <= gate.now) END AS due,
       CASE WHEN ROW_NUMBER() OVER () = 1 THEN EXISTS (
           SELECT 1 FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.alone = 1) END AS alone_waits,
       CASE WHEN ROW_NUMBER() OVER () = 1 THEN ARRAY(SELECT seq FROM done) END AS settled,
       CASE WHEN ROW_NUMBER() OVER () = 1 THEN ARRAY(SELECT DISTINCT pool_id FROM passed WHERE status = 'pending') END AS freed_pools
  FROM gate LEFT JOIN claimed ON TRUE;

-- name: settle_done
-- Ends jobs in a transaction of the caller, but not a job that others wait for: settle_locked ends that. Finds jobs by their
-- numbers. CASE keeps the planner from using jobs_claimed, which has many dead entries of a busy worker.
WITH done AS (
    UPDATE drumbeat.jobs j
       SET status = 'done', result = CAST(v.result AS json), lease_until = NULL, finished_at = @now
      FROM unnest(CAST(:seqs AS bigint[]), CAST(:epochs AS bigint[]), CAST(:results AS text[])) AS v (seq, epoch, result)
     WHERE j.seq = ANY(CAST(:seqs AS bigint[])) AND j.seq = v.seq AND j.lease_epoch = v.epoch
       AND CASE WHEN j.status = 'claimed' AND j.has_children = 0 AND j.lease_owner = :worker_id AND j.lease_pool = :holder_pool
                     AND j.lease_instance = :instance THEN TRUE ELSE FALSE END
    RETURNING j.seq, j.pool_id
), counted AS (
    INSERT INTO drumbeat.job_counts (pool_id, status, part, jobs)
    SELECT done.pool_id, 'done', pg_backend_pid(), COUNT(*) FROM done GROUP BY done.pool_id
    ON CONFLICT (pool_id, status, part) DO UPDATE SET jobs = job_counts.jobs + excluded.jobs
)
SELECT seq FROM done;

-- name: lock_groups
-- Claims of limited groups of one pool run one after the other, so that each sees what the one before it claimed.
SELECT pg_advisory_xact_lock(hashtextextended('drumbeat groups ' || CAST(:pool_id AS text), 0));

-- name: claim_limited
-- Jobs in claim order, of each group no more than it has room for. Run it under lock_groups.
WITH running AS MATERIALIZED (
    SELECT group_key, COUNT(*) AS jobs FROM drumbeat.jobs
     WHERE pool_id = :pool_id AND group_key IS NOT NULL AND status = 'claimed' GROUP BY group_key
), open AS MATERIALIZED (
    SELECT j.seq, j.priority, j.group_key, j.group_limit, j.rate_count, COALESCE(running.jobs, 0) AS running, recent.claims AS recent
      FROM drumbeat.jobs j LEFT JOIN running ON running.group_key = j.group_key,
           LATERAL (SELECT COUNT(*) AS claims FROM drumbeat.group_claims g
                     WHERE j.rate_count IS NOT NULL AND g.pool_id = j.pool_id AND g.group_key = j.group_key
                       AND g.at > CAST(:now AS bigint) - j.rate_us) recent
     WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 0 AND (j.alone = 0 OR CAST(:alone AS boolean))
       AND (j.capability IS NULL OR j.capability = ANY(CAST(:capabilities AS text[])))
       AND (CAST(:types AS text[]) = '{}' OR j.type = ANY(CAST(:types AS text[])))
       AND CASE WHEN j.type = ANY(CAST(:without AS text[])) THEN FALSE ELSE TRUE END
       AND (j.group_limit IS NULL OR j.group_key IS NULL OR COALESCE(running.jobs, 0) < j.group_limit)
       AND (j.rate_count IS NULL OR j.group_key IS NULL OR recent.claims < j.rate_count)
     ORDER BY j.priority DESC, j.seq LIMIT CAST(:limit AS integer) * 10 + 100
), placed AS MATERIALIZED (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY group_key ORDER BY priority DESC, seq) AS place FROM open
), picked AS MATERIALIZED (
    SELECT j.seq FROM drumbeat.jobs j
     WHERE j.seq = ANY(ARRAY(
               SELECT seq FROM placed
                WHERE group_key IS NULL OR ((group_limit IS NULL OR running + place <= group_limit)
                                            AND (rate_count IS NULL OR recent + place <= rate_count))
                ORDER BY priority DESC, seq LIMIT CAST(:limit AS integer)))
       AND j.status = 'pending' AND j.delayed = 0
     FOR UPDATE SKIP LOCKED
)
UPDATE drumbeat.jobs j
   SET status = 'claimed', attempts = attempts + CASE WHEN CAST(:ahead AS boolean) THEN 0 ELSE 1 END,
       begun_at = CASE WHEN CAST(:ahead AS boolean) THEN NULL ELSE CAST(:now AS bigint) END, in_company = 0,
       lease_owner = :worker_id, lease_pool = :holder_pool, lease_instance = :instance, lease_epoch = lease_epoch + 1,
       lease_until = CAST(:now AS bigint) + CAST(:lease AS bigint), lease_us = CAST(:lease AS bigint), lease_extended = 0,
       claimed_at = CAST(:now AS bigint), progress = NULL, progress_note = NULL
 WHERE j.seq = ANY(ARRAY(SELECT seq FROM picked))
RETURNING j.*;

-- name: list_limited
-- Limited groups with ready jobs. Skips from one group to the next by index, however many jobs a group has. For each group:
-- how many jobs run, how many were claimed within the period of its rate, and its first jobs.
WITH RECURSIVE groups (group_key) AS (
    SELECT MIN(j.group_key) FROM drumbeat.jobs j
     WHERE j.pool_id = :pool_id AND j.group_key IS NOT NULL AND j.status = 'pending' AND j.delayed = 0 AND (CAST(:types AS TEXT) = '[]' OR j.type IN (SELECT value FROM @texts(:types)))
       AND (CAST(:without AS TEXT) = '[]' OR j.type NOT IN (SELECT value FROM @texts(:without)))
       AND (j.group_limit IS NOT NULL OR j.rate_count IS NOT NULL)
    UNION ALL
    SELECT (SELECT MIN(j.group_key) FROM drumbeat.jobs j
             WHERE j.pool_id = :pool_id AND j.group_key IS NOT NULL AND j.status = 'pending' AND j.delayed = 0 AND (CAST(:types AS TEXT) = '[]' OR j.type IN (SELECT value FROM @texts(:types)))
               AND (CAST(:without AS TEXT) = '[]' OR j.type NOT IN (SELECT value FROM @texts(:without)))
               AND (j.group_limit IS NOT NULL OR j.rate_count IS NOT NULL) AND j.group_key > groups.group_key)
      FROM groups WHERE groups.group_key IS NOT NULL
)
SELECT (SELECT COUNT(*) FROM drumbeat.jobs j
         WHERE j.pool_id = :pool_id AND j.group_key IS NOT NULL AND j.group_key = groups.group_key AND j.status = 'claimed') AS running,
       (SELECT COUNT(*) FROM drumbeat.group_claims c
         WHERE c.pool_id = :pool_id AND c.group_key = groups.group_key AND c.at > @now - (
               SELECT MAX(first.rate_us)
                 FROM (SELECT j.rate_us FROM drumbeat.jobs j
                        WHERE j.pool_id = :pool_id AND j.group_key IS NOT NULL AND j.status = 'pending' AND j.delayed = 0 AND (CAST(:types AS TEXT) = '[]' OR j.type IN (SELECT value FROM @texts(:types)))
                          AND (CAST(:without AS TEXT) = '[]' OR j.type NOT IN (SELECT value FROM @texts(:without)))
                          AND (j.group_limit IS NOT NULL OR j.rate_count IS NOT NULL) AND j.group_key = groups.group_key
                        LIMIT 1) first)) AS recent,
       (SELECT CAST(json_agg(json_build_array(first.capability, first.group_limit, first.rate_count)) AS text)
          FROM (SELECT j.capability, j.group_limit, j.rate_count FROM drumbeat.jobs j
                 WHERE j.pool_id = :pool_id AND j.group_key IS NOT NULL AND j.status = 'pending' AND j.delayed = 0 AND (CAST(:types AS TEXT) = '[]' OR j.type IN (SELECT value FROM @texts(:types)))
                   AND (CAST(:without AS TEXT) = '[]' OR j.type NOT IN (SELECT value FROM @texts(:without)))
                   AND (j.group_limit IS NOT NULL OR j.rate_count IS NOT NULL) AND j.group_key = groups.group_key
                 LIMIT CAST(:most AS integer)) first) AS firsts
  FROM groups WHERE groups.group_key IS NOT NULL LIMIT CAST(:most AS integer) * 10 + 100;

-- name: note_claims
INSERT INTO drumbeat.group_claims (pool_id, group_key, seq, n, at, until)
VALUES (:pool_id, :group_key, :seq, :n, :at, :until)
ON CONFLICT (pool_id, group_key, seq, n) DO NOTHING;

-- name: lock_held
-- Here and below jobs are found by a list of numbers: a join planned while the table is empty may scan the whole table later.
-- All columns of a job in the order of the table. JSON is read as text: this also runs on connections of callers, whose driver
-- may parse JSON.
SELECT j.seq, j.pool_id, j.given_id, j.type, CAST(j.payload AS text) AS payload, j.status, j.delayed, j.priority, j.attempts,
       j.failures, j.crashes, j.max_attempts, j.max_crashes, CAST(j.backoff AS text) AS backoff, j.timeout_us, j.unique_key,
       j.group_key, j.group_limit, j.rate_count, j.rate_us, j.capability, j.lease_owner, j.lease_epoch, j.lease_until,
       j.not_before, j.cancel_requested, j.progress, j.progress_note, CAST(j.result AS text) AS result, j.last_error,
       j.created_at, j.claimed_at, j.finished_at, j.lease_pool, j.lease_instance, j.begun_at, j.suspicions, j.alone,
       j.in_company, j.lease_us, j.lease_extended, j.workflow_id, j.waits_for, j.after_any, j.if_failed, j.has_children,
       j.has_steps, j.events_sent
  FROM json_to_recordset(CAST(:tokens AS json)) AS v (seq bigint, epoch bigint) JOIN drumbeat.jobs j ON j.seq = v.seq
 WHERE j.seq = ANY(ARRAY(SELECT n.seq FROM json_to_recordset(CAST(:tokens AS json)) AS n (seq bigint))) AND j.status = 'claimed' AND j.lease_owner = :worker_id AND j.lease_pool = :holder_pool AND j.lease_instance = :instance
   AND j.lease_epoch = v.epoch ORDER BY j.seq FOR UPDATE OF j;

-- name: renew_held
-- No indexed column changes, so no index entry is written. Skips a job that a transaction has locked, such as one that pushes a
-- job after it: the leases of the worker's other jobs would run out meanwhile.
WITH free AS MATERIALIZED (
    SELECT j.seq FROM json_to_recordset(CAST(:tokens AS json)) AS v (seq bigint, epoch bigint) JOIN drumbeat.jobs j ON j.seq = v.seq
     WHERE j.seq = ANY(ARRAY(SELECT n.seq FROM json_to_recordset(CAST(:tokens AS json)) AS n (seq bigint)))
       AND j.status = 'claimed' AND j.lease_owner = :worker_id AND j.lease_pool = :holder_pool
       AND j.lease_instance = :instance AND j.lease_epoch = v.epoch
       FOR UPDATE OF j SKIP LOCKED
)
UPDATE drumbeat.jobs
   SET lease_until = @now + CAST(:lease AS bigint), lease_us = CAST(:lease AS bigint), lease_extended = 0,
       in_company = 0
 WHERE seq = ANY(ARRAY(SELECT seq FROM free))
RETURNING seq, cancel_requested;

-- name: list_held
-- Reads without waiting for a transaction that has locked a job.
SELECT j.seq FROM json_to_recordset(CAST(:tokens AS json)) AS v (seq bigint, epoch bigint) JOIN drumbeat.jobs j ON j.seq = v.seq
 WHERE j.seq = ANY(ARRAY(SELECT n.seq FROM json_to_recordset(CAST(:tokens AS json)) AS n (seq bigint)))
   AND j.status = 'claimed' AND j.lease_owner = :worker_id AND j.lease_pool = :holder_pool
   AND j.lease_instance = :instance AND j.lease_epoch = v.epoch;

-- name: lock_jobs_of_worker
-- A second process waits here, and then finds the jobs no longer claimed.
SELECT * FROM drumbeat.jobs
 WHERE lease_owner = :worker_id AND lease_pool = :holder_pool AND lease_instance = :instance AND status = 'claimed'
 ORDER BY seq FOR UPDATE;

-- name: begin_held
-- An attempt is counted once, also if this is repeated.
UPDATE drumbeat.jobs j
   SET attempts = attempts + CASE WHEN begun_at IS NULL THEN 1 ELSE 0 END, begun_at = COALESCE(begun_at, @now)
  FROM json_to_recordset(CAST(:tokens AS json)) AS v (seq bigint, epoch bigint)
 WHERE j.seq = ANY(ARRAY(SELECT n.seq FROM json_to_recordset(CAST(:tokens AS json)) AS n (seq bigint))) AND j.seq = v.seq
   AND j.status = 'claimed' AND j.lease_owner = :worker_id AND j.lease_pool = :holder_pool
   AND j.lease_instance = :instance AND j.lease_epoch = v.epoch
RETURNING j.seq;

-- name: extend_leases
-- Extends leases that expired for the first time: the store may have been unreachable. Skips a lease that is being renewed.
UPDATE drumbeat.jobs SET lease_until = @now + lease_us, lease_extended = 1
 WHERE seq IN (SELECT seq FROM drumbeat.jobs WHERE status = 'claimed' AND lease_until <= @now AND lease_extended = 0
                LIMIT CAST(:limit AS integer) FOR UPDATE SKIP LOCKED);

-- name: note_jobs_begun
-- Stores how many jobs had begun on a lost worker, so that their charges do not depend on the order in which leases expire.
-- Skips a job that a transaction of its handler is just completing, so as not to wait for that transaction.
UPDATE drumbeat.jobs SET in_company = CAST(:jobs AS INTEGER)
 WHERE seq = ANY(ARRAY(SELECT seq FROM drumbeat.jobs
                        WHERE lease_owner = :worker_id AND lease_pool = :holder_pool AND lease_instance = :instance
                          AND status = 'claimed' AND begun_at IS NOT NULL FOR UPDATE SKIP LOCKED));

-- name: lock_expired
SELECT * FROM drumbeat.jobs WHERE status = 'claimed' AND lease_until <= @now AND lease_extended = 1
 ORDER BY lease_owner LIMIT CAST(:limit AS integer) FOR UPDATE SKIP LOCKED;

-- name: save_jobs
UPDATE drumbeat.jobs j
   SET status = v.status, delayed = v.delayed, attempts = v.attempts, failures = v.failures, crashes = v.crashes,
       suspicions = v.suspicions, alone = v.alone, begun_at = v.begun_at, lease_extended = 0, result = CAST(v.result AS json), lease_owner = v.lease_owner, lease_pool = v.lease_pool, lease_instance = v.lease_instance,
       lease_until = NULL, not_before = v.not_before,
       last_error = v.last_error, finished_at = v.finished_at
  FROM json_to_recordset(CAST(:rows AS json)) AS v (
       seq bigint, status text, delayed integer, attempts integer, failures integer, crashes integer,
       suspicions integer, alone integer, begun_at bigint, result text, lease_owner text,
       lease_pool text, lease_instance text, not_before bigint, last_error text, finished_at bigint)
 WHERE j.seq = ANY(ARRAY(SELECT n.seq FROM json_to_recordset(CAST(:rows AS json)) AS n (seq bigint))) AND j.seq = v.seq;

-- name: add_attempts
INSERT INTO drumbeat.job_attempts (seq, n, worker_id, worker_pool, started_at, ended_at, outcome, error)
SELECT * FROM json_to_recordset(CAST(:rows AS json)) AS v (
       seq bigint, n bigint, worker_id text, worker_pool text, started_at bigint, ended_at bigint, outcome text, error text);

-- name: free_space
-- Autovacuum reuses the space.
SELECT 0 AS free, 1 AS pages;

-- name: give_back
SELECT 1;

-- name: note_ended
-- Adds to the number of ended jobs of a pool in a state (negative: they were requeued or pruned). Each connection has its own
-- row, so that no connection waits for another; the count is the sum of the rows.
INSERT INTO drumbeat.job_counts (pool_id, status, part, jobs) VALUES (:pool_id, :status, pg_backend_pid(), CAST(:jobs AS bigint))
ON CONFLICT (pool_id, status, part) DO UPDATE SET jobs = job_counts.jobs + excluded.jobs;

-- name: lock_counts
-- Locked until commit: a transaction that has counted a job has committed, and any other counts it after the recount.
LOCK TABLE drumbeat.job_counts IN EXCLUSIVE MODE;

-- name: fold_counts
-- Merges the rows of connections, most of which are closed by now, into one. Skips rows that are being written; so a merge
-- waits only for another merge, and there is no deadlock.
WITH others AS MATERIALIZED (
    SELECT c.status, c.part FROM drumbeat.job_counts c
     WHERE c.pool_id = :pool_id AND c.part <> 0 FOR UPDATE SKIP LOCKED
), taken AS (
    DELETE FROM drumbeat.job_counts c USING others
     WHERE c.pool_id = :pool_id AND c.status = others.status AND c.part = others.part
    RETURNING c.status, c.jobs
)
INSERT INTO drumbeat.job_counts (pool_id, status, part, jobs)
SELECT :pool_id, status, 0, SUM(jobs) FROM taken GROUP BY status
ON CONFLICT (pool_id, status, part) DO UPDATE SET jobs = job_counts.jobs + excluded.jobs;

-- name: list_jobs
-- Each state is read by its own index, so that a few jobs are found fast among many finished ones; other states are not read.
-- The index of ready jobs is by priority: it is read from one priority to the next, of each the first by number. Ended jobs are
-- compared by state and number together: by number alone the planner might scan all jobs.
WITH RECURSIVE priorities (priority) AS (
    SELECT MAX(j.priority) FROM drumbeat.jobs j
     WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 0 AND CAST(:statuses AS jsonb) ? 'pending'
    UNION ALL
    SELECT (SELECT MAX(j.priority) FROM drumbeat.jobs j
             WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 0 AND j.priority < p.priority)
      FROM priorities p WHERE p.priority IS NOT NULL
), found AS (
    SELECT j.seq FROM priorities p, LATERAL (
        SELECT j.seq FROM drumbeat.jobs j
         WHERE j.pool_id = :pool_id AND j.priority = p.priority AND j.seq > CAST(:after AS BIGINT) AND j.status = 'pending'
           AND j.delayed = 0 AND (CAST(:type AS TEXT) IS NULL OR j.type = :type) AND (CAST(:group AS TEXT) IS NULL OR j.group_key = :group)
           AND (CAST(:worker_id AS TEXT) IS NULL OR j.lease_owner = :worker_id)
           AND (CAST(:holder_pool AS TEXT) IS NULL OR COALESCE(j.lease_pool, j.pool_id) = :holder_pool)
           AND (CAST(:instance AS TEXT) IS NULL OR COALESCE(j.lease_instance, '') = :instance)
         ORDER BY j.seq LIMIT CAST(:limit AS INTEGER)) j
    UNION ALL
    (SELECT j.seq FROM drumbeat.jobs j
      WHERE j.pool_id = :pool_id AND j.status = 'pending' AND j.delayed = 1 AND j.seq > CAST(:after AS BIGINT)
        AND CAST(:statuses AS jsonb) ? 'pending' AND (CAST(:type AS TEXT) IS NULL OR j.type = :type) AND (CAST(:group AS TEXT) IS NULL OR j.group_key = :group)
        AND (CAST(:worker_id AS TEXT) IS NULL OR j.lease_owner = :worker_id)
        AND (CAST(:holder_pool AS TEXT) IS NULL OR COALESCE(j.lease_pool, j.pool_id) = :holder_pool)
        AND (CAST(:instance AS TEXT) IS NULL OR COALESCE(j.lease_instance, '') = :instance)
      ORDER BY j.seq + 0 LIMIT CAST(:limit AS INTEGER))
    UNION ALL
    (SELECT j.seq FROM drumbeat.jobs j
      WHERE j.pool_id = :pool_id AND j.status = 'claimed' AND j.lease_owner IS NOT NULL AND j.seq > CAST(:after AS BIGINT)
        AND CAST(:statuses AS jsonb) ? 'claimed' AND (CAST(:type AS TEXT) IS NULL OR j.type = :type) AND (CAST(:group AS TEXT) IS NULL OR j.group_key = :group)
        AND (CAST(:worker_id AS TEXT) IS NULL OR j.lease_owner = :worker_id)
        AND (CAST(:holder_pool AS TEXT) IS NULL OR COALESCE(j.lease_pool, j.pool_id) = :holder_pool)
        AND (CAST(:instance AS TEXT) IS NULL OR COALESCE(j.lease_instance, '') = :instance)
      ORDER BY j.seq + 0 LIMIT CAST(:limit AS INTEGER))
    UNION ALL
    (SELECT j.seq FROM drumbeat.jobs j
      WHERE j.pool_id = :pool_id AND j.status = 'waiting' AND j.seq > CAST(:after AS BIGINT)
        AND CAST(:statuses AS jsonb) ? 'waiting' AND (CAST(:type AS TEXT) IS NULL OR j.type = :type) AND (CAST(:group AS TEXT) IS NULL OR j.group_key = :group)
        AND (CAST(:worker_id AS TEXT) IS NULL OR j.lease_owner = :worker_id)
        AND (CAST(:holder_pool AS TEXT) IS NULL OR COALESCE(j.lease_pool, j.pool_id) = :holder_pool)
        AND (CAST(:instance AS TEXT) IS NULL OR COALESCE(j.lease_instance, '') = :instance)
      ORDER BY j.seq LIMIT CAST(:limit AS INTEGER))
    UNION ALL
    SELECT j.seq FROM jsonb_array_elements_text(CAST(:statuses AS jsonb)) s (status), LATERAL (
        SELECT j.seq FROM drumbeat.jobs j
         WHERE j.pool_id = :pool_id AND (j.status, j.seq) > (s.status, CAST(:after AS BIGINT)) AND j.status <= s.status
           AND j.status IN ('done', 'poisoned', 'cancelled') AND (CAST(:type AS TEXT) IS NULL OR j.type = :type) AND (CAST(:group AS TEXT) IS NULL OR j.group_key = :group)
           AND (CAST(:worker_id AS TEXT) IS NULL OR j.lease_owner = :worker_id)
           AND (CAST(:holder_pool AS TEXT) IS NULL OR COALESCE(j.lease_pool, j.pool_id) = :holder_pool)
           AND (CAST(:instance AS TEXT) IS NULL OR COALESCE(j.lease_instance, '') = :instance)
         ORDER BY j.status, j.seq LIMIT CAST(:limit AS INTEGER)) j
)
SELECT j.* FROM drumbeat.jobs j
 WHERE j.seq = ANY(ARRAY(SELECT seq FROM found ORDER BY seq LIMIT CAST(:limit AS INTEGER))) ORDER BY j.seq;

-- name: list_unreaped_workers
SELECT * FROM drumbeat.workers
 WHERE pool_id = :pool_id AND worker_id = ANY(ARRAY(
           SELECT w.worker_id FROM drumbeat.workers w WHERE w.pool_id = :pool_id AND w.ended_at IS NULL
           UNION ALL
           (SELECT w.worker_id FROM drumbeat.workers w
             WHERE w.pool_id = :pool_id AND w.ended_at IS NOT NULL AND w.reaped_at IS NULL
             ORDER BY w.ended_at LIMIT CAST(:limit AS INTEGER))
           UNION ALL
           SELECT jsonb_array_elements_text(CAST(:named AS jsonb))))
 ORDER BY slot, created_at, worker_id;

-- name: prune_workers
-- Deletes some of the workers that ended first. A fleet's workers stay while they may still cost money, or count for the
-- current month; a worker that was reaped before the month also ended before it.
WITH home AS (
    SELECT CASE WHEN p.kind = 'fleet' OR (p.kind = 'jobs' AND CAST(p.policy AS jsonb) ? 'policy')
                THEN CAST(:billed_since AS BIGINT) END AS billed FROM drumbeat.pools p WHERE p.pool_id = :pool_id
)
DELETE FROM drumbeat.workers WHERE pool_id = :pool_id AND worker_id = ANY(ARRAY(
    SELECT w.worker_id FROM drumbeat.workers w
     WHERE w.pool_id = :pool_id AND w.ended_at IS NOT NULL
       AND w.ended_at < LEAST(@now - CAST(:age AS BIGINT), COALESCE((SELECT billed FROM home), 9000000000000000000))
       AND ((SELECT billed FROM home) IS NULL OR w.reaped_at < (SELECT billed FROM home))
     ORDER BY w.ended_at LIMIT CAST(:limit AS INTEGER)))
RETURNING 1;

-- name: find_numbers
-- Here and below a list of numbers or ids is an array, as in lock_held: a join may scan the whole table.
SELECT seq, given_id FROM drumbeat.jobs WHERE given_id = ANY(ARRAY(SELECT value FROM @texts(:names))) AND given_id IS NOT NULL;

-- name: list_parent_states
WITH linked AS MATERIALIZED (
    SELECT child_seq, parent_seq FROM drumbeat.job_links WHERE @listed(child_seq, :numbers)
)
SELECT l.child_seq, p.seq, p.given_id, p.status FROM linked l JOIN drumbeat.jobs p ON p.seq = l.parent_seq
 WHERE p.seq = ANY(ARRAY(SELECT parent_seq FROM linked)) ORDER BY p.seq;

-- name: find_child_elsewhere
SELECT c.* FROM drumbeat.jobs c
 WHERE c.seq = ANY(ARRAY(SELECT child_seq FROM drumbeat.job_links WHERE @of_pool(parent_seq, j.has_children > 0)))
   AND c.pool_id <> :pool_id AND c.status IN ('waiting', 'pending', 'claimed') LIMIT 1;

-- name: find_unfinished_child
SELECT c.seq, c.given_id, c.pool_id FROM drumbeat.jobs c
 WHERE c.seq = ANY(ARRAY(SELECT child_seq FROM drumbeat.job_links WHERE @listed(parent_seq, :numbers)))
   AND c.status IN ('waiting', 'pending', 'claimed') LIMIT 1;

-- name: list_needed_parents
WITH linked AS MATERIALIZED (
    SELECT child_seq, parent_seq FROM drumbeat.job_links WHERE @listed(parent_seq, :numbers)
)
SELECT DISTINCT l.parent_seq FROM linked l JOIN drumbeat.jobs c ON c.seq = l.child_seq
 WHERE c.seq = ANY(ARRAY(SELECT child_seq FROM linked)) AND c.status IN ('waiting', 'pending', 'claimed', 'poisoned');

-- name: reopen_children
-- A failed parent had counted as done for these jobs. It was requeued, so they wait for it again.
UPDATE drumbeat.jobs SET waits_for = waits_for + 1
 WHERE status = 'waiting' AND if_failed = 'run' AND after_any = 0
   AND seq = ANY(ARRAY(SELECT l.child_seq FROM drumbeat.job_links l WHERE l.parent_seq = CAST(:parent_seq AS bigint)));

-- name: list_parents
SELECT * FROM drumbeat.jobs
 WHERE seq = ANY(ARRAY(SELECT l.parent_seq FROM drumbeat.job_links l WHERE l.child_seq = CAST(:seq AS bigint)
                        ORDER BY l.parent_seq LIMIT CAST(:limit AS integer)))
 ORDER BY seq;

-- name: list_children
SELECT * FROM drumbeat.jobs
 WHERE seq = ANY(ARRAY(SELECT l.child_seq FROM drumbeat.job_links l WHERE l.parent_seq = CAST(:seq AS bigint)
                        ORDER BY l.child_seq LIMIT CAST(:limit AS integer)))
 ORDER BY seq;

-- name: add_links
INSERT INTO drumbeat.job_links (child_seq, parent_seq)
SELECT CAST(e ->> 0 AS bigint), CAST(e ->> 1 AS bigint) FROM json_array_elements(CAST(:links AS json)) AS listed (e);

-- name: record_steps
-- The jobs are locked until commit, in one order: a job that is taken back is read by its next worker with all these steps, or
-- with none of them.
WITH given AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST(:steps AS json)) AS v (
        seq bigint, epoch bigint, n integer, name text, kind text, result text, error text, started_at bigint,
        finished_at bigint, until bigint)
), held AS MATERIALIZED (
    SELECT j.seq, j.lease_epoch, j.has_steps FROM drumbeat.jobs j
     WHERE j.seq = ANY(ARRAY(SELECT seq FROM given))
       AND EXISTS (SELECT 1 FROM given v WHERE v.seq = j.seq AND v.epoch = j.lease_epoch)
       AND CASE WHEN j.status = 'claimed' AND j.lease_owner = :worker_id AND j.lease_pool = :holder_pool
                     AND j.lease_instance = :instance THEN TRUE ELSE FALSE END
     ORDER BY j.seq FOR UPDATE
), marked AS (
    UPDATE drumbeat.jobs j SET has_steps = 1 FROM held WHERE j.seq = held.seq AND held.has_steps = 0
), added AS (
    INSERT INTO drumbeat.job_steps (seq, n, name, kind, result, error, started_at, finished_at, until, epoch)
    SELECT v.seq, v.n, v.name, v.kind, CAST(v.result AS json), v.error, v.started_at, v.finished_at, v.until, v.epoch
      FROM given v JOIN held ON held.seq = v.seq AND held.lease_epoch = v.epoch
    ON CONFLICT (seq, n) DO UPDATE
       SET name = excluded.name, kind = excluded.kind, result = excluded.result, error = excluded.error,
           started_at = excluded.started_at, finished_at = excluded.finished_at, until = excluded.until, epoch = excluded.epoch
)
SELECT seq, lease_epoch FROM held;
