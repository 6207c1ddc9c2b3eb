"""Reads the current state of a run for the next decision: its row, its workers, their figures, and the server statistics."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from drumbeat.bench.model import ControllerState, Figures, RunPlan, RunView, ServerProbe, Window
from drumbeat.bench.model.steering import SAMPLES_ARRIVE_WITHIN
from drumbeat.bench.results.merge import WindowMerger
from drumbeat.bench.run_state import stored_plan, stored_state
from drumbeat.core.pool import PoolId
from drumbeat.core.run import RunId
from drumbeat.runtime.snapshot import take_snapshot
from drumbeat.spawn.interface import Spawner
from drumbeat.store.interface import Store

RECENT = timedelta(seconds=3)
_SLICE = timedelta(seconds=10)
_MOST_SAMPLES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waits:
    """How many database sessions were waiting at one reading of the server statistics."""

    at: datetime
    waiting: int
    lock_waits: int | None


class _WindowSamples:
    """The samples of one time window, read in slices of time.

    What has been read is kept. So if reading a long window takes longer than a beat may take, the next beat continues."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.merger = WindowMerger(window.since, window.until)
        self._read_to = window.since

    async def read(self, store: Store, pool_id: PoolId) -> None:
        """Read the samples that are not read yet, and once more those dated after the window, as new ones may have arrived."""
        since, last = self._read_to, self.window.until + SAMPLES_ARRIVE_WITHIN * 2
        while since < last:
            until = min(since + _SLICE, last if since >= self.window.until else self.window.until)
            self.merger.add(await store.samples.list(pool_id, since=since, until=until, limit=_MOST_SAMPLES))
            since = until
            self._read_to = min(until, self.window.until)


class Observer:
    """Reads the state of one run for its orchestrator. Caches only what cannot change: the plan, past server statistics, and
    samples of a window that is over.

    If the engine cannot list its workers, only their rows in the store are used."""

    def __init__(self, store: Store, spawner: Spawner, run_id: RunId, probe: Callable[[], ServerProbe | None]) -> None:
        self._store = store
        self._spawner = spawner
        self._run_id = run_id
        self._pool_id = PoolId(run_id)
        self._probe = probe
        self._plan: RunPlan | None = None
        self._observing_since: datetime | None = None
        self._waits: list[_Waits] = []
        self._measured: _WindowSamples | None = None

    async def observe(self, gap: timedelta) -> RunView:
        """Read the run, its workers and figures from the store. ``gap``: time since this controller last reached the store."""
        run = await self._store.runs.get(self._run_id)
        pool = await self._store.pools.get(self._pool_id)
        snapshot = await take_snapshot(self._store, self._spawner, pool, gap, unlisted_too=True)
        plan = self._plan = self._plan or stored_plan(run)
        state = stored_state(run)
        probe = self._probe()
        self._note_waiting(snapshot.now, probe)
        return RunView(
            run_id=run.run_id,
            now=snapshot.now,
            looking_since=snapshot.looking_since,
            status=run.status,
            phase=run.phase,
            started_at=run.started_at,
            warmup_started_at=run.warmup_started_at,
            warmup_ended_at=run.warmup_ended_at,
            completion_reason=run.completion_reason,
            plan=plan,
            state=state,
            thresholds=snapshot.thresholds,
            workers=snapshot.workers,
            instances=snapshot.instances,
            recent=await self._recent(snapshot.now),
            figures=await self._figures(window_of(state), snapshot.now),
            probe=probe,
            engine=self._spawner.traits.name,
            usual_start=self._spawner.traits.usual_start,
            unlisted=snapshot.unlisted,
        )

    async def _recent(self, now: datetime) -> Figures:
        gathering = WindowMerger(now - RECENT, now, by_kind=False)
        gathering.add(await self._store.samples.list(self._pool_id, since=now - RECENT, limit=_MOST_SAMPLES))
        return gathering.figures()

    async def _figures(self, window: Window | None, now: datetime) -> Figures | None:
        """Return the figures measured in a time window; None until it is over and its last samples should have arrived."""
        if window is None or now < window.until + SAMPLES_ARRIVE_WITHIN:
            return None
        if self._measured is None or self._measured.window != window:
            self._measured = _WindowSamples(window)
        await self._measured.read(self._store, self._pool_id)
        waits = await self._waits_in(window)
        mean_waiting, mean_lock_waits = _mean([each.waiting for each in waits]), _mean([each.lock_waits for each in waits])
        return self._measured.merger.figures(mean_waiting, mean_lock_waits)

    def _note_waiting(self, now: datetime, probe: ServerProbe | None) -> None:
        self._observing_since = self._observing_since or now
        if probe is not None and probe.waiting is not None:
            recent = (each for each in self._waits if each.at > now - timedelta(minutes=15))
            self._waits = [*recent, _Waits(at=now, waiting=probe.waiting, lock_waits=probe.lock_waits)]

    async def _waits_in(self, window: Window) -> list["_Waits"]:
        """Return the readings of waiting sessions in a window. Readings made before this observer began come from the store."""
        waits = [each for each in self._waits if window.since <= each.at <= window.until]
        if self._observing_since is None or self._observing_since > window.since:
            waits += await self._waits_before(window)
        return waits

    async def _waits_before(self, window: Window) -> list["_Waits"]:
        until = min(self._observing_since or window.until, window.until)
        beats = await self._store.beats.list(self._pool_id, since=window.since)
        probes = [(beat.at, (beat.view or {}).get("probe") or {}) for beat in beats if beat.at < until]
        return [
            _Waits(at=at, waiting=probe["waiting"], lock_waits=probe.get("lock_waits"))
            for at, probe in probes
            if probe.get("waiting") is not None
        ]


def _mean(counts: Sequence[int | None]) -> float | None:
    known = [count for count in counts if count is not None]
    return sum(known) / len(known) if known else None


def window_of(state: ControllerState) -> Window | None:
    """Return the time window that the load mode measures now; None if it measures none."""
    if state.find_max is not None:
        return state.find_max.window
    return state.qps.window if state.qps is not None else None
