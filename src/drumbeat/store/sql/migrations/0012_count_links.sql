-- has_children counts the links of a parent, so that PostgreSQL can end a parent and pass that on in one statement: it compares the
-- count with the links that the statement sees. Parents from before count as 1; if they have more, a longer transaction ends them.
-- Only the deletion of a pool used the index, and that reads all jobs of the pool anyway; each change of a parent paid for it.

DROP INDEX drumbeat.jobs_with_children;
