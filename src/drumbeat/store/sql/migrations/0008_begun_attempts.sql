-- When a worker is lost, only jobs that had begun are charged; if several had begun, none is poisoned before it has run alone.
-- An expired lease is extended once, since the store may have been unavailable.

ALTER TABLE drumbeat.jobs ADD COLUMN begun_at BIGINT;
ALTER TABLE drumbeat.jobs ADD COLUMN suspicions INTEGER NOT NULL DEFAULT 0;
ALTER TABLE drumbeat.jobs ADD COLUMN alone INTEGER NOT NULL DEFAULT 0;
ALTER TABLE drumbeat.jobs ADD COLUMN in_company INTEGER NOT NULL DEFAULT 0;
ALTER TABLE drumbeat.jobs ADD COLUMN lease_us BIGINT NOT NULL DEFAULT 0;
ALTER TABLE drumbeat.jobs ADD COLUMN lease_extended INTEGER NOT NULL DEFAULT 0;
UPDATE drumbeat.jobs SET begun_at = claimed_at WHERE status = 'claimed';
CREATE INDEX jobs_alone ON drumbeat.jobs (pool_id) WHERE status = 'pending' AND alone = 1;
