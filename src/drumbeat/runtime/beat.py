"""One pass of a control loop, observe → decide → act, and its repetition until told to stop."""

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
from drumbeat.core.decision import Decision, Reasoned, action_type
from drumbeat.core.errors import DrumbeatError, Fenced, StoreError
from drumbeat.core.lease import Fence, Lease
from drumbeat.core.pool import PoolId
from drumbeat.runtime.lease import Leadership
from drumbeat.runtime.timeouts import LostRace, describe, next_due, pause, race, with_timeout
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

_LARGEST_DRIFT = timedelta(seconds=10)  #: if the store's clock gains more than this on ours, it jumped
_LONG_AGO = timedelta(days=365)  #: a gap so long that no earlier silence counts
_MOST_WAKEUPS = 10  #: a woken loop beats at most this many times as often as usual
_AFTER_EXPIRY = timedelta(milliseconds=10)  #: added to the time when the leader's lease expires


class Dated(Protocol):
    """The view that a loop observes."""

    @property
    def now(self) -> datetime:
        """The time of the view, by the store's clock."""
        ...


T = TypeVar("T")
V = TypeVar("V", bound=Dated)
A = TypeVar("A", bound=Reasoned)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatReport:
    """The result of one pass."""

    led: bool  #: False: another controller leads, or the store did not answer
    n: int | None = None  #: the number of its row; None when none was written
    epoch: int | None = None
    view: Mapping[str, Any] | None = None
    actions: Sequence[Mapping[str, Any]] = ()  #: each with its type and reason and, if it was not done, its error
    why_not: str | None = None
    error: str | None = None  #: the first stage that failed, and how
    duration: timedelta = timedelta()
    summary: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class _Draft(Generic[V, A]):
    """A beat in progress."""

    lease: Lease
    view: V | None = None
    decision: Decision[A] | None = None
    actions: list[Mapping[str, Any]] = field(default_factory=list)
    error: str | None = None
    fenced: bool = False  #: another controller was found to lead

    def failed(self) -> bool:
        return self.error is not None

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Catch and record errors: they end the stage, not the loop."""
        try:
            yield
        except Exception as exc:
            log.error("beat: %s failed: %s", name, exc, exc_info=not isinstance(exc, DrumbeatError))
            self.note(f"{name}: {describe(exc)}", exc)

    def note(self, error: str, exc: Exception | None = None) -> None:
        """Keep the first error; after a Fenced error this controller no longer counts as the leader."""
        self.error = self.error or error
        self.fenced = self.fenced or isinstance(exc, Fenced)

    def leave_undone(self, actions: Sequence[A], why: str) -> None:
        if actions:
            log.warning("%d actions not done: %s", len(actions), why)
            self.note(f"act: {len(actions)} actions not done: {why}")
        self.actions.extend(encode_action(action, error=f"not done: {why}") for action in actions)


def encode(view: object) -> Mapping[str, Any]:
    """A frozen dataclass as plain JSON values; values without a JSON form become their repr."""
    fields: Mapping[str, Any] = msgspec.to_builtins(view, str_keys=True, enc_hook=repr)
    return fields


def encode_action(action: Reasoned, error: str | None = None) -> Mapping[str, Any]:
    """An action as it is stored: its type, its fields and, if it was not done, its error."""
    encoded = {"type": action_type(action), **encode(action)}
    return encoded if error is None else {**encoded, "error": error}


async def _as_coroutine(work: Awaitable[T]) -> T:
    return await work


class ControlLoop(Generic[V, A]):
    """Observes, decides and acts, under a lease.

    ``observe`` gets the time for which this controller saw nothing before this beat (zero at its first), so that it does not
    blame workers for its own outage. ``decide`` is pure. ``act`` carries out one action under the fence, and is safe to
    repeat. ``patience`` is the timeout of ``observe`` and of each action. ``on_beat`` receives the report of each beat of
    ``run``. ``keep`` converts a view to what its row stores; ``sum_up`` makes the stored summary from the decision's summary
    and the encoded actions. ``after`` runs after each beat of ``run`` that led.
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
        patience: timedelta = timedelta(seconds=60),
        on_beat: Callable[[BeatReport], None] | None = None,
        keep: Callable[[V], Mapping[str, Any] | None] = encode,
        sum_up: Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]]], Mapping[str, Any]] | None = None,
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
        self._patience = patience
        self._on_beat = on_beat
        self._keep = keep
        self._sum_up = sum_up
        self._after = after
        self._last_seen: timedelta | None = None
        self._store_time: datetime | None = None  #: the store's clock at that time; None if this controller only stood by
        self._free_at: timedelta | None = None  #: while another leads: when its lease expires unless renewed

    def gap(self) -> timedelta:
        """Time since this controller last saw the store, leading or standing by; zero if it never did."""
        return timedelta() if self._last_seen is None else self._clock.elapsed() - self._last_seen

    async def beat(self) -> BeatReport:
        """Do one pass. Errors go to the report and to the beat's row; only cancellation is raised."""
        began, self._free_at = self._clock.elapsed(), None
        try:
            lease = await self._leadership.hold()
        except StoreError as exc:
            log.warning("beat: failed to acquire the lease: %s", exc)
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
            log.warning("the store's clock jumped ahead by %.0f s; earlier silence is not counted", jump.total_seconds())
            view = await self._in_time(self._observe(_LONG_AGO))
        self._last_seen, self._store_time = began, view.now
        return view

    def _clock_jump(self, view: V) -> timedelta:
        """How far the store's clock gained on this controller's since the last view; zero if it is only drift."""
        if self._store_time is None:
            return timedelta()
        jump = view.now - self._store_time - self.gap()
        return jump if jump > _LARGEST_DRIFT else timedelta()

    async def _do_all(self, draft: _Draft[V, A], actions: Sequence[A]) -> None:
        for n, action in enumerate(actions):
            if not await self._still_leads(draft.lease):
                draft.leave_undone(actions[n:], "the lease is no longer trusted")
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
            log.warning("beat: failed to renew the lease: %s", exc)
            return False
        return held is not None and held.epoch == lease.epoch and self._leadership.trusted

    async def _do(self, draft: _Draft[V, A], action: A) -> bool:
        """Do one action; its error does not stop the others. False once another controller leads."""
        log.info("%s: %s", action_type(action), action.reason)
        error: str | None = None
        try:
            await self._in_time(self._act(action, draft.lease.fence))
        except Fenced as exc:
            error = str(exc)
            draft.note(f"act: {error}", exc)
        except Exception as exc:
            error = describe(exc)
            log.error("%s failed: %s", action_type(action), error, exc_info=not isinstance(exc, DrumbeatError))
        draft.actions.append(encode_action(action, error=error))
        return not draft.fenced

    async def _in_time(self, work: Awaitable[T]) -> T:
        try:
            return await race(self._clock.sleep(self._patience), _as_coroutine(work))
        except LostRace:
            raise TimeoutError(f"expected it to finish within {self._patience.total_seconds():g} s; gave up") from None

    async def _record(self, draft: _Draft[V, A], duration: timedelta) -> BeatReport:
        row: NewBeat | None = None
        number: int | None = None
        with draft.stage("record"):
            row = self._row(draft, duration)
            append = self._store.beats.append(self._pool_id, row, fence=draft.lease.fence)
            number = (await with_timeout(self._clock, self._patience, append)).n
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
            view=None if draft.view is None else self._keep(draft.view),
            actions=tuple(draft.actions),
            why_not=decision.why_not,
            error=draft.error,
            duration=duration,
            summary=decision.summary if self._sum_up is None else self._sum_up(decision.summary, draft.actions),
        )

    async def run(self, stop: asyncio.Event, wake: asyncio.Event | None = None) -> None:
        """Beat on a fixed schedule until ``stop`` is set, then give up the lease. A slow beat does not delay later ones.

        While another controller leads, this one asks for the lease as soon as it expires, so a dead leader is replaced at
        once. ``wake`` triggers an early beat, at most ten times as often as usual; it must be set when ``stop`` is.
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
        """When the leader's lease expires unless renewed; ``due`` if this controller leads."""
        return due if self._free_at is None else max(self._free_at, self._clock.elapsed()) + _AFTER_EXPIRY

    async def resign(self) -> None:
        """Give up the lease, so that another controller can lead at once."""
        await self._leadership.resign()

    async def _beat_safely(self) -> None:
        try:
            report = await self.beat()
            if self._on_beat is not None:
                self._on_beat(report)
            if report.led and self._after is not None:
                await self._after()
        except Exception:
            log.exception("a beat failed; continuing with the next one")
