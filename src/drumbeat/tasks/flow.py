"""Workflows of tasks: jobs that run after other jobs, and that get the results of other jobs as arguments."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload
from uuid import uuid4

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import IfFailed, JobId, NewJob
from drumbeat.core.plain import short_repr
from drumbeat.pool.flows import Stage, chain as chain_new_jobs, group as group_new_jobs
from drumbeat.pool.job_options import check_key
from drumbeat.pool.outputs import OUTPUTS, has_outputs
from drumbeat.pool.worker.task_call import TaskFunction
from drumbeat.store.flow_rules import parents_first
from drumbeat.tasks.pushed import PushedJob, PushedWorkflow
from drumbeat.tasks.queue import PlannedJob, TaskQueue, queues

if TYPE_CHECKING:
    from drumbeat.tasks.task import Task

P = ParamSpec("P")  #: the parameters of a task after the first, which gets another job's result
R = TypeVar("R")  #: the result of a job
S = TypeVar("S")  #: the result of the next job
T = TypeVar("T")


class ResultOf:
    """Stands for the result of a job among the arguments of another job."""

    def __init__(self, job: "TaskJob[Any]") -> None:
        self.job = job

    def __repr__(self) -> str:
        return f"<result of {self.job!r}>"

    def __str__(self) -> str:
        raise InvalidInput(f"{self!r} is not known yet, so it cannot be part of a text; pass it as an argument of its own")

    def __format__(self, form: str) -> str:
        return str(self)


class TaskJob(Generic[R]):
    """A job of a task before it is pushed, as ``fetch.job(url)`` returns it: a part of a workflow."""

    def __init__(
        self, task: TaskFunction, pool: str, store: str | None, new: NewJob, parents: Sequence["TaskJob[Any]"]
    ) -> None:
        """``store`` is the store's URL; None: the default store. ``parents`` are jobs whose results are arguments."""
        self.task = task
        self.pool = pool
        self.store = store
        self.job_id = new.job_id or JobId(f"job-{uuid4().hex}")
        self.parents = [*parents]  #: the jobs of this workflow that this job waits for
        self.workflow_id: str | None = None  #: set by the push, if None
        self._new = replace(new, job_id=self.job_id)

    def __repr__(self) -> str:
        return f"<job {self.job_id} of task {self.task.task_name}>"

    @property
    def output(self) -> R:
        """The result of this job, to pass as an argument to another job, which then waits for this job:
        ``count.job(page.output)``. An argument can also be a list in which every item is such a result.

        Raises InvalidInput for a unique task: a push can use an existing job with the same key instead of this job.
        """
        if self._new.unique_key is not None:
            raise InvalidInput(f"task {self.task.task_name}: the result of a unique job cannot be an argument of another job")
        return cast(R, ResultOf(self))

    def then(self, task: "Task[Concatenate[R, P], S]", /, *args: P.args, **kwargs: P.kwargs) -> "TaskJob[S]":
        """Return a job of ``task`` that runs after this job, with this job's result as its first argument. Raises InvalidInput
        if ``task`` is not a task."""
        return _task(task).job(self.output, *args, **kwargs)

    def after(
        self,
        *jobs: "TaskJob[Any] | PushedJob[Any] | str",
        any_of: bool = False,
        if_failed: IfFailed | str | None = None,
    ) -> "TaskJob[R]":
        """Let this job wait for other jobs; a job that is already pushed can be given by its id. Returns this job.

        ``any_of``: this job runs once one of its parents is done. ``if_failed``: what this job does if a parent is poisoned or
        cancelled: ``block`` (wait until the parent is requeued and done), ``skip`` (be cancelled), ``run`` (run). Raises
        InvalidInput.
        """
        if any_of and has_outputs(self._new.payload):
            raise InvalidInput(
                f"task {self.task.task_name}: expected any_of only for a job without results of other jobs as arguments, got "
                "one that has them and so needs all its parents; leave them out, and read results with context.parents()"
            )
        pushed = tuple(JobId(_id(job)) for job in jobs if not isinstance(job, TaskJob))
        policy = self._new.if_failed if if_failed is None else _policy(if_failed)
        self._new = replace(
            self._new, after=(*self._new.after, *pushed), after_any=any_of or self._new.after_any, if_failed=policy
        )
        self.parents += [job for job in jobs if isinstance(job, TaskJob) and job not in self.parents]
        return self

    def push(self, workflow_id: str | None = None) -> PushedJob[R]:
        """Push this job and all jobs before it. Raises InvalidInput for jobs that wait in a circle.

        In one pool, all jobs are pushed or none. In several pools, they are pushed pool by pool, parents first; after an error,
        push again to add the missing jobs: jobs that exist are not pushed twice.
        """
        return self._pushed(Workflow([self], workflow_id).push())

    async def apush(self, workflow_id: str | None = None) -> PushedJob[R]:
        """Like ``push``, for coroutines."""
        return self._pushed(await Workflow([self], workflow_id).apush())

    def _pushed(self, workflow: PushedWorkflow) -> PushedJob[R]:
        return workflow.last[0]

    def planned(self, workflow_id: str) -> PlannedJob:
        """Return the job as part of this workflow, with its pool, its task and the ids of its parents, ready to be pushed."""
        after = tuple(dict.fromkeys((*self._new.after, *(parent.job_id for parent in self.parents))))
        return PlannedJob(pool=self.pool, task=self.task, new=replace(self._new, after=after, workflow_id=workflow_id))


