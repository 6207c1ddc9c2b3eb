-- All tables at once, as they are after migration 9: the indexes of a hybrid table are given when it is created.
-- Times are whole microseconds since 1970, UTC, by the database's clock. JSON is kept as text.

CREATE @kind TABLE IF NOT EXISTS pools (
    pool_id      VARCHAR NOT NULL,
    kind         VARCHAR NOT NULL,
    thresholds   VARCHAR NOT NULL,
    policy       VARCHAR NOT NULL,
    paused_until BIGINT,
    next_event   BIGINT NOT NULL DEFAULT 1,
    next_beat    BIGINT NOT NULL DEFAULT 1,
    next_log     BIGINT NOT NULL DEFAULT 1,
    created_at   BIGINT NOT NULL,
    last_worker  BIGINT NOT NULL DEFAULT -1,
    PRIMARY KEY (pool_id)
);

CREATE @kind TABLE IF NOT EXISTS workers (
    pool_id         VARCHAR NOT NULL,
    worker_id       VARCHAR NOT NULL,
    slot            INTEGER NOT NULL,
    status          VARCHAR NOT NULL,
    instance        VARCHAR,
    host            VARCHAR,
    pid             BIGINT,
    provider        VARCHAR,
    provider_ref    VARCHAR,
    capabilities    VARCHAR NOT NULL,
    phase           VARCHAR,
    target          INTEGER NOT NULL DEFAULT 0,
    target_seq      BIGINT NOT NULL DEFAULT 0,
    applied_target  INTEGER NOT NULL DEFAULT 0,
    active          INTEGER NOT NULL DEFAULT 0,
    operations      BIGINT NOT NULL DEFAULT 0,
    errors          BIGINT NOT NULL DEFAULT 0,
    cpu_percent     FLOAT,
    memory_percent  FLOAT,
    gpu             VARCHAR,
    heartbeat_at    BIGINT,
    heartbeat_count BIGINT NOT NULL DEFAULT 0,
    created_at      BIGINT NOT NULL,
    started_at      BIGINT,
    ready_at        BIGINT,
    drain_deadline  BIGINT,
    ended_at        BIGINT,
    reaped_at       BIGINT,
    exit_code       INTEGER,
    error           VARCHAR,
    meta            VARCHAR NOT NULL,
    PRIMARY KEY (pool_id, worker_id) @index(workers_live, pool_id, ended_at)
);

CREATE @kind TABLE IF NOT EXISTS events (
    pool_id     VARCHAR NOT NULL,
    sequence_id BIGINT NOT NULL,
    type        VARCHAR NOT NULL,
    scope       VARCHAR NOT NULL,
    worker_id   VARCHAR,
    slot        INTEGER,
    payload     VARCHAR NOT NULL,
    created_at  BIGINT NOT NULL,
    PRIMARY KEY (pool_id, sequence_id)
);

CREATE @kind TABLE IF NOT EXISTS leases (
    name       VARCHAR NOT NULL,
    owner      VARCHAR NOT NULL,
    epoch      BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    released   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (name)
);

CREATE @kind TABLE IF NOT EXISTS beats (
    pool_id     VARCHAR NOT NULL,
    n           BIGINT NOT NULL,
    owner       VARCHAR NOT NULL,
    epoch       BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    view        VARCHAR,
    actions     VARCHAR NOT NULL,
    why_not     VARCHAR,
    error       VARCHAR,
    duration_us BIGINT NOT NULL,
    summary     VARCHAR NOT NULL,
    PRIMARY KEY (pool_id, n)
);

CREATE @kind TABLE IF NOT EXISTS samples (
    pool_id        VARCHAR NOT NULL,
    worker_id      VARCHAR NOT NULL,
    n              BIGINT NOT NULL,
    at             BIGINT NOT NULL,
    interval_us    BIGINT NOT NULL,
    phase          VARCHAR,
    operations     BIGINT NOT NULL,
    reads          BIGINT NOT NULL,
    writes         BIGINT NOT NULL,
    errors         BIGINT NOT NULL,
    latency        BINARY NOT NULL,
    p50_ms         FLOAT,
    p95_ms         FLOAT,
    p99_ms         FLOAT,
    avg_ms         FLOAT,
    min_ms         FLOAT,
    max_ms         FLOAT,
    active         INTEGER NOT NULL,
    target         INTEGER NOT NULL,
    cpu_percent    FLOAT,
    memory_percent FLOAT,
    gpu            VARCHAR,
    extra          VARCHAR NOT NULL,
    PRIMARY KEY (pool_id, worker_id, n) @index(samples_by_time, pool_id, at)
);

