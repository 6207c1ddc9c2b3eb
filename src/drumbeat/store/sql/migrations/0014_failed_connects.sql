-- Steps count failed attempts to connect, which are part of their error rate.

ALTER TABLE drumbeat.steps ADD COLUMN failed_connects BIGINT NOT NULL DEFAULT 0;
