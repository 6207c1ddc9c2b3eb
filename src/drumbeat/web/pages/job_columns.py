"""The columns that all tables of jobs begin with."""

from urllib.parse import quote

from drumbeat.web.pages.components import TableColumn

JOB_COLUMNS = (
    TableColumn(
        name="job",
        loose=True,
        read=lambda job: job.job_id,
        href=lambda job: f"/pools/{quote(job.pool_id, safe='')}/jobs/{quote(job.job_id, safe='')}",
    ),
    TableColumn(name="type", read=lambda job: job.type or None),
    TableColumn(name="status", read=lambda job: job.status, is_status=True),
    TableColumn(name="priority", read=lambda job: job.priority, number=True),
)
