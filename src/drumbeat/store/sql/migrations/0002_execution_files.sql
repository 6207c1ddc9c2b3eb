-- The Parquet files that workers wrote. Their executions are in the database only if they were loaded into it.

CREATE TABLE drumbeat.execution_files (
    run_id     TEXT NOT NULL,
    worker_id  TEXT NOT NULL,
    path       TEXT NOT NULL,
    host       TEXT NOT NULL,
    rows_kept  BIGINT NOT NULL,
    bytes      BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (run_id, worker_id, path)
);
