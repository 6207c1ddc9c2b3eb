"""One look at a run: its row, its workers, what they measured, and what the database under test says of itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from drumbeat.bench.model import ControllerState, Figures, RunPlan, RunView, ServerProbe, Window
from drumbeat.bench.model.steering import SAMPLES_ARRIVE_WITHIN
from drumbeat.bench.results.merge import Gathering
from drumbeat.bench.run_state import kept_plan, kept_state
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
    """How many sessions the server said wait, at one look."""

    at: datetime
    waiting: int
    lock_waits: int | None


class Observer:
    """The eyes of one run's orchestrator. What it keeps is only what it need not read twice."""

    def __init__(self, store: Store, spawner: Spawner, run_id: RunId, probe: Callable[[], ServerProbe | None]) -> None:
        self._store = store
        self._spawner = spawner
        self._run_id = run_id
        self._pool_id = PoolId(run_id)
        self._probe = probe
        self._plan: RunPlan | None = None
        self._looked_at: datetime | None = None
        self._waits: list[_Waits] = []

    async def observe(self, gap: timedelta) -> RunView:
        """The run as it is now."""
        run = await self._store.runs.get(self._run_id)
        sight = await take_snapshot(self._store, self._spawner, await self._store.pools.get(self._pool_id), gap)
        plan = self._plan = self._plan or kept_plan(run)
        state = kept_state(run)
        probe = self._probe()
        self._note_waiting(sight.now, probe)
        return RunView(
            run_id=run.run_id,
            now=sight.now,
            looking_since=sight.looking_since,
            status=run.status,
            phase=run.phase,
            started_at=run.started_at,
            warmup_started_at=run.warmup_started_at,
            warmup_ended_at=run.warmup_ended_at,
            completion_reason=run.completion_reason,
            plan=plan,
            state=state,
            thresholds=sight.thresholds,
            workers=sight.workers,
            instances=sight.instances,
            recent=await self._recent(sight.now),
            figures=await self._figures(window_of(state), sight.now),
            probe=probe,
        )

    async def _recent(self, now: datetime) -> Figures:
        gathering = Gathering(now - RECENT, now, by_kind=False)
        gathering.add(await self._store.samples.list(self._pool_id, since=now - RECENT, limit=_MOST_SAMPLES))
        return gathering.figures()

    async def _figures(self, window: Window | None, now: datetime) -> Figures | None:
        """What a window came to, once it has passed and its last samples can be expected."""
        if window is None or now < window.until + SAMPLES_ARRIVE_WITHIN:
            return None
        gathering = Gathering(window.since, window.until)
        since, last = window.since, window.until + SAMPLES_ARRIVE_WITHIN * 2
        while since < last:
            until = min(since + _SLICE, last)
            gathering.add(await self._store.samples.list(self._pool_id, since=since, until=until, limit=_MOST_SAMPLES))
            since = until
        waits = await self._waits_in(window)
        return gathering.figures(_mean([each.waiting for each in waits]), _mean([each.lock_waits for each in waits]))

    def _note_waiting(self, now: datetime, probe: ServerProbe | None) -> None:
        self._looked_at = self._looked_at or now
        if probe is not None and probe.waiting is not None:
            recent = (each for each in self._waits if each.at > now - timedelta(minutes=15))
            self._waits = [*recent, _Waits(at=now, waiting=probe.waiting, lock_waits=probe.lock_waits)]

    async def _waits_in(self, window: Window) -> list["_Waits"]:
        """How many sessions waited at each look; what was seen before this observer was made is in the beats."""
        seen = [each for each in self._waits if window.since <= each.at <= window.until]
        if self._looked_at is None or self._looked_at > window.since:
            seen += await self._waits_before(window)
        return seen

    async def _waits_before(self, window: Window) -> list["_Waits"]:
        until = min(self._looked_at or window.until, window.until)
        beats = await self._store.beats.list(self._pool_id, since=window.since)
        told = [(beat.at, (beat.view or {}).get("probe") or {}) for beat in beats if beat.at < until]
        return [
            _Waits(at=at, waiting=probe["waiting"], lock_waits=probe.get("lock_waits"))
            for at, probe in told
            if probe.get("waiting") is not None
        ]


def _mean(counts: Sequence[int | None]) -> float | None:
    known = [count for count in counts if count is not None]
    return sum(known) / len(known) if known else None


def window_of(state: ControllerState) -> Window | None:
    """What the load mode wants measured."""
    if state.find_max is not None:
        return state.find_max.window
    return state.qps.window if state.qps is not None else None