class Workflow:
    """Jobs of tasks that are pushed together. ``chain`` and ``group`` make one."""

    def __init__(self, last: Sequence[TaskJob[Any]], workflow_id: str | None = None) -> None:
        """``last`` are the last jobs; all jobs before them belong to it too. Raises InvalidInput for an invalid id."""
        self.last = [*last]
        self.workflow_id = None if workflow_id is None else check_key("workflow_id", workflow_id)  #: set by the push, if None

    @property
    def jobs(self) -> list[TaskJob[Any]]:
        """All jobs of the workflow: first those that others wait for. Raises InvalidInput if jobs wait in a circle."""
        return _in_order(self.last)

    def push(self) -> PushedWorkflow:
        """Push all jobs. In one pool, all jobs are pushed or none. In several pools, they are pushed pool by pool, parents
        first; after an error, push again to add the missing jobs: jobs that exist are not pushed twice."""
        queue, jobs, flow = self._prepared()
        return self._pushed(queue, jobs, queue.push_workflow([job.planned(flow) for job in jobs]))

    async def apush(self) -> PushedWorkflow:
        """Like ``push``, for coroutines."""
        queue, jobs, flow = self._prepared()
        return self._pushed(queue, jobs, await queue.apush_workflow([job.planned(flow) for job in jobs]))

    def _prepared(self) -> tuple[TaskQueue, list[TaskJob[Any]], str]:
        jobs = self.jobs
        stores = {job.store for job in jobs}
        if len(stores) > 1:
            raise InvalidInput("expected the jobs of a workflow in one store, got tasks with different values of store")
        found = (job.workflow_id for job in jobs if job.workflow_id is not None)
        self.workflow_id = self.workflow_id or next(found, None) or f"workflow-{uuid4().hex}"
        for job in jobs:
            job.workflow_id = job.workflow_id or self.workflow_id
        return queues.find(stores.pop()), jobs, self.workflow_id

    def _pushed(self, queue: TaskQueue, jobs: Sequence[TaskJob[Any]], ids: Mapping[str, str]) -> PushedWorkflow:
        made = {job: PushedJob[Any](ids[job.job_id], job.pool, job.task, queue, job.workflow_id) for job in jobs}
        return PushedWorkflow(str(self.workflow_id), [*made.values()], [made[job] for job in self.last], queue)


class Group(Workflow, Generic[R]):
    """Jobs that run at the same time. ``group(…).then(total)`` adds a job that gets the list of their results."""

    @property
    def output(self) -> list[R]:
        """The results of all jobs of the group, in the group's order, to pass as an argument to another job."""
        return [job.output for job in cast("list[TaskJob[R]]", self.last)]

    def then(self, task: "Task[Concatenate[list[R], P], S]", /, *args: P.args, **kwargs: P.kwargs) -> TaskJob[S]:
        """Return a job that runs once after all jobs of the group, with the list of their results as its first argument."""
        job = _task(task).job(self.output, *args, **kwargs)
        job.workflow_id = self.workflow_id
        return job


TaskStage = TaskJob[Any] | Workflow | Sequence[TaskJob[Any]]  #: jobs that run at the same time


@overload
def chain(*stages: Stage, workflow_id: str | None = None) -> list[NewJob]: ...
@overload
def chain(*stages: TaskStage, workflow_id: str | None = None) -> Workflow: ...
def chain(*stages: Any, workflow_id: str | None = None) -> Any:
    """Return a workflow of stages that run one after the other. A stage is a job, a list of jobs or a workflow; the next stage
    waits for the last jobs of the stage before, and gets no results from them. Raises InvalidInput for an empty stage.

    Jobs of tasks (``fetch.job(url)``) are pushed with ``chain(…).push()``; jobs made by ``new_job`` with
    ``pool.push_jobs(chain(…))``.
    """
    if stages and all(isinstance(job, NewJob) for stage in stages for job in _members(stage)):
        return chain_new_jobs(*stages, workflow_id=workflow_id)
    before: list[TaskJob[Any]] = []
    seen: dict[TaskJob[Any], None] = {}
    for place, stage in enumerate(stages, 1):
        last = _checked(_members(stage), f"stage {place}")
        added = {job: None for job in _in_order(last) if job not in seen}
        for job in added:
            if not any(parent in added for parent in job.parents):
                job.after(*before)
        seen |= added
        before = last
    if not before:
        raise InvalidInput("expected at least one job in a chain, got none")
    given = (stage.workflow_id for stage in stages if isinstance(stage, Workflow))
    return Workflow(before, next(filter(None, given), None) if workflow_id is None else workflow_id)


