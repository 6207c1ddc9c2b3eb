-- Indexes for the events that are instructions. A new worker reads those that are for it, from the first on; most events only
-- record what became of other workers, and their number grows with every worker that the pool has had.

CREATE INDEX events_for_all ON drumbeat.events (pool_id, sequence_id)
 WHERE scope = 'RUN' AND type NOT IN ('WORKER_MOVED', 'SCALE_DOWN', 'GUARDRAIL_WARNING', 'WAITING_FOR_WORKERS');
CREATE INDEX events_for_worker ON drumbeat.events (pool_id, worker_id, sequence_id) WHERE scope = 'WORKER';
CREATE INDEX events_for_slot ON drumbeat.events (pool_id, slot, sequence_id) WHERE scope = 'WORKER_GROUP';
