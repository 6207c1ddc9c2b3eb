-- Parts of queries. No index has all jobs of a pool, so each state is read by its own.

-- name: jobs_of_pool
SELECT p.seq, p.has_children FROM drumbeat.jobs p @by(jobs_ready) WHERE p.pool_id = :pool_id AND p.status = 'pending' AND p.delayed = 0
UNION ALL
SELECT p.seq, p.has_children FROM drumbeat.jobs p @by(jobs_delayed) WHERE p.pool_id = :pool_id AND p.status = 'pending' AND p.delayed = 1
UNION ALL
SELECT p.seq, p.has_children FROM drumbeat.jobs p @by(jobs_waiting) WHERE p.pool_id = :pool_id AND p.status = 'waiting'
UNION ALL
SELECT p.seq, p.has_children FROM drumbeat.jobs p @by(jobs_claimed)
 WHERE p.pool_id = :pool_id AND p.status = 'claimed' AND p.lease_owner IS NOT NULL
UNION ALL
SELECT p.seq, p.has_children FROM drumbeat.jobs p @by(jobs_ended)
 WHERE p.pool_id = :pool_id AND p.status IN ('done', 'poisoned', 'cancelled')
