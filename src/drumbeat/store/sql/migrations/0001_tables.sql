-- The first tables. Times are whole microseconds since 1970, UTC, by the database's clock.

CREATE TABLE drumbeat.pools (
    pool_id      TEXT PRIMARY KEY,
    kind         TEXT NOT NULL,
    thresholds   @json NOT NULL,
    policy       @json NOT NULL,
    paused_until BIGINT,
    next_event   BIGINT NOT NULL DEFAULT 1,
    next_beat    BIGINT NOT NULL DEFAULT 1,
    next_log     BIGINT NOT NULL DEFAULT 1,
    created_at   BIGINT NOT NULL
) @hot;

CREATE TABLE drumbeat.workers (
    pool_id         TEXT NOT NULL,
    worker_id       TEXT NOT NULL,
    slot            INTEGER NOT NULL,
    status          TEXT NOT NULL,
    instance        TEXT,
    host            TEXT,
    pid             BIGINT,
    provider        TEXT,
    provider_ref    TEXT,
    capabilities    @json NOT NULL,
    phase           TEXT,
    target          INTEGER NOT NULL DEFAULT 0,
    target_seq      BIGINT NOT NULL DEFAULT 0,
    applied_target  INTEGER NOT NULL DEFAULT 0,
    active          INTEGER NOT NULL DEFAULT 0,
    operations      BIGINT NOT NULL DEFAULT 0,
    errors          BIGINT NOT NULL DEFAULT 0,
    cpu_percent     @real,
    memory_percent  @real,
    gpu             @json,
    heartbeat_at    BIGINT,
    heartbeat_count BIGINT NOT NULL DEFAULT 0,
    created_at      BIGINT NOT NULL,
    started_at      BIGINT,
    ready_at        BIGINT,
    drain_deadline  BIGINT,
    ended_at        BIGINT,
    reaped_at       BIGINT,
    exit_code       INTEGER,
    error           TEXT,
    meta            @json NOT NULL,
    PRIMARY KEY (pool_id, worker_id)
) @hot;

CREATE TABLE drumbeat.events (
    pool_id     TEXT NOT NULL,
    sequence_id BIGINT NOT NULL,
    type        TEXT NOT NULL,
    scope       TEXT NOT NULL,
    worker_id   TEXT,
    slot        INTEGER,
    payload     @json NOT NULL,
    created_at  BIGINT NOT NULL,
    PRIMARY KEY (pool_id, sequence_id)
) @clustered;

CREATE TABLE drumbeat.leases (
    name       TEXT PRIMARY KEY,
    owner      TEXT NOT NULL,
    epoch      BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    released   INTEGER NOT NULL DEFAULT 0
) @hot;

CREATE TABLE drumbeat.beats (
    pool_id     TEXT NOT NULL,
    n           BIGINT NOT NULL,
    owner       TEXT NOT NULL,
    epoch       BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    view        @json,
    actions     @json NOT NULL,
    why_not     TEXT,
    error       TEXT,
    duration_us BIGINT NOT NULL,
    summary     @json NOT NULL,
    PRIMARY KEY (pool_id, n)
) @clustered;

CREATE TABLE drumbeat.samples (
    pool_id        TEXT NOT NULL,
    worker_id      TEXT NOT NULL,
    n              BIGINT NOT NULL,
    at             BIGINT NOT NULL,
    interval_us    BIGINT NOT NULL,
    phase          TEXT,
    operations     BIGINT NOT NULL,
    reads          BIGINT NOT NULL,
    writes         BIGINT NOT NULL,
    errors         BIGINT NOT NULL,
    latency        @bytes NOT NULL,
    p50_ms         @real,
    p95_ms         @real,
    p99_ms         @real,
    avg_ms         @real,
    min_ms         @real,
    max_ms         @real,
    active         INTEGER NOT NULL,
    target         INTEGER NOT NULL,
    cpu_percent    @real,
    memory_percent @real,
    gpu            @json,
    extra          @json NOT NULL,
    PRIMARY KEY (pool_id, worker_id, n)
);
CREATE INDEX samples_by_time ON drumbeat.samples (pool_id, at);

CREATE TABLE drumbeat.runs (
    run_id            TEXT PRIMARY KEY,
    name              TEXT NOT NULL,
    template_id       TEXT,
    config            @json NOT NULL,
    status            TEXT NOT NULL,
    phase             TEXT,
    completion_reason TEXT,
    expected_workers  INTEGER NOT NULL DEFAULT 0,
    operations        BIGINT NOT NULL DEFAULT 0,
    errors            BIGINT NOT NULL DEFAULT 0,
    qps               @real NOT NULL DEFAULT 0,
    controller_state  @json NOT NULL,
    custom_metrics    @json NOT NULL,
    created_at        BIGINT NOT NULL,
    updated_at        BIGINT NOT NULL,
    started_at        BIGINT,
    warmup_started_at BIGINT,
    warmup_ended_at   BIGINT,
    ended_at          BIGINT
) @hot;
CREATE INDEX runs_by_age ON drumbeat.runs (created_at);

