"""Shared by soak tests: a pool whose jobs succeed, fail or kill their worker, and the check of the result."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.job import NO_BACKOFF, UNFINISHED, Attempt, AttemptOutcome, IfFailed, Job, JobId, JobStatus, NewJob
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, Thresholds, pool
from drumbeat.settings import Settings
from drumbeat.store import Store, open_store
from drumbeat.store.interface import Jobs
from kit.soak_crew import Crew, ProcessCrew, TaskCrew
from kit.soak_judge import Record, faults, foreign, records, repeated_steps, too_early
from kit.soak_worker import Journal

T = TypeVar("T")

PATIENCE = 120.0  #: seconds in which all jobs must end after the last fault
_PAGE = 1000


def thresholds(heartbeat: float, lost: float) -> Thresholds:
    """Return the thresholds of a pool of jobs, with these shorter times in seconds."""
    return replace(
        PRESETS[PoolKind.JOBS],
        heartbeat_every=timedelta(seconds=heartbeat),
        stale_after=timedelta(seconds=lost / 2),
        lost_after=timedelta(seconds=lost),
        give_up_after=timedelta(seconds=lost * 0.9),
        drain_within=timedelta(seconds=10),
    )


@dataclass(slots=True)
class Soak:
    """A pool in a soak test."""

    store: Store
    crew: Crew
    journal: Path
    plane: ControlPlane
    chance: random.Random
    size: int  #: how many workers to keep
    pool_id: PoolId
    unfenced: bool = False  #: late results are accepted
    pushed: list[JobId] = field(default_factory=list)
    links: dict[JobId, tuple[JobId, ...]] = field(default_factory=dict)  #: the parents of jobs, in workflows
    started: int = 0

    async def push(self, count: int, *, deadly: int = 1, **more: Any) -> None:
        """Push jobs of every kind; ``deadly`` percent of them kill their worker. A push without an answer is repeated; every
        acknowledged job must exist at the end."""
        first = len(self.pushed)
        jobs = [
            NewJob(payload=self._payload(deadly), job_id=JobId(f"{self.pool_id}-{first + n}"), backoff=NO_BACKOFF, **more)
            for n in range(count)
        ]
        self.pushed += await insist(lambda: self.store.queue.push(self.pool_id, jobs))

    async def push_workflow(self, after: Sequence[JobId] = ()) -> JobId:
        """Push a workflow of 50 jobs, which begins after other jobs: a first job, four groups of ten, a callback of each
        group, a job after each callback, and a last one. Each runs even if a parent failed. Returns the last job's id."""
        names = [JobId(f"{self.pool_id}-{len(self.pushed) + n}") for n in range(50)]
        first, groups, callbacks, more, last = names[0], names[1:41], names[41:45], names[45:49], names[49]
        links = {first: tuple(after), last: tuple(more)} | dict.fromkeys(groups, (first,))
        for n, callback in enumerate(callbacks):
            links |= {callback: tuple(groups[10 * n : 10 * n + 10]), more[n]: (callback,)}
        jobs = [
            NewJob(
                payload=self._payload(1) | {"steps": 2},
                job_id=name,
                backoff=NO_BACKOFF,
                after=links[name],
                if_failed=IfFailed.RUN,
            )
            for name in names
        ]
        self.pushed += await insist(lambda: self.store.queue.push(self.pool_id, jobs))
        self.links |= links
        return last

    def _payload(self, deadly: int) -> dict[str, Any]:
        fate = self.chance.choices(["done", "stumble", "fail", "die"], weights=[86 - deadly, 10, 4, deadly])[0]
        return {"seconds": self.chance.uniform(0, 0.08), "fate": fate}

    async def fill(self) -> None:
        """Start workers until the pool has ``size`` of them."""
        while len(self.crew.alive) < self.size:
            self.started += 1
            await self.crew.start(f"w{self.started}")

    async def bring_late_result(self) -> bool:
        """Pause a worker that runs a job until another worker has the job; resumed, it sends its result while the other works.

        Returns whether the result was sent: the worker may learn first that it lost the job, and then sends none.
        """
        gate = str(self.journal.with_name(f"gate-{self.pool_id}-{len(self.pushed)}"))
        job = NewJob(payload={"seconds": 0, "fate": "done", "gate": gate}, job_id=JobId(f"{self.pool_id}-{len(self.pushed)}"))
        self.pushed += await insist(lambda: self.store.queue.push(self.pool_id, [job]))
        first = await self._wait_for_entry(self.pushed[-1], "began")
        await self._frozen_until_another_has_it(first)
        Path(f"{gate}-{first['epoch']}").touch()
        self.crew.thaw(first["worker"])
        came = await self._late_result_answered(first)
        Path(f"{gate}-all").touch()
        return came

    async def _late_result_answered(self, began: Mapping[str, Any]) -> bool:
        """Whether the store answers this claim's late result in time: without fencing it accepts it, else refuses it."""
        what, within = ("accepted", 10) if self.unfenced else ("refused", 3)
        try:
            await self._wait_for_entry(began["job"], what, [began["epoch"]], within=within)
        except TimeoutError:
            return False
        return True

    async def _frozen_until_another_has_it(self, began: Mapping[str, Any]) -> None:
        """Pause the worker. On SQLite it may hold the lock that others need; then it is resumed briefly and paused again."""
        worker = began["worker"]
        for _ in range(10):
            self.crew.freeze(worker)
            with contextlib.suppress(TimeoutError):
                await self._wait_for_entry(began["job"], "began", range(began["epoch"] + 1, 100), within=12)
                return
            self.crew.thaw(worker)
            await asyncio.sleep(0.2)
        raise SystemExit(f"{worker} was paused with job {began['job']}, but no other worker took the job")

    async def _wait_for_entry(
        self, job_id: JobId, what: str, epochs: Container[int] = range(1, 100), within: float = PATIENCE
    ) -> Mapping[str, Any]:
        """Wait for the journal's line about one of these claims. Workers that exit meanwhile are replaced."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            for line in Journal(self.journal).lines():
                if (line["job"], line["what"]) == (job_id, what) and line["epoch"] in epochs:
                    return line
            await self.fill()
            await asyncio.sleep(0.05)
        raise TimeoutError(f"expected '{what}' for a claim of {job_id} within {within:g} s")

    async def reap(self) -> None:
        await insist(lambda: self.plane.checker().reap(self.pool_id))

    async def finished(self, within: float = PATIENCE) -> None:
        """Wait until all jobs are finished; workers that die meanwhile are replaced. Raises SystemExit after a timeout."""
        deadline = time.monotonic() + within
        while left := await insist(lambda: self._unfinished()):
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"{left} of {len(self.pushed)} jobs are neither done nor poisoned after {within:.0f} s, for example "
                    f"{await insist(self._one_left)}"
                )
            await self.fill()
            await asyncio.sleep(0.1)

    async def _unfinished(self) -> int:
        counts = await self.store.jobs.counts(self.pool_id, most=_PAGE)
        return counts.pending + counts.claimed + counts.waiting

    async def _one_left(self) -> Job | None:
        found = await self.store.jobs.list(self.pool_id, statuses=[*UNFINISHED], limit=1)
        return found[0] if found else None

    async def verdict(self) -> dict[str, Any]:
        """Return the figures of the test, and the faults found."""
        jobs = await insist(self._everything)
        journal = [*Journal(self.journal).lines()]
        found = records(jobs, journal)
        well = set(self.crew.alive) - self.crew.struck
        early = too_early(found, self.links, await insist(self._ends))
        return {
            **totals(jobs, found),
            "faults": [*faults(self.pushed, found), *foreign(found, well), *early, *repeated_steps(journal)],
        }

    async def _ends(self) -> Mapping[JobId, datetime | None]:
        """Return when the parents of this pool's jobs ended; a parent can be a job of another pool."""
        parents = {parent for each in self.links.values() for parent in each}
        return {parent: (await self.store.jobs.get(parent)).finished_at for parent in sorted(parents)}

    async def _everything(self) -> list[tuple[Job, Sequence[Attempt]]]:
        return [(job, await self.store.jobs.attempts(job.job_id)) for job in await everything(self.store.jobs, self.pool_id)]


