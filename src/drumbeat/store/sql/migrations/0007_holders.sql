-- A job's holder is a pool, a worker id and a process, since two pools of one store may both have a worker-0.

ALTER TABLE drumbeat.jobs ADD COLUMN lease_pool TEXT;
ALTER TABLE drumbeat.jobs ADD COLUMN lease_instance TEXT;
ALTER TABLE drumbeat.job_attempts ADD COLUMN worker_pool TEXT;
UPDATE drumbeat.jobs SET lease_pool = pool_id, lease_instance = '' WHERE status = 'claimed';