CREATE TABLE drumbeat.steps (
    run_id          TEXT NOT NULL,
    n               INTEGER NOT NULL,
    type            TEXT NOT NULL,
    from_target     INTEGER,
    to_target       INTEGER NOT NULL,
    direction       TEXT,
    started_at      BIGINT NOT NULL,
    ended_at        BIGINT,
    operations      BIGINT,
    qps             @real,
    target_qps      @real,
    p50_ms          @real,
    p95_ms          @real,
    p99_ms          @real,
    errors          BIGINT,
    error_rate      @real,
    qps_vs_prior    @real,
    p95_vs_baseline @real,
    queue_detected  INTEGER,
    outcome         TEXT,
    reason          TEXT,
    is_probe        INTEGER NOT NULL DEFAULT 0,
    created_at      BIGINT NOT NULL,
    PRIMARY KEY (run_id, type, n)
);

CREATE TABLE drumbeat.results (
    run_id             TEXT NOT NULL,
    worker_id          TEXT NOT NULL,
    kind               TEXT NOT NULL,
    status             TEXT NOT NULL,
    connections        INTEGER,
    operations         BIGINT NOT NULL DEFAULT 0,
    reads              BIGINT NOT NULL DEFAULT 0,
    writes             BIGINT NOT NULL DEFAULT 0,
    errors             BIGINT NOT NULL DEFAULT 0,
    qps                @real,
    avg_ms             @real,
    p50_ms             @real,
    p90_ms             @real,
    p95_ms             @real,
    p99_ms             @real,
    min_ms             @real,
    max_ms             @real,
    latency            @bytes,
    find_max_result    @json,
    failure_reason     TEXT,
    enrichment_status  TEXT,
    enrichment_error   TEXT,
    custom_metrics     @json NOT NULL,
    started_at         BIGINT,
    ended_at           BIGINT,
    created_at         BIGINT NOT NULL,
    PRIMARY KEY (run_id, worker_id, kind)
);

CREATE TABLE drumbeat.executions (
    run_id        TEXT NOT NULL,
    worker_id     TEXT NOT NULL,
    n             BIGINT NOT NULL,
    connection    INTEGER NOT NULL,
    kind          TEXT NOT NULL,
    started_at    BIGINT NOT NULL,
    duration_ms   @real NOT NULL,
    ok            INTEGER NOT NULL,
    error_class   TEXT,
    error         TEXT,
    rows_affected BIGINT,
    warmup        INTEGER NOT NULL DEFAULT 0,
    query_text    TEXT,
    PRIMARY KEY (run_id, worker_id, n)
);

CREATE TABLE drumbeat.templates (
    template_id  TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    description  TEXT,
    config       @json NOT NULL,
    tags         @json NOT NULL,
    usage_count  INTEGER NOT NULL DEFAULT 0,
    last_used_at BIGINT,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL
);

CREATE TABLE drumbeat.jobs (
    job_id       TEXT PRIMARY KEY,
    pool_id      TEXT NOT NULL,
    type         TEXT NOT NULL DEFAULT '',
    payload      @json NOT NULL,
    status       TEXT NOT NULL,
    priority     INTEGER NOT NULL DEFAULT 0,
    attempts     INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL DEFAULT 3,
    lease_owner  TEXT,
    lease_epoch  BIGINT NOT NULL DEFAULT 0,
    lease_until  BIGINT,
    timeout_us   BIGINT,
    not_before   BIGINT,
    result       @json,
    last_error   TEXT,
    created_at   BIGINT NOT NULL,
    claimed_at   BIGINT,
    finished_at  BIGINT
);
CREATE INDEX jobs_by_status ON drumbeat.jobs (pool_id, status);

CREATE TABLE drumbeat.job_attempts (
    job_id     TEXT NOT NULL,
    n          INTEGER NOT NULL,
    worker_id  TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    ended_at   BIGINT,
    outcome    TEXT,
    error      TEXT,
    PRIMARY KEY (job_id, n)
);

CREATE TABLE drumbeat.logs (
    pool_id   TEXT NOT NULL,
    log_id    BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    worker_id TEXT,
    level     TEXT NOT NULL,
    severity  INTEGER NOT NULL,
    logger    TEXT NOT NULL,
    message   TEXT NOT NULL,
    details   @json,
    PRIMARY KEY (pool_id, log_id)
) @clustered;
