"""The loop of a controller. One pass (a beat) observes, decides and acts; ``run`` repeats it until it is stopped."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from drumbeat.core.beat import NewBeat
from drumbeat.core.clock import Clock
from drumbeat.core.decision import ActionWithReason, Decision, action_type
from drumbeat.core.errors import DrumbeatError, Fenced, SpawnError, StoreError
from drumbeat.core.lease import Fence, Lease
from drumbeat.core.pool import PoolId
from drumbeat.runtime.lease import Leadership
from drumbeat.runtime.timeouts import LostRace, describe, next_due, pause, race, with_timeout
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

_LARGEST_DRIFT = timedelta(seconds=10)  #: if the store's clock gains more than this on this machine's clock, it was set forward
_LONG_AGO = timedelta(days=365)  #: given to ``observe`` after a clock jump, so that earlier silence of workers is ignored
_MOST_WAKEUPS = 10  #: a loop that is woken often runs at most this many times as many beats as usual
_AFTER_EXPIRY = timedelta(milliseconds=10)  #: how long after another leader's lease expires to ask for it


class TimedView(Protocol):
    """What ``observe`` returns: the state of the pool at one moment, and the time of that moment."""

    @property
    def now(self) -> datetime:
        """When the pool was observed, by the store's clock."""
        ...