@overload
def group(*jobs: NewJob, callback: NewJob | None = None, workflow_id: str | None = None) -> list[NewJob]: ...
@overload
def group(*jobs: TaskJob[R], workflow_id: str | None = None) -> Group[R]: ...
@overload
def group(*jobs: TaskJob[Any], callback: TaskJob[Any], workflow_id: str | None = None) -> Workflow: ...
def group(*jobs: Any, callback: Any = None, workflow_id: str | None = None) -> Any:
    """Return a workflow of jobs that run at the same time, and of a ``callback`` that runs once after all of them.

    The callback gets no results; to pass the list of results to a task, use ``group(…).then(total)``. Raises InvalidInput.

    Jobs of tasks are pushed with ``group(…).push()``; jobs made by ``new_job`` with ``pool.push_jobs(group(…))``.
    """
    if jobs and all(isinstance(job, NewJob) for job in jobs):
        if callback is not None and not isinstance(callback, NewJob):
            raise InvalidInput(
                f"callback: expected a job made by new_job, as the jobs of the group are, got {short_repr(callback)}"
            )
        return group_new_jobs(*jobs, callback=callback, workflow_id=workflow_id)
    members = _checked(jobs, "the group")
    if callback is None:
        return Group(members, workflow_id)
    for job in _members(callback):
        if not isinstance(job, TaskJob):
            raise InvalidInput(
                f"callback: expected a job of a task, such as total.job(), got {short_repr(job)}; to pass the results of the "
                "group to a task, write group(…).then(total)"
            )
    return chain(members, callback, workflow_id=workflow_id)


def with_outputs(args: Sequence[Any], kwargs: Mapping[str, Any]) -> "tuple[list[Any], dict[str, Any], dict[str, Any]]":
    """Return the arguments, with None for each result of another job; and the jobs of these results, by position or name."""
    found: dict[str, Any] = {}
    plain_args = [_plain(str(n), value, found) for n, value in enumerate(args)]
    return plain_args, {name: _plain(name, value, found) for name, value in kwargs.items()}, found


def output_ids(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the payload field with the ids of the jobs whose results are arguments, by position or name; empty if none are."""
    ids = {place: [job.job_id for job in jobs] if isinstance(jobs, list) else jobs.job_id for place, jobs in found.items()}
    return {OUTPUTS: ids} if ids else {}


def output_jobs(found: Mapping[str, Any]) -> list[TaskJob[Any]]:
    """Return the jobs whose results are arguments, each once."""
    return [*dict.fromkeys(job for jobs in found.values() for job in (jobs if isinstance(jobs, list) else [jobs]))]


def _plain(place: str, value: Any, found: dict[str, Any]) -> Any:
    if isinstance(value, ResultOf):
        found[place] = value.job
        return None
    if isinstance(value, list) and value and all(isinstance(each, ResultOf) for each in value):
        found[place] = [each.job for each in value]
        return None
    return value


def _members(stage: Any) -> Sequence[Any]:
    if isinstance(stage, Workflow):
        return stage.last
    return [*stage] if isinstance(stage, Sequence) else [stage]


def _task(given: T) -> T:
    """Return ``given``, the argument of ``then``, if it is a task. Raises InvalidInput if it is anything else."""
    if isinstance(given, TaskFunction):
        return given
    problem = f"then: expected a task, such as a function below @drumbeat.task, got {short_repr(given)}"
    if isinstance(given, TaskJob):
        raise InvalidInput(f"{problem}; give the task itself and its other arguments: then(count, factor=2)")
    raise InvalidInput(problem)


def _checked(members: Iterable[Any], place: str) -> list[TaskJob[Any]]:
    """Return ``members`` as a list. Raises InvalidInput, which names ``place``, if it is empty or not all are task jobs."""
    jobs = [*members]
    if not jobs:
        raise InvalidInput(f"expected at least one job in {place}, got none; add a job, or leave {place} out")
    for job in jobs:
        if not isinstance(job, TaskJob):
            raise InvalidInput(f"expected jobs of tasks, such as fetch.job(url), got {short_repr(job)} in {place}")
    return jobs


def _in_order(last: Sequence[TaskJob[Any]]) -> list[TaskJob[Any]]:
    """Return these jobs and all jobs before them, each after its parents. Raises InvalidInput if jobs wait in a circle."""
    found = [*dict.fromkeys(_with_parents(last))][::-1]
    order = parents_first([job.planned("").new for job in found])
    return [found[place] for place in order]


def _with_parents(last: Sequence[TaskJob[Any]]) -> Iterator[TaskJob[Any]]:
    seen, queue = set(last), [*last][::-1]
    for job in queue:
        yield job
        queue += [parent for parent in dict.fromkeys(reversed(job.parents)) if parent not in seen]
        seen.update(job.parents)


def _id(job: Any) -> str:
    if isinstance(job, PushedJob):
        return job.job_id
    if not isinstance(job, str):
        raise InvalidInput(f"after: expected a job of a task, a pushed job or a job id, got {short_repr(job)}")
    return job


def _policy(value: Any) -> IfFailed:
    try:
        return IfFailed(value)
    except ValueError:
        raise InvalidInput(f"expected if_failed to be one of {', '.join(IfFailed)}, got {short_repr(value)}") from None