CREATE @kind TABLE IF NOT EXISTS runs (
    run_id            VARCHAR NOT NULL,
    name              VARCHAR NOT NULL,
    template_id       VARCHAR,
    config            VARCHAR NOT NULL,
    status            VARCHAR NOT NULL,
    phase             VARCHAR,
    completion_reason VARCHAR,
    expected_workers  INTEGER NOT NULL DEFAULT 0,
    operations        BIGINT NOT NULL DEFAULT 0,
    errors            BIGINT NOT NULL DEFAULT 0,
    qps               FLOAT NOT NULL DEFAULT 0,
    controller_state  VARCHAR NOT NULL,
    custom_metrics    VARCHAR NOT NULL,
    created_at        BIGINT NOT NULL,
    updated_at        BIGINT NOT NULL,
    started_at        BIGINT,
    warmup_started_at BIGINT,
    warmup_ended_at   BIGINT,
    ended_at          BIGINT,
    PRIMARY KEY (run_id) @index(runs_by_age, created_at)
);

CREATE @kind TABLE IF NOT EXISTS steps (
    run_id          VARCHAR NOT NULL,
    n               INTEGER NOT NULL,
    type            VARCHAR NOT NULL,
    from_target     INTEGER,
    to_target       INTEGER NOT NULL,
    direction       VARCHAR,
    started_at      BIGINT NOT NULL,
    ended_at        BIGINT,
    operations      BIGINT,
    qps             FLOAT,
    target_qps      FLOAT,
    p50_ms          FLOAT,
    p95_ms          FLOAT,
    p99_ms          FLOAT,
    errors          BIGINT,
    error_rate      FLOAT,
    qps_vs_prior    FLOAT,
    p95_vs_baseline FLOAT,
    queue_detected  INTEGER,
    outcome         VARCHAR,
    reason          VARCHAR,
    is_probe        INTEGER NOT NULL DEFAULT 0,
    created_at      BIGINT NOT NULL,
    PRIMARY KEY (run_id, type, n)
);

CREATE @kind TABLE IF NOT EXISTS results (
    run_id            VARCHAR NOT NULL,
    worker_id         VARCHAR NOT NULL,
    kind              VARCHAR NOT NULL,
    status            VARCHAR NOT NULL,
    connections       INTEGER,
    operations        BIGINT NOT NULL DEFAULT 0,
    reads             BIGINT NOT NULL DEFAULT 0,
    writes            BIGINT NOT NULL DEFAULT 0,
    errors            BIGINT NOT NULL DEFAULT 0,
    qps               FLOAT,
    avg_ms            FLOAT,
    p50_ms            FLOAT,
    p90_ms            FLOAT,
    p95_ms            FLOAT,
    p99_ms            FLOAT,
    min_ms            FLOAT,
    max_ms            FLOAT,
    latency           BINARY,
    find_max_result   VARCHAR,
    failure_reason    VARCHAR,
    enrichment_status VARCHAR,
    enrichment_error  VARCHAR,
    custom_metrics    VARCHAR NOT NULL,
    started_at        BIGINT,
    ended_at          BIGINT,
    created_at        BIGINT NOT NULL,
    PRIMARY KEY (run_id, worker_id, kind)
);

CREATE @kind TABLE IF NOT EXISTS executions (
    run_id        VARCHAR NOT NULL,
    worker_id     VARCHAR NOT NULL,
    n             BIGINT NOT NULL,
    connection    INTEGER NOT NULL,
    kind          VARCHAR NOT NULL,
    started_at    BIGINT NOT NULL,
    duration_ms   FLOAT NOT NULL,
    ok            INTEGER NOT NULL,
    error_class   VARCHAR,
    error         VARCHAR,
    rows_affected BIGINT,
    warmup        INTEGER NOT NULL DEFAULT 0,
    query_text    VARCHAR,
    PRIMARY KEY (run_id, worker_id, n)
);

CREATE @kind TABLE IF NOT EXISTS templates (
    template_id  VARCHAR NOT NULL,
    name         VARCHAR NOT NULL,
    description  VARCHAR,
    config       VARCHAR NOT NULL,
    tags         VARCHAR NOT NULL,
    usage_count  INTEGER NOT NULL DEFAULT 0,
    last_used_at BIGINT,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    PRIMARY KEY (template_id) @unique(name)
);

CREATE @kind TABLE IF NOT EXISTS logs (
    pool_id   VARCHAR NOT NULL,
    log_id    BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    worker_id VARCHAR,
    level     VARCHAR NOT NULL,
    severity  INTEGER NOT NULL,
    logger    VARCHAR NOT NULL,
    message   VARCHAR NOT NULL,
    details   VARCHAR,
    PRIMARY KEY (pool_id, log_id)
);

