-- Jobs that wait for other jobs. Each statement ends the transaction, so a process that continues an interrupted migration
-- adds only the columns that are missing; IF NOT EXISTS does not allow a default.

ALTER TABLE jobs ADD COLUMN IF NOT EXISTS workflow_id VARCHAR;
SELECT 1 AS found FROM information_schema.columns
 WHERE table_schema = CURRENT_SCHEMA() AND table_name = 'JOBS' AND column_name = 'WAITS_FOR';
@if_none ALTER TABLE jobs ADD COLUMN waits_for INTEGER NOT NULL DEFAULT 0;
SELECT 1 AS found FROM information_schema.columns
 WHERE table_schema = CURRENT_SCHEMA() AND table_name = 'JOBS' AND column_name = 'AFTER_ANY';
@if_none ALTER TABLE jobs ADD COLUMN after_any INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN IF NOT EXISTS if_failed VARCHAR;
SELECT 1 AS found FROM information_schema.columns
 WHERE table_schema = CURRENT_SCHEMA() AND table_name = 'JOBS' AND column_name = 'HAS_CHILDREN';
@if_none ALTER TABLE jobs ADD COLUMN has_children INTEGER NOT NULL DEFAULT 0;

CREATE @kind TABLE IF NOT EXISTS job_links (
    child_seq  BIGINT NOT NULL,
    parent_seq BIGINT NOT NULL,
    PRIMARY KEY (child_seq, parent_seq) @index(links_by_parent, parent_seq)
);
