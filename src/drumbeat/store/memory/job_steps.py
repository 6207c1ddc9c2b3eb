"""The durable steps of jobs, in memory."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from drumbeat.core.errors import NotFound
from drumbeat.core.job import ENDED, Job, JobId, JobStatus, Token
from drumbeat.core.job_step import JobStep, NewStep, StepKind, in_step_order
from drumbeat.core.worker import Holder
from drumbeat.store.job_outcomes import ended_job
from drumbeat.store.memory.queue import plain_json
from drumbeat.store.memory.state import MemoryTable, operation


class MemoryJobSteps(MemoryTable):
    @operation
    def record(self, holder: Holder, steps: Sequence[NewStep]) -> Sequence[Token]:
        plain = [replace(new.step, result=plain_json(new.step.result, "step"), epoch=new.token.epoch) for new in steps]
        stale: dict[Token, None] = {}
        for new, step in zip(steps, plain, strict=True):
            job = self.state.held(holder, new.token)
            if job is None:
                stale[new.token] = None
            else:
                self._put(job, step)
                self._save(replace(job, has_steps=True))
        return [*stale]

    @operation
    def list(self, job_id: JobId) -> Sequence[JobStep]:
        return in_step_order([*self._steps(self._get(job_id)).values()])

    @operation
    def send(self, job_id: JobId, name: str, value: Any) -> bool:
        job, plain = self._get(job_id), plain_json(value, "event")
        steps = [step for step in self._steps(job).values() if step.name == name]
        if any(step.kind is StepKind.SENT for step in steps):
            return False
        if job.status in ENDED:
            raise ended_job(job_id, job.status)
        now, number = self.state.now(), job.events_sent + 1
        self._put(job, JobStep(position=-number, name=name, kind=StepKind.SENT, result=plain, started_at=now, finished_at=now))
        changed = replace(job, has_steps=True, events_sent=number)
        waits = any(step.kind is StepKind.EVENT and step.finished_at is None for step in steps)
        if waits and job.status is JobStatus.PENDING and job.not_before is not None and job.not_before > now:
            self.state.rows(job.pool_id).jobs.keep(replace(changed, not_before=now), now)
            self.state.subscribers.notify(job.pool_id)
        else:
            self._save(changed)
        return True

    def _get(self, job_id: JobId) -> Job:
        job = self.state.find_job(job_id)
        if job is None:
            raise NotFound(f"there is no job {job_id!r}: it was never pushed, or was deleted")
        return job

    def _steps(self, job: Job) -> dict[int, JobStep]:
        return self.state.rows(job.pool_id).jobs.steps.get(job.job_id, {})

    def _put(self, job: Job, step: JobStep) -> None:
        self.state.rows(job.pool_id).jobs.steps.setdefault(job.job_id, {})[step.position] = step

    def _save(self, job: Job) -> None:
        self.state.rows(job.pool_id).jobs.put(job)