CREATE @kind TABLE IF NOT EXISTS execution_files (
    run_id     VARCHAR NOT NULL,
    worker_id  VARCHAR NOT NULL,
    path       VARCHAR NOT NULL,
    host       VARCHAR NOT NULL,
    rows_kept  BIGINT NOT NULL,
    bytes      BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (run_id, worker_id, path)
);

CREATE @kind TABLE IF NOT EXISTS jobs (
    seq              INTEGER NOT NULL,
    pool_id          VARCHAR NOT NULL,
    given_id         VARCHAR,
    type             VARCHAR NOT NULL DEFAULT '',
    payload          VARCHAR NOT NULL,
    status           VARCHAR NOT NULL DEFAULT 'pending',
    delayed          INTEGER NOT NULL DEFAULT 0,
    priority         INTEGER NOT NULL DEFAULT 0,
    attempts         INTEGER NOT NULL DEFAULT 0,
    failures         INTEGER NOT NULL DEFAULT 0,
    crashes          INTEGER NOT NULL DEFAULT 0,
    max_attempts     INTEGER NOT NULL DEFAULT 3,
    max_crashes      INTEGER NOT NULL DEFAULT 3,
    backoff          VARCHAR,
    timeout_us       BIGINT,
    unique_key       VARCHAR,
    group_key        VARCHAR,
    group_limit      INTEGER,
    rate_count       INTEGER,
    rate_us          BIGINT,
    capability       VARCHAR,
    lease_owner      VARCHAR,
    lease_epoch      BIGINT NOT NULL DEFAULT 0,
    lease_until      BIGINT,
    not_before       BIGINT,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    progress         FLOAT,
    progress_note    VARCHAR,
    result           VARCHAR,
    last_error       VARCHAR,
    created_at       BIGINT NOT NULL,
    claimed_at       BIGINT,
    finished_at      BIGINT,
    lease_pool       VARCHAR,
    lease_instance   VARCHAR,
    begun_at         BIGINT,
    suspicions       INTEGER NOT NULL DEFAULT 0,
    alone            INTEGER NOT NULL DEFAULT 0,
    in_company       INTEGER NOT NULL DEFAULT 0,
    lease_us         BIGINT NOT NULL DEFAULT 0,
    lease_extended   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (seq)
    @index(jobs_ready, pool_id, status, delayed, priority, seq)
    @index(jobs_by_id, given_id)
    @index(jobs_by_key, pool_id, unique_key)
    @index(jobs_of_worker, lease_owner, status)
    @index(jobs_claimed, status, lease_until)
);

CREATE @kind TABLE IF NOT EXISTS job_attempts (
    seq         BIGINT NOT NULL,
    n           BIGINT NOT NULL,
    worker_id   VARCHAR NOT NULL,
    started_at  BIGINT NOT NULL,
    ended_at    BIGINT NOT NULL,
    outcome     VARCHAR NOT NULL,
    error       VARCHAR,
    worker_pool VARCHAR,
    PRIMARY KEY (seq, n)
);

CREATE @kind TABLE IF NOT EXISTS group_claims (
    pool_id   VARCHAR NOT NULL,
    group_key VARCHAR NOT NULL,
    seq       BIGINT NOT NULL,
    n         BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    until     BIGINT NOT NULL,
    PRIMARY KEY (pool_id, group_key, seq, n)
);

CREATE @kind TABLE IF NOT EXISTS connections (
    name        VARCHAR NOT NULL,
    url         VARCHAR NOT NULL,
    description VARCHAR,
    key_id      VARCHAR,
    secret      VARCHAR,
    is_default  INTEGER NOT NULL DEFAULT 0,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    PRIMARY KEY (name)
);

CREATE @kind TABLE IF NOT EXISTS answers (
    request_key VARCHAR NOT NULL,
    fingerprint VARCHAR NOT NULL,
    status      INTEGER,
    body        VARCHAR,
    location    VARCHAR,
    expires_at  BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    PRIMARY KEY (request_key) @index(answers_by_expiry, expires_at)
);

CREATE @kind TABLE IF NOT EXISTS notes (
    name       VARCHAR NOT NULL,
    value      VARCHAR NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (name)
);

CREATE @kind TABLE IF NOT EXISTS job_counts (
    pool_id VARCHAR NOT NULL,
    status  VARCHAR NOT NULL,
    part    BIGINT NOT NULL,
    jobs    BIGINT NOT NULL,
    PRIMARY KEY (pool_id, status, part)
);

