-- Names of templates are unique, also if several are created at the same time.

CREATE UNIQUE INDEX templates_by_name ON drumbeat.templates (name);
