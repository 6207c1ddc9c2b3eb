-- has_children counts the links of a parent, so that PostgreSQL can end a parent and pass that on in one statement: it compares the
-- count with the links that the statement sees. Parents from before count as 1; if they have more, a longer transaction ends them.

DROP INDEX drumbeat.jobs_with_children;
CREATE INDEX jobs_with_children ON drumbeat.jobs (pool_id, seq) WHERE has_children > 0;
