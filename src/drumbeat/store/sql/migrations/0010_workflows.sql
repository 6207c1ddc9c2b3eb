-- Jobs that wait for other jobs. A waiting job has its own state, so that claims do not see it; a job that others wait for has
-- a mark, so that the end of any other job costs no query more.

ALTER TABLE drumbeat.jobs ADD COLUMN workflow_id TEXT;
ALTER TABLE drumbeat.jobs ADD COLUMN waits_for INTEGER NOT NULL DEFAULT 0;
ALTER TABLE drumbeat.jobs ADD COLUMN after_any INTEGER NOT NULL DEFAULT 0;
ALTER TABLE drumbeat.jobs ADD COLUMN if_failed TEXT;
ALTER TABLE drumbeat.jobs ADD COLUMN has_children INTEGER NOT NULL DEFAULT 0;
CREATE INDEX jobs_waiting ON drumbeat.jobs (pool_id, seq) WHERE status = 'waiting';
CREATE INDEX jobs_with_children ON drumbeat.jobs (pool_id, seq) WHERE has_children = 1;
CREATE INDEX jobs_of_workflow ON drumbeat.jobs (workflow_id, seq) WHERE workflow_id IS NOT NULL;
DROP INDEX drumbeat.jobs_by_key;
CREATE UNIQUE INDEX jobs_by_key ON drumbeat.jobs (pool_id, unique_key)
 WHERE unique_key IS NOT NULL AND status IN ('waiting', 'pending', 'claimed');

CREATE TABLE drumbeat.job_links (
    child_seq  BIGINT NOT NULL,
    parent_seq BIGINT NOT NULL,
    PRIMARY KEY (child_seq, parent_seq)
) @clustered;
CREATE INDEX links_by_parent ON drumbeat.job_links (parent_seq, child_seq);
