-- has_children counts the links of a parent, so that PostgreSQL can end a parent and pass that on in one statement: it compares the
-- count with the links that the statement sees. Only the deletion of a pool used the index of parents, and that reads all jobs of
-- the pool anyway; each change of a parent paid for it.

DROP INDEX drumbeat.jobs_with_children;
UPDATE drumbeat.jobs SET has_children = (SELECT COUNT(*) FROM drumbeat.job_links l WHERE l.parent_seq = seq) WHERE has_children > 0;
