"""Carries out the actions decided for a run: first changes rows, then starts or ends workers. Actions are safe to repeat."""

from collections.abc import Sequence
from datetime import datetime

from drumbeat.bench.model import (
    Action,
    AskWorkersToDrain,
    Begin,
    Conclude,
    EnterPhase,
    NoteFact,
    Remember,
    SaveStep,
    SetTargets,
    SpawnBenchWorker,
    StopLoad,
)
from drumbeat.bench.model.verdict import KEPT_UNDER, RunJudgement, judgement_document
from drumbeat.bench.results.conclusion import SampledResult, replaced_span, unfinished, whole_run, with_metrics
from drumbeat.bench.results.record import began, ended_record, last_sample_at, read_record, samples_between
from drumbeat.bench.results.run_verdict import judge_run
from drumbeat.bench.results.yielding import iterate_yielding
from drumbeat.bench.run_state import state_document, stored_state
from drumbeat.core.decision import action_type
from drumbeat.core.engine import DEFAULT_ENGINE
from drumbeat.core.errors import Refused, SpawnError
from drumbeat.core.event import NewEvent, WorkerTarget, set_phase, start, stop
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.run import Phase, Result, Run, RunId, RunStatus
from drumbeat.core.worker import Worker, WorkerId
from drumbeat.runtime.recovery import RecoveryActor
from drumbeat.spawn.interface import Spawner
from drumbeat.store.interface import RunChange, Store

_REMEMBERED = (SetTargets, SaveStep)  #: actions that the stored orchestrator state records as done


class RunActor:
    """Carries out the actions that the orchestrator of one run has decided."""

    def __init__(self, store: Store, spawner: Spawner, run_id: RunId) -> None:
        self._store = store
        self._run_id = run_id
        self._pool_id = PoolId(run_id)
        self._provider = spawner.traits.name
        self._recovery = RecoveryActor(store, spawner, self._pool_id)
        self._refused: tuple[datetime, SpawnError] | None = None  #: the last failed start: decision time, error
        self._has_begun = False  #: whether the run's start time is known to be stored in its row
        self._undone: list[Action] = []  #: failed actions since the orchestrator state was last stored
        #: events stored in one transaction with the orchestrator state: exactly once, even if a beat is interrupted
        self._facts: list[tuple[Fence, NewEvent]] = []

    async def act(self, action: Action, fence: Fence) -> None:
        """Carry out one action. If a SetTargets or SaveStep failed earlier in this beat, an action that stores the orchestrator
        state raises Refused: the state would record the failed action as done."""
        if isinstance(action, Remember | StopLoad):
            self._check_nothing_is_undone()
        is_remembered = isinstance(action, _REMEMBERED)
        if is_remembered:
            self._undone.append(action)
        await self._do(action, fence)
        if is_remembered:
            self._undone.pop()

    def _check_nothing_is_undone(self) -> None:
        """Raise Refused if a SetTargets or SaveStep of this beat (pass of the control loop) failed. The state is then not
        stored, so that the next beat repeats the action."""
        undone, self._undone = self._undone, []
        if undone:
            self._facts = []
            names = ", ".join(f"action {action_type(action)}" for action in undone)
            raise Refused(f"did not store orchestrator state of run {self._run_id}: {names} failed; the next beat tries again")

    async def _do(self, action: Action, fence: Fence) -> None:
        match action:
            case SpawnBenchWorker():
                await self._start(action, fence)
            case SetTargets():
                await self._set_targets(action, fence)
            case AskWorkersToDrain():
                workers = self._store.workers
                await workers.ask_to_drain(self._pool_id, action.workers, action.reason, action.within, fence=fence)
            case SaveStep():
                await self._store.steps.save([action.step], fence=fence)
            case NoteFact():
                self._facts.append((fence, action.event))
            case Begin() | EnterPhase() | StopLoad() | Remember():
                await self._change(action, fence)
            case Conclude():
                await self._conclude(action, fence)
            case _:
                await self._recovery.recover(action, fence)

    async def _start(self, action: SpawnBenchWorker, fence: Fence) -> None:
        """Start a worker. After an engine on other machines has failed to start a worker, it is not asked again in this beat:
        a new worker only gets its row, which SetTargets needs, and SpawnError is raised."""
        await self._note_beginning(fence)
        if self._refused is not None and self._refused[0] == action.at:
            earlier = self._refused[1]
            if action.is_new:
                await self._recovery.add_unasked(self._row(action), earlier, fence)
            raise SpawnError(f"not tried: an earlier start in this beat failed: {earlier}", cause=earlier.cause)
        try:
            await self._recovery.start(self._row(action), action.group_count, fence, is_new=action.is_new, keep_refused=True)
        except SpawnError as exc:
            is_elsewhere = self._provider != DEFAULT_ENGINE
            self._refused = (action.at, exc) if is_elsewhere and action.at is not None else None
            raise

    async def _note_beginning(self, fence: Fence) -> None:
        """When the first worker starts, store the run's start time, unless one is stored already. So the time that a run waits
        for an orchestrator does not count."""
        if not self._has_begun:
            run = await self._store.runs.get(self._run_id)
            if run.started_at is None:
                await self._store.runs.update(run, RunChange(started=True), fence=fence)
            self._has_begun = True

    def _row(self, action: SpawnBenchWorker) -> Worker:
        return Worker(
            pool_id=self._pool_id,
            worker_id=action.worker_id,
            slot=action.slot,
            provider=self._provider,
            target=action.connections,
        )

    async def _set_targets(self, action: SetTargets, fence: Fence) -> None:
        targets = {
            name: WorkerTarget(connections=target.connections, qps=target.qps, ramp=action.ramp, reason=action.reason)
            for name, target in action.targets.items()
        }
        await self._store.workers.set_targets(self._pool_id, targets, fence=fence)

    async def _change(self, action: Begin | EnterPhase | StopLoad | Remember, fence: Fence) -> None:
        """Change the run's row and notify its workers, in one transaction. A change that is already made is skipped."""
        facts = self._noted(fence) if isinstance(action, Remember | StopLoad) else []
        run = await self._store.runs.get(self._run_id)
        change, events = change_of(action, run)
        if change is not None:
            await self._store.runs.update(run, change, [*facts, *events], fence=fence)

    def _noted(self, fence: Fence) -> list[NewEvent]:
        """Return and clear the events to store with the run's state. Events collected under an earlier lease are dropped."""
        noted, self._facts = self._facts, []
        return [event for held, event in noted if held == fence]

    async def _conclude(self, action: Conclude, fence: Fence) -> None:
        run = await self._store.runs.get(self._run_id)
        if run.status not in (RunStatus.STOPPING, RunStatus.CANCELLING):
            return
        rows = await self._worker_results(run, fence)
        record = await read_record(self._store, self._run_id)
        now = await self._store.now()
        counted = whole_run(self._run_id, rows, action.ending, now, replaced_span(record))
        whole = with_metrics(counted, record, stored_state(run), action.ending)
        await self._store.results.save(whole, fence=fence)
        judgement = judge_run(ended_record(record, whole, action.ending))
        await self._store.runs.update(run, _final(action, whole[0], run, judgement), fence=fence)

    async def _worker_results(self, run: Run, fence: Fence) -> list[Result]:
        """Return the results of all workers. If a worker stored none, compute them from its samples and store them."""
        rows = [row for row in await self._store.results.list(self._run_id) if row.worker_id is not None]
        workers = [worker.worker_id for worker in await self._store.workers.list(self._pool_id)]
        missing = unfinished(rows, workers)
        computed = await self._sampled_results(run, missing)
        await self._store.results.save(computed, fence=fence)
        return [*(row for row in rows if row.worker_id not in missing), *computed]

    async def _sampled_results(self, run: Run, missing: Sequence[WorkerId]) -> list[Result]:
        """Compute the results of workers from their samples, which are read in slices of time."""
        results = {worker_id: SampledResult(self._run_id, worker_id) for worker_id in missing}
        origin, until = began(run), last_sample_at(run, await self._store.now())
        if origin is None or not missing:
            return []
        async for _, samples in samples_between(self._store, self._pool_id, origin, until):
            async for sample in iterate_yielding(samples):
                if sample.worker_id in results:
                    results[sample.worker_id].add(sample)
        return [row for result in results.values() for row in result.rows()]