def totals(jobs: Sequence[tuple[Job, Sequence[Attempt]]], found: list[Record]) -> dict[str, int]:
    statuses = Counter(job.status for job, _ in jobs)
    outcomes = Counter(attempt.outcome for _, attempts in jobs for attempt in attempts)
    return {
        "jobs": len(jobs),
        "done": statuses[JobStatus.DONE],
        "poisoned": statuses[JobStatus.POISONED],
        "attempts": sum(job.attempts for job, _ in jobs),
        "crashes": outcomes[AttemptOutcome.CRASHED],
        "failures": outcomes[AttemptOutcome.FAILED],
        "late results refused": sum(len(record.refused) for record in found),
        "workers caught with jobs in hand": len(_caught(jobs)),
    }


def _caught(jobs: Sequence[tuple[Job, Sequence[Attempt]]]) -> set[str]:
    attempts = [attempt for _, each in jobs for attempt in each]
    return {attempt.worker_id for attempt in attempts if attempt.outcome is AttemptOutcome.CRASHED}


async def everything(jobs: Jobs, pool_id: PoolId) -> list[Job]:
    found: list[Job] = []
    while page := await jobs.list(pool_id, after=found[-1].job_id if found else None, limit=_PAGE):
        found += page
    return found


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a store call while the store is unavailable."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return await call()
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


@asynccontextmanager
async def soaking(
    url: str,
    folder: Path,
    limits: Thresholds,
    lease: float,
    size: int,
    seed: int,
    *,
    fenced: bool = True,
    name: str = "soak",
    within: Store | None = None,
) -> AsyncIterator[Soak]:
    """A pool with workers, in a new store or in the open store ``within``; at the end all workers exit."""
    journal = folder / f"journal-{name}"
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(url, create=True)) if within is None else within
        group = await stack.enter_async_context(asyncio.TaskGroup())
        made = await store.pools.create(pool(name, PoolKind.JOBS, limits, concurrency=3, lease=lease))
        crew: Crew = (
            TaskCrew(store, name, journal, group, fenced=fenced)
            if url.startswith("memory")
            else ProcessCrew(url, name, journal, fenced=fenced)
        )
        plane = ControlPlane(Settings(store=url, state_dir=folder / "state"), store, SystemClock())
        soak = Soak(store, crew, journal, plane, random.Random(seed), size, made.pool_id, unfenced=not fenced)
        try:
            await soak.fill()
            yield soak
        finally:
            await crew.close()
