"""The columns that all tables of jobs begin with."""

from urllib.parse import quote

from drumbeat.core.clock import Clock
from drumbeat.web.pages.components import TableColumn
from drumbeat.web.pages.plain_words import job_status


def job_columns(clock: Clock) -> tuple[TableColumn, ...]:
    """Return the columns; ``clock`` tells whether a pending job is delayed."""
    return (
        TableColumn(
            name="job",
            loose=True,
            read=lambda job: job.job_id,
            href=lambda job: f"/pools/{quote(job.pool_id, safe='')}/jobs/{quote(job.job_id, safe='')}",
        ),
        TableColumn(name="type", read=lambda job: job.type or None),
        TableColumn(name="status", read=lambda job: job_status(job, clock.now()), is_status=True),
        TableColumn(name="priority", read=lambda job: job.priority, number=True),
    )
