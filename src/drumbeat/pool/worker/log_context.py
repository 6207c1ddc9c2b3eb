"""Adds the job to log records that a handler writes: job_id, pool, type and attempt."""

import logging
from contextvars import ContextVar

from drumbeat.pool.worker.context import JobContext

#: the context of the job that the running code belongs to; None outside a handler
CURRENT_JOB: ContextVar[JobContext | None] = ContextVar("drumbeat_job", default=None)


class JobLogFilter(logging.Filter):
    """A logging filter that drops nothing. It sets job_id, pool, type and attempt on records of code that runs a job.

    ``logging.getLogger().handlers[0].addFilter(drumbeat.JobLogFilter())``
    """

    def filter(self, record: logging.LogRecord) -> bool:
        context = CURRENT_JOB.get()
        if context is not None and not hasattr(record, "job_id"):
            job = context.job
            record.job_id, record.pool, record.type, record.attempt = job.job_id, job.pool_id, job.type, job.attempts
        return True
