"""Simulations of fleets on a server, with the same size limits for API and pages. They do not delay a shutdown."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from drumbeat.composition.offline import simulate_jobs
from drumbeat.core.errors import InvalidInput

if TYPE_CHECKING:
    from drumbeat.composition.offline import Simulated

MOST_JOBS = 20_000  #: maximum number of jobs in a trace
LONGEST = 31 * 86_400.0  #: maximum length of a trace, in seconds
LONGEST_JOB = 86_400  #: maximum duration of a job, in seconds
LONGEST_LAG = 86_400  #: maximum time until a worker has started, in seconds
HIGHEST_PRICE = 1_000_000  #: maximum price of a worker per hour
MOST_BEATS = 100_000
MOST_WORKERS = 1_000
_BOUNDS = {"most_beats": MOST_BEATS, "most_workers": MOST_WORKERS}

T = TypeVar("T")
Jobs = Sequence[tuple[float, float]]  #: arrival and duration of each job, in seconds


async def simulate_on_server(jobs: Jobs, policy: str, settings: Mapping[str, Any], **provider: Any) -> "Simulated":
    """Simulate a fleet with this policy. ``provider``: fields of SimulatedProvider. Raises InvalidInput, InvalidSettings."""
    check(jobs)
    return await run_in_daemon_thread(lambda: simulate_jobs(sorted(jobs), policy, settings, **_BOUNDS, **provider))


def check(jobs: Jobs) -> None:
    """Raise InvalidInput if there are no jobs, or more or longer jobs than a server simulates."""
    if not 0 < len(jobs) <= MOST_JOBS:
        raise InvalidInput(f"jobs: expected 1 to {MOST_JOBS:,} jobs, got {len(jobs):,}; for more use: drumbeat fleet simulate")
    last, longest = max(at for at, _ in jobs), max(lasts for _, lasts in jobs)
    if last > LONGEST or longest > LONGEST_JOB:
        raise InvalidInput(
            f"jobs: expected arrivals within {LONGEST:,.0f} s and durations of at most {LONGEST_JOB:,.0f} s, "
            f"got an arrival at {last:,.0f} s and a duration of {longest:,.0f} s; for longer ones use: drumbeat fleet simulate"
        )


async def run_in_daemon_thread(work: Callable[[], T]) -> T:
    """Run ``work`` in a daemon thread, which does not keep the process from ending, and return its result."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            value = work()
        except Exception as exc:  # raised where the result is awaited
            _settle(loop, result, exc, None)
        else:
            _settle(loop, result, None, value)

    threading.Thread(target=run, name="simulation", daemon=True).start()
    return await result


def _settle(loop: asyncio.AbstractEventLoop, result: "asyncio.Future[Any]", error: Exception | None, value: object) -> None:
    """Set the result or error of a future from another thread, unless the future is done or its event loop is closed."""

    def settle() -> None:
        if result.done():
            return
        if error is None:
            result.set_result(value)
        else:
            result.set_exception(error)

    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(settle)
