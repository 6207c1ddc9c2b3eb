-- Indexes for the lists of a run's executions, earliest or longest first: a page no longer reads and sorts all rows of the run.

CREATE INDEX executions_by_start ON drumbeat.executions (run_id, started_at);
CREATE INDEX executions_by_duration ON drumbeat.executions (run_id, duration_ms);
