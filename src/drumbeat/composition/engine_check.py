"""Checks an engine in practice: contacts it and its hosts, and starts a worker there, which joins the store and leaves."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta

from drumbeat.composition.base import ControlPlaneBase
from drumbeat.composition.check_steps import CheckStep as CheckStep, CheckStepFailed, StepRunner, reason_of
from drumbeat.composition.engine_kinds import NamedEngine
from drumbeat.composition.scoped_engines import ScopedSpawner
from drumbeat.composition.worker_check import WorkerCheck
from drumbeat.core.errors import DrumbeatError, InvalidInput, SpawnCause, SpawnError
from drumbeat.core.plain import time_span
from drumbeat.core.pool import PoolId
from drumbeat.spawn.interface import ChecksHosts, HostReport, Spawner

_NO_POOL = PoolId("engine-check")  #: a pool without workers, whose workers are listed to test whether the engine answers


class EngineCheck:
    """Checks one engine with one worker on each of its hosts, or with one worker if the engine has no hosts."""

    def __init__(
        self,
        base: ControlPlaneBase,
        engine: NamedEngine,
        on_step: Callable[[CheckStep], None],
        within: timedelta | None = None,
        host: str | None = None,
    ) -> None:
        """``on_step`` gets the result of each step; ``within``: time limit for a worker's start, and for its end;
        ``host``: check only this host."""
        self._base = base
        self._engine = engine
        self._steps = StepRunner(base.clock, on_step)
        self._within = within
        self._host = host

    async def run(self) -> bool:
        """Run all steps, on each host until a step fails there. Returns whether all steps succeeded."""
        async with AsyncExitStack() as stack:
            try:
                spawner = await self._steps.run("settings", self._open)
                if isinstance(spawner, ChecksHosts):
                    return await self._check_hosts(spawner, lambda: stack.enter_async_context(spawner))
                await self._steps.run("reach", lambda: self._reach(stack, spawner))
                return await self._check_worker(spawner, self._steps)
            except CheckStepFailed:
                return False

    async def _open(self) -> tuple[Spawner, str]:
        found = self._base.spawner(self._engine.name)
        spawner = await found.resolve() if isinstance(found, ScopedSpawner) else found
        if self._host is not None:
            if not isinstance(spawner, ChecksHosts):
                raise InvalidInput(f"expected an engine with hosts for --host, got {self._engine.subject}, which has none")
            spawner = spawner.at_host(self._host)
        warning = self._base.engines.reach_warning(self._engine.name)
        return spawner, f"kind {self._engine.kind.name}" + (f"; note: {warning}" if warning else "")

    async def _reach(self, stack: AsyncExitStack, spawner: Spawner) -> tuple[None, str]:
        await stack.enter_async_context(spawner)
        await spawner.list(_NO_POOL)
        return None, "the engine answers"

    async def _check_hosts(self, spawner: ChecksHosts, enter: Callable[[], Awaitable[object]]) -> bool:
        """Contact all hosts, then check a worker on each that answers and has the labels in the settings. Returns whether every
        host answered and every worker passed its check."""
        reports = await self._reports(spawner, enter)
        results = [await self._reach_host(report) for report in reports]
        usable = [report.name for report, is_fine in zip(reports, results, strict=True) if is_fine and report.is_chosen]
        for name in usable:
            async with spawner.at_host(name) as there:
                results.append(await self._check_worker(there, self._steps.at(name)))
        return all(results)

    async def _reports(self, spawner: ChecksHosts, enter: Callable[[], Awaitable[object]]) -> Sequence[HostReport]:
        """Contact all hosts. If that fails for all together, reports it as the step "reach", and raises CheckStepFailed."""
        began = self._base.clock.elapsed()
        try:
            await enter()
            return await spawner.check_hosts()
        except DrumbeatError as exc:
            self._steps.report("reach", began, reason_of(exc), ok=False)
            raise CheckStepFailed(str(exc)) from exc

    async def _reach_host(self, report: HostReport) -> bool:
        async def reached() -> tuple[None, str]:
            if report.problem is not None:
                raise SpawnError(report.problem, cause=report.cause or SpawnCause.TRANSIENT)
            return None, _facts(report)

        try:
            await self._steps.at(report.name).run("reach", reached)
        except CheckStepFailed:
            return False
        return True

    async def _check_worker(self, spawner: Spawner, steps: StepRunner) -> bool:
        return await WorkerCheck(self._base, self._engine.name, spawner, steps, self._within).run()


def _facts(report: HostReport) -> str:
    """Return one line about a host that has answered: versions, slots, clock, and whether it gets workers."""
    known: Sequence[str] = (
        f"Python {report.python}",
        f"drumbeat {report.drumbeat}",
        f"{report.taken} of {report.slots} slots taken",
        *([f"its clock is {time_span(abs(report.clock_offset))} off"] if report.clock_offset is not None else []),
        *([] if report.is_chosen else ["gets no new workers: it lacks the labels in the settings"]),
    )
    return ", ".join(known)
