-- No two templates have one name, however many are made at once.

CREATE UNIQUE INDEX templates_by_name ON drumbeat.templates (name);
