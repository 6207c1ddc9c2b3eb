"""Store interface for the durable steps of jobs."""

from collections.abc import Sequence
from typing import Any, Protocol

from drumbeat.core.job import JobId, Token
from drumbeat.core.job_step import JobStep, NewStep
from drumbeat.core.worker import Holder


class JobSteps(Protocol):
    """Records the steps of jobs, and keeps the events that are sent to jobs. Steps are deleted with their job."""

    async def record(self, holder: Holder, steps: Sequence[NewStep]) -> Sequence[Token]:
        """Record steps of claimed jobs, of many jobs at once, and set ``has_steps`` of these jobs. Records nothing for a job
        that ``holder`` no longer holds by the claim in its token; returns the tokens of such jobs. Replaces a step that is
        recorded already at the same position, so this is harmless to repeat."""
        ...

    async def list(self, job_id: JobId) -> Sequence[JobStep]:
        """Return the events that were sent to a job, in order, then its steps, in order. Raises NotFound."""
        ...

    async def send(self, job_id: JobId, name: str, value: Any) -> bool:
        """Send an event to a job: it is kept until the job waits for it; a job that waits for it now becomes claimable at once.
        Returns False, and changes nothing, if an event of this name was sent to the job before. Raises NotFound; Refused if the
        job has ended.

        No event is missed: if it is sent while an attempt ends in order to wait for it, the job becomes claimable at once (see
        ``seen_events`` of ``JobOutcome``).
        """
        ...