T = TypeVar("T")
V = TypeVar("V", bound=TimedView)
A = TypeVar("A", bound=ActionWithReason)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatReport:
    """The result of one beat (one pass of a controller's loop): what it saw and did, or why it did nothing."""

    led: bool  #: False if another controller leads, or the store did not answer
    n: int | None = None  #: the number of the beat's row in the store; None if no row was written
    epoch: int | None = None
    view: Mapping[str, Any] | None = None
    actions: Sequence[Mapping[str, Any]] = ()  #: each with its type, its reason and, if it failed, its error
    why_not: str | None = None
    error: str | None = None  #: the stage that failed first, and its error
    duration: timedelta = timedelta()
    summary: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class _Draft(Generic[V, A]):
    """The results so far of a beat that is still running."""

    lease: Lease  #: its name is the pool's id
    view: V | None = None
    decision: Decision[A] | None = None
    actions: list[Mapping[str, Any]] = field(default_factory=list)
    error: str | None = None
    timed_out: set[str] = field(default_factory=set)  #: the types of the actions that did not finish in time
    fenced: bool = False  #: whether the store has said that another controller leads

    def failed(self) -> bool:
        return self.error is not None

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Run one stage of the beat in a ``with`` block. An error is logged and recorded; it ends the block, not the loop."""
        try:
            yield
        except Exception as exc:
            trace, pool = not isinstance(exc, DrumbeatError), self.lease.name
            log.error("pool %s: stage %s of a beat failed: %s; the next beat tries again", pool, name, exc, exc_info=trace)
            self.note(f"{name}: {describe(exc)}", exc)

    def note(self, error: str, exc: Exception | None = None) -> None:
        """Record an error; only the first is kept. If ``exc`` is Fenced, also note that another controller leads now."""
        self.error = self.error or error
        self.fenced = self.fenced or isinstance(exc, Fenced)

    def leave_undone(self, actions: Sequence[A], why: str) -> None:
        if actions:
            log.warning("pool %s: skipped the last %d actions of this beat: %s", self.lease.name, len(actions), why)
            self.note(f"act: {len(actions)} actions not done: {why}")
        self.actions.extend(encode_action(action, error=f"not done: {why}") for action in actions)


def encode(view: object) -> Mapping[str, Any]:
    """Convert a dataclass to plain JSON values; values that JSON cannot express become their repr."""
    fields: Mapping[str, Any] = msgspec.to_builtins(view, str_keys=True, enc_hook=repr)
    return fields


def encode_action(action: ActionWithReason, error: str | None = None, cause: str | None = None) -> Mapping[str, Any]:
    """Convert an action to JSON: type, fields and, if it failed, ``error``; ``cause`` is why a worker could not be started."""
    encoded = {"type": action_type(action), **encode(action)}
    failed = {} if error is None else {"error": error}
    return {**encoded, **failed, **({} if cause is None else {"cause": cause})}


async def _as_coroutine(work: Awaitable[T]) -> T:
    return await work


class ControlLoop(Generic[V, A]):
    """A controller's loop. Of all controllers of a pool, only the holder of the lease acts; the others stand by.

    ``observe`` is given how long this controller had no contact with the store before this beat (zero at first), so that it
    does not mark workers lost because of its own outage. ``decide`` has no side effects. ``act`` carries out one action and
    is safe to repeat. ``timeout`` limits ``observe`` and each action, except for actions of the types
    ``unlimited``, which take as long as they need while the lease is renewed. ``run`` calls ``on_beat`` with the report
    of each beat and then, if this controller led the beat, ``after``. ``encode_view`` converts the observed state to the JSON
    that is stored with the beat; ``make_summary`` makes the stored summary from the decision's summary and the encoded actions.
    """

    def __init__(
        self,
        *,
        store: Store,
        pool_id: PoolId,
        leadership: Leadership,
        clock: Clock,
        every: timedelta,
        observe: Callable[[timedelta], Awaitable[V]],
        decide: Callable[[V], Decision[A]],
        act: Callable[[A, Fence], Awaitable[None]],
        timeout: timedelta = timedelta(seconds=60),
        unlimited: tuple[type, ...] = (),
        on_beat: Callable[[BeatReport], None] | None = None,
        encode_view: Callable[[V], Mapping[str, Any] | None] = encode,
        make_summary: Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]]], Mapping[str, Any]] | None = None,
        after: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._store = store
        self._pool_id = pool_id
        self._leadership = leadership
        self._clock = clock
        self._every = every
        self._observe = observe
        self._decide = decide
        self._act = act
        self._timeout = timeout
        self._unlimited = unlimited
        self._on_beat = on_beat
        self._encode_view = encode_view
        self._make_summary = make_summary
        self._after = after
        self._last_seen: timedelta | None = None
        self._store_time: datetime | None = None  #: the store's clock at ``_last_seen``; None: this controller did not lead
        self._free_at: timedelta | None = None  #: when the lease of another leader expires unless it is renewed

    def gap(self) -> timedelta:
        """Return how long ago this controller last reached the store; zero if it never has."""
        return timedelta() if self._last_seen is None else self._clock.elapsed() - self._last_seen

    async def beat(self) -> BeatReport:
        """Run one beat. Errors go to the report and to the beat's row in the store; only cancellation is raised."""
        began, self._free_at = self._clock.elapsed(), None
        try:
            lease = await self._leadership.hold()
        except StoreError as exc:
            log.warning("pool %s: failed to get this controller's lease: %s; skipping this beat", self._pool_id, exc)
            return BeatReport(led=False, error=f"lease: {exc}", duration=self._clock.elapsed() - began)
        if lease is None:
            return await self._stand_by(began)
        draft: _Draft[V, A] = _Draft(lease=lease)
        async with self._leadership.renewed():
            await self._go_through_stages(draft)
        report = await self._record(draft, self._clock.elapsed() - began)
        if draft.fenced:
            self._leadership.forget()
        return report

    async def _stand_by(self, began: timedelta) -> BeatReport:
        self._last_seen, self._store_time = began, None
        leader: str | None = None
        with contextlib.suppress(StoreError):
            leader, free_in = await self._leadership.held_by()
            self._free_at = self._clock.elapsed() + free_in
        return BeatReport(
            led=False, why_not=f"standing by: {leader or 'another'} leads", duration=self._clock.elapsed() - began
        )

    async def _go_through_stages(self, draft: _Draft[V, A]) -> None:
        with draft.stage("observe"):
            draft.view = await self._observe_pool()
        if draft.failed():
            return
        with draft.stage("decide"):
            draft.decision = self._decide(draft.view)
        if draft.failed():
            return
        with draft.stage("act"):
            await self._do_all(draft, draft.decision.actions)

    async def _observe_pool(self) -> V:
        began = self._clock.elapsed()
        view = await self._in_time(self._observe(self.gap()))
        if jump := self._clock_jump(view):
            log.warning("the store's clock jumped ahead by %.0f s; earlier silence of workers is ignored", jump.total_seconds())
            view = await self._in_time(self._observe(_LONG_AGO))
        self._last_seen, self._store_time = began, view.now
        return view

    def _clock_jump(self, view: V) -> timedelta:
        """Return how far the store's clock has jumped ahead of this machine's since the last beat; zero if it only drifted."""
        if self._store_time is None:
            return timedelta()
        jump = view.now - self._store_time - self.gap()
        return jump if jump > _LARGEST_DRIFT else timedelta()

    async def _do_all(self, draft: _Draft[V, A], actions: Sequence[A]) -> None:
        """Carry out the actions in turn. Once an action times out, later actions of its type wait for the next beat.

        Otherwise a provider that hangs would use up the timeout once for each action.
        """
        for n, action in enumerate(actions):
            if (name := action_type(action)) in draft.timed_out:
                why = f"not tried: an earlier {name} in this beat did not finish in time"
                draft.actions.append(encode_action(action, error=why))
                continue
            if not await self._still_leads(draft.lease):
                draft.leave_undone(actions[n:], "this controller's lease may have expired")
                return
            if not await self._do(draft, action):
                draft.leave_undone(actions[n + 1 :], "another controller leads now")
                return

    async def _still_leads(self, lease: Lease) -> bool:
        if self._leadership.fresh:
            return True
        try:
            held = await self._leadership.hold()
        except StoreError as exc:
            log.warning("pool %s: failed to renew the controller's lease: %s; ending this beat early", self._pool_id, exc)
            return False
        return held is not None and held.epoch == lease.epoch and self._leadership.trusted

    async def _do(self, draft: _Draft[V, A], action: A) -> bool:
        """Carry out one action; its error does not stop later actions. Returns False if another controller leads now."""
        worker = getattr(action, "worker_id", None) or getattr(getattr(action, "worker", None), "worker_id", "")
        what = f"{action_type(action)} {worker}".rstrip()
        log.info("pool %s: carrying out %s, because: %s", self._pool_id, what, action.reason)
        error: str | None = None
        cause: str | None = None
        try:
            doing = self._act(action, draft.lease.fence)
            await (doing if isinstance(action, self._unlimited) else self._in_time(doing))
        except Fenced as exc:
            error = str(exc)
            draft.note(f"act: {error}", exc)
        except Exception as exc:
            error = describe(exc)
            cause = exc.cause.value if isinstance(exc, SpawnError) else None
            if isinstance(exc, TimeoutError):
                draft.timed_out.add(action_type(action))
            log.error("pool %s: %s failed: %s", self._pool_id, what, error, exc_info=not isinstance(exc, DrumbeatError))
        draft.actions.append(encode_action(action, error=error, cause=cause))
        return not draft.fenced

    async def _in_time(self, work: Awaitable[T]) -> T:
        try:
            return await race(self._clock.sleep(self._timeout), _as_coroutine(work))
        except LostRace:
            raise TimeoutError(f"did not finish within {self._timeout.total_seconds():g} s and was cancelled") from None

    async def _record(self, draft: _Draft[V, A], duration: timedelta) -> BeatReport:
        row: NewBeat | None = None
        number: int | None = None
        with draft.stage("record"):
            row = self._row(draft, duration)
            append = self._store.beats.append(self._pool_id, row, fence=draft.lease.fence)
            number = (await with_timeout(self._clock, self._timeout, append)).n
        return BeatReport(
            led=True,
            n=number,
            epoch=draft.lease.epoch,
            view=row.view if row else None,
            actions=draft.actions,
            why_not=row.why_not if row else None,
            error=draft.error,
            duration=duration,
            summary=row.summary if row else {},
        )

    def _row(self, draft: _Draft[V, A], duration: timedelta) -> NewBeat:
        decision: Decision[A] = draft.decision or Decision()
        return NewBeat(
            owner=draft.lease.owner,
            epoch=draft.lease.epoch,
            view=None if draft.view is None else self._encode_view(draft.view),
            actions=tuple(draft.actions),
            why_not=decision.why_not,
            error=draft.error,
            duration=duration,
            summary=decision.summary if self._make_summary is None else self._make_summary(decision.summary, draft.actions),
        )

    async def run(self, stop: asyncio.Event, wake: asyncio.Event | None = None) -> None:
        """Run beats on a fixed schedule until ``stop`` is set, then release the lease. A slow beat does not shift the schedule.

        While another controller leads, this one asks for the lease as soon as it expires, so a dead leader is replaced at once.
        Setting ``wake`` causes an early beat, at most ten per interval. To stop without delay, set ``stop`` and then ``wake``.
        """
        due = self._clock.elapsed()
        try:
            while not stop.is_set():
                began = self._clock.elapsed()
                await self._beat_safely()
                now = self._clock.elapsed()
                due = due if due > now else next_due(due, self._every, now)
                rest = min(due, self._lease_free_at(due)) - now
                if await pause(self._clock, rest, wake or stop) and wake is not None:
                    wake.clear()
                    await pause(self._clock, began + self._every / _MOST_WAKEUPS - self._clock.elapsed(), stop)
        finally:
            await self.resign()

    def _lease_free_at(self, due: timedelta) -> timedelta:
        """Return when to run the next beat: at ``due`` or, if another controller leads, just after the end of its lease."""
        return due if self._free_at is None else max(self._free_at, self._clock.elapsed()) + _AFTER_EXPIRY

    async def resign(self) -> None:
        """Release the lease, so that another controller can lead at once."""
        await self._leadership.resign()

    async def _beat_safely(self) -> None:
        try:
            report = await self.beat()
            if self._on_beat is not None:
                self._on_beat(report)
            if report.led and self._after is not None:
                await self._after()
        except Exception:
            log.exception("pool %s: a beat, or its report or cleanup, failed; continuing with the next beat", self._pool_id)
