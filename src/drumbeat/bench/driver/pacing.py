"""Decides when operations begin: whenever a connection is free (closed loop), at a rate (open loop), or not at all."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

AT_ONCE = 0  #: given instead of a due time: the operation is due when it begins
STOP = -1  #: given instead of a due time: the connection must begin no operation
_TICK_NS = 200_000  #: the shortest time between two wake-ups of the pacer; a shorter one only costs CPU
_IDLE_TICK_NS = 1_000_000  #: wait of the pacer while all connections are busy; when free, they take due operations themselves
_LONG_NS = 5_000_000


class Waiter(Protocol):
    """A connection that waits until it is told to begin an operation."""

    def wake(self, due: int) -> None:
        """End the wait, to begin an operation with due time ``due`` (``AT_ONCE``: without one), or none if it is ``STOP``."""
        ...


class FixedSchedule:
    """Due times at one rate: operation i is due at ``start + i / rate``, even if earlier operations were late."""

    def __init__(self, start: int, per_second: float) -> None:
        self._start = start
        self._interval = 1e9 / per_second
        self._next = 0
        self._end: int | None = None

    @property
    def due(self) -> int | None:
        """When the next operation is due, in monotonic nanoseconds; None if the schedule has ended."""
        return None if self._next == self._end else self._start + int(self._next * self._interval)

    def take(self, now: int) -> int | None:
        """Remove the next operation from the schedule and return its due time; None if it is not due yet."""
        due = self.due
        if due is None or due > now:
            return None
        self._next += 1
        return due

    def overdue(self, now: int) -> int:
        begun = int((now - self._start) // self._interval) + 1
        return max(0, (begun if self._end is None else self._end) - self._next)

    def end(self, now: int) -> int:
        """End the schedule: only operations already due remain. Returns when the next one would have been due."""
        self._end = self._next + self.overdue(now)
        return self._start + int(self._end * self._interval)

    def drop_overdue(self, now: int) -> None:
        """Drop the operations that are due but were not taken."""
        self._next += self.overdue(now)


class RateSchedule:
    """Due times at a rate that can change. Operations due before a change keep their due times; a change to None drops them."""

    def __init__(self) -> None:
        self.per_second: float | None = None  #: None if operations have no due times; 0 if none become due
        self._schedules: deque[FixedSchedule] = deque()

    def set(self, per_second: float | None, now: int) -> None:
        """Change the rate from now on. Setting the same rate again has no effect."""
        if per_second == self.per_second:
            return
        upcoming = self._schedules[-1].end(now) if self._schedules and self.per_second else now
        self.per_second = per_second
        if per_second is None:
            self._schedules.clear()
        elif per_second > 0:
            self._schedules.append(FixedSchedule(min(upcoming, now + int(1e9 / per_second)), per_second))

    def restart(self, now: int) -> None:
        """Start again from now, without operations that were due before."""
        self._schedules.clear()
        if self.per_second:
            self._schedules.append(FixedSchedule(now, self.per_second))

    def stop(self) -> None:
        """Drop all due operations; none become due until ``restart``."""
        self._schedules.clear()

    def take(self, now: int) -> int | None:
        """Remove the next operation from the schedule and return its due time; None if it is not due yet."""
        due = self.due
        return None if due is None or due > now else self._schedules[0].take(now)

    @property
    def due(self) -> int | None:
        """When the next operation is due, in monotonic nanoseconds; None if none becomes due at this rate."""
        while self._schedules and (self._schedules[0].due is None):
            self._schedules.popleft()
        return self._schedules[0].due if self._schedules else None

    def overdue(self, now: int) -> int:
        return sum(schedule.overdue(now) for schedule in self._schedules)

    def drop_overdue(self, now: int) -> None:
        for schedule in self._schedules:
            schedule.drop_overdue(now)


class PacingGate:
    """Tells connections when to begin an operation. Thread-safe; calls a connection's ``wake`` in any thread."""

    def __init__(self, *, hottest_first: bool = False, now: Callable[[], int] = time.monotonic_ns) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._idle: deque[Waiter] = deque()
        self._next = self._idle.pop if hottest_first else self._idle.popleft
        self._pace = RateSchedule()
        self.accepting = False
        self.free = False  #: whether operations may begin at any time, without a call of ``turn``

    def turn(self, waiter: Waiter) -> int | None:
        """Return the due time of an operation to begin now, or ``AT_ONCE``. None: wait until ``waiter.wake`` is called."""
        with self._lock:
            if self.free:
                return AT_ONCE
            due = self._pace.take(self._now())
            if due is None:
                self._idle.append(waiter)
            return due

    def leave(self, waiter: Waiter) -> None:
        """Wake a waiting connection with ``STOP``, so that it can end. Does nothing if it is not waiting."""
        with self._lock:
            try:
                self._idle.remove(waiter)
            except ValueError:
                return
        waiter.wake(STOP)

    def fire(self) -> None:
        """Wake a waiting connection for each operation that is due."""
        with self._lock:
            now = self._now()
            while self._idle and (due := self._pace.take(now)) is not None:
                self._next().wake(due)

    def set_rate(self, per_second: float | None) -> None:
        with self._lock:
            self._pace.set(per_second, self._now())
            if not self.accepting:
                self._pace.stop()
            self._open()

    def drop_overdue(self) -> None:
        """Drop the operations that are due but have not begun."""
        with self._lock:
            self._pace.drop_overdue(self._now())

    def accept(self, accepting: bool) -> None:
        with self._lock:
            if accepting == self.accepting:
                return
            self.accepting = accepting
            if accepting:
                self._pace.restart(self._now())
            else:
                self._pace.stop()
            self._open()

    def next_fire(self, now: int) -> int | None:
        """Return when to call ``fire`` next; None if it need not be called before the rate or ``accepting`` changes."""
        with self._lock:
            due = self._pace.due
            return due if due is None or self._idle else now + _IDLE_TICK_NS

    @property
    def backlog(self) -> int:
        """How many operations are due but wait for a free connection."""
        with self._lock:
            return 0 if self._idle else self._pace.overdue(self._now())

    def _open(self) -> None:
        """Update ``free`` (whether operations can begin at any time); if it is true, wake all waiting connections."""
        self.free = self.accepting and self._pace.per_second is None
        while self.free and self._idle:
            self._next().wake(AT_ONCE)


class Pacer:
    """A thread that calls ``fire`` when an operation is due; more exact than event loop timers, without busy waiting."""

    def __init__(self, gate: PacingGate, fire: Callable[[], object]) -> None:
        self._gate = gate
        self._fire = fire
        self._changed = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="drumbeat-pacer", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """End a long sleep, because the rate or ``accepting`` has changed."""
        self._changed.set()

    def end(self) -> None:
        self._ended = True
        self._changed.set()
        self._thread.join()

    def _run(self) -> None:
        earliest = 0
        while not self._ended:
            now = time.monotonic_ns()
            due = self._gate.next_fire(now)
            if due is None:
                self._changed.wait()
                self._changed.clear()
            elif (at := max(due, earliest)) <= now:
                self._fire()
                earliest = now + _TICK_NS
            else:
                self._sleep(at - now)

    def _sleep(self, nanoseconds: int) -> None:
        """Sleep this long if it is at most 5 ms. Otherwise sleep 2.5 ms less, or until ``wake`` is called; the caller then
        sleeps for the rest."""
        if nanoseconds <= _LONG_NS:
            time.sleep(nanoseconds / 1e9)
        elif self._changed.wait((nanoseconds - _LONG_NS / 2) / 1e9):
            self._changed.clear()
