-- Steps count failed attempts to connect, which are part of their error rate. See 0011: only a missing column is added.

SELECT 1 AS found FROM information_schema.columns
 WHERE table_schema = CURRENT_SCHEMA() AND table_name = 'STEPS' AND column_name = 'FAILED_CONNECTS';
@if_none ALTER TABLE steps ADD COLUMN failed_connects BIGINT NOT NULL DEFAULT 0;