def _final(action: Conclude, whole: Result, run: Run, judgement: RunJudgement) -> RunChange:
    return RunChange(
        custom_metrics={**run.custom_metrics, KEPT_UNDER: judgement_document(judgement)},
        status=action.ending.status,
        completion_reason=action.ending.completion_reason,
        operations=whole.operations,
        errors=whole.errors,
        qps=whole.qps or 0.0,
        ended=True,
    )


def change_of(action: Begin | EnterPhase | StopLoad | Remember, run: Run) -> tuple[RunChange | None, Sequence[NewEvent]]:
    """Return the change to make to the run's row (None if it is already made) and the events to send to its workers."""
    match action:
        case Begin():
            return _begin(action, run)
        case EnterPhase():
            return _enter(action, run)
        case StopLoad():
            return _stop(action, run)
        case Remember():
            return _remember(action), ()


def _begin(action: Begin, run: Run) -> tuple[RunChange | None, Sequence[NewEvent]]:
    if run.status is not RunStatus.STARTING:
        return None, ()
    measuring = action.phase == Phase.MEASUREMENT
    change = RunChange(
        status=RunStatus.RUNNING,
        phase=action.phase,
        expected_workers=action.workers,
        started=True,
        warmup_started=True,
        warmup_ended=measuring,
    )
    return change, [start(expected_workers=action.workers), set_phase(action.phase)]


def _enter(action: EnterPhase, run: Run) -> tuple[RunChange | None, Sequence[NewEvent]]:
    """Return the change to a new phase and the event for the workers. Nothing changes if the run is in this phase already, or
    if its status does not allow the phase: PROCESSING only when the run is ending, any other phase only while it is RUNNING."""
    if run.phase == action.phase or (run.status is RunStatus.RUNNING) == (action.phase == Phase.PROCESSING):
        return None, ()
    change = RunChange(phase=action.phase, warmup_ended=action.phase == Phase.MEASUREMENT)
    return change, [set_phase(action.phase)]


def _stop(action: StopLoad, run: Run) -> tuple[RunChange | None, Sequence[NewEvent]]:
    if run.status not in (RunStatus.STARTING, RunStatus.RUNNING):
        return None, ()
    change = RunChange(
        status=RunStatus.STOPPING,
        phase=Phase.COOLDOWN,
        completion_reason=action.completion_reason,
        controller_state=state_document(action.state),
    )
    return change, [stop(action.reason, action.drain_within)]


def _remember(action: Remember) -> RunChange:
    return RunChange(
        controller_state=state_document(action.state),
        custom_metrics=action.metrics,
        operations=action.operations,
        errors=action.errors,
        qps=action.qps,
    )
