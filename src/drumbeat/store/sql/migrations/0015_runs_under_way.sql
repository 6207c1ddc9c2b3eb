-- Indexes for the lists of runs that are read every few seconds: runs that have not ended, and runs of one template.

CREATE INDEX runs_under_way ON drumbeat.runs (created_at) WHERE status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED');
CREATE INDEX runs_of_template ON drumbeat.runs (template_id, created_at) WHERE template_id IS NOT NULL;
