"""Pacing: decides when operations may begin (at once, when they are due, or not at all)."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

AT_ONCE = 0  #: a turn without a due time: it begins when it is taken
STOP = -1  #: instead of a turn: the connection must stop
_TICK_NS = 200_000  #: the pacer wakes no more often than this; more would cost CPU and gain nothing
_IDLE_TICK_NS = 1_000_000  #: while every connection is busy, each takes the next due operation by itself
_LONG_NS = 5_000_000


class Waiter(Protocol):
    """A connection that waits for its turn."""

    def wake(self, due: int) -> None:
        """Give the connection its turn: the due time of an operation, or ``STOP``."""
        ...


class FixedSchedule:
    """The i-th operation is due at ``start + i / rate``, even if earlier operations were late."""

    def __init__(self, start: int, per_second: float) -> None:
        self._start = start
        self._interval = 1e9 / per_second
        self._next = 0
        self._end: int | None = None

    @property
    def due(self) -> int | None:
        """When the next operation is due, in monotonic nanoseconds; None when there is none left."""
        return None if self._next == self._end else self._start + int(self._next * self._interval)

    def take(self, now: int) -> int | None:
        """Take the next operation if it is due: its due time, or None."""
        due = self.due
        if due is None or due > now:
            return None
        self._next += 1
        return due

    def overdue(self, now: int) -> int:
        begun = int((now - self._start) // self._interval) + 1
        return max(0, (begun if self._end is None else self._end) - self._next)

    def end(self, now: int) -> int:
        """Let nothing more become due; operations already due stay. Returns when the next one would have been due."""
        self._end = self._next + self.overdue(now)
        return self._start + int(self._end * self._interval)

    def forgive(self, now: int) -> None:
        """Drop the operations that are due."""
        self._next += self.overdue(now)


class RateSchedule:
    """A schedule whose rate may change. Operations due before a change keep their due times."""

    def __init__(self) -> None:
        self.per_second: float | None = None  #: None: operations have no due times; 0: nothing becomes due
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
        """Start from now, without the operations that were due before."""
        self._schedules.clear()
        if self.per_second:
            self._schedules.append(FixedSchedule(now, self.per_second))

    def stop(self) -> None:
        """Let nothing be due until ``restart``."""
        self._schedules.clear()

    def take(self, now: int) -> int | None:
        """Take the next operation if it is due: its due time, or None."""
        due = self.due
        return None if due is None or due > now else self._schedules[0].take(now)

    @property
    def due(self) -> int | None:
        """When the next operation is due; None: nothing becomes due at the current rate."""
        while self._schedules and (self._schedules[0].due is None):
            self._schedules.popleft()
        return self._schedules[0].due if self._schedules else None

    def overdue(self, now: int) -> int:
        return sum(schedule.overdue(now) for schedule in self._schedules)

    def forgive(self, now: int) -> None:
        for schedule in self._schedules:
            schedule.forgive(now)


class PacingGate:
    """Gives connections their turns. Thread-safe; a waiter's ``wake`` runs in the thread that gives the turn."""

    def __init__(self, *, hottest_first: bool = False, now: Callable[[], int] = time.monotonic_ns) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._idle: deque[Waiter] = deque()
        self._next = self._idle.pop if hottest_first else self._idle.popleft
        self._pace = RateSchedule()
        self.accepting = False
        self.free = False  #: operations may begin at any time, without asking for a turn

    def turn(self, waiter: Waiter) -> int | None:
        """The due time of an operation that may begin now, or ``AT_ONCE``; None: the waiter is woken later with one."""
        with self._lock:
            if self.free:
                return AT_ONCE
            due = self._pace.take(self._now())
            if due is None:
                self._idle.append(waiter)
            return due

    def leave(self, waiter: Waiter) -> None:
        """Wake a waiter with ``STOP``. Does nothing if it is not waiting."""
        with self._lock:
            try:
                self._idle.remove(waiter)
            except ValueError:
                return
        waiter.wake(STOP)

    def fire(self) -> None:
        """Give due operations to waiting connections."""
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

    def forgive(self) -> None:
        """Drop the operations that are due."""
        with self._lock:
            self._pace.forgive(self._now())

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
        """When ``fire`` should be called next; None: not before the rate or ``accepting`` changes."""
        with self._lock:
            due = self._pace.due
            return due if due is None or self._idle else now + _IDLE_TICK_NS

    @property
    def backlog(self) -> int:
        """Operations that are due and wait for a connection."""
        with self._lock:
            return 0 if self._idle else self._pace.overdue(self._now())

    def _open(self) -> None:
        """Let all waiting connections begin if operations have no due times."""
        self.free = self.accepting and self._pace.per_second is None
        while self.free and self._idle:
            self._next().wake(AT_ONCE)


class Pacer:
    """A thread that calls ``fire`` when an operation is due. Sleeping in a thread is the most exact way without spinning."""

    def __init__(self, gate: PacingGate, fire: Callable[[], object]) -> None:
        self._gate = gate
        self._fire = fire
        self._changed = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="drumbeat-pacer", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Call after the rate or ``accepting`` has changed."""
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
        """A long sleep ends early on ``wake``; a short one is exact."""
        if nanoseconds <= _LONG_NS:
            time.sleep(nanoseconds / 1e9)
        elif self._changed.wait((nanoseconds - _LONG_NS / 2) / 1e9):
            self._changed.clear()
