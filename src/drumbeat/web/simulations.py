"""Simulations on a server: bounded alike from the API and from a page, and none keeps the server from ending."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from drumbeat.composition.offline import simulate_jobs
from drumbeat.core.errors import InvalidInput

if TYPE_CHECKING:
    from drumbeat.composition.offline import Simulated

MOST_JOBS = 20_000  #: of a trace
LONGEST = 31 * 86_400.0  #: seconds of a trace
LONGEST_JOB = 86_400  #: seconds
LONGEST_LAG = 86_400  #: seconds until a worker is there
HIGHEST_PRICE = 1_000_000  #: an hour
MOST_BEATS = 100_000
MOST_WORKERS = 1_000
_BOUNDS = {"most_beats": MOST_BEATS, "most_workers": MOST_WORKERS}

Made = TypeVar("Made")
Jobs = Sequence[tuple[float, float]]  #: each its arrival and duration, in seconds


async def simulated(jobs: Jobs, policy: str, settings: Mapping[str, Any], **around: Any) -> "Simulated":
    """Jobs under a policy; ``around``: see Surroundings. Raises InvalidInput, InvalidSettings."""
    check(jobs)
    return await apart(lambda: simulate_jobs(sorted(jobs), policy, settings, **_BOUNDS, **around))


def check(jobs: Jobs) -> None:
    """Raises InvalidInput for more than a server simulates."""
    if not 0 < len(jobs) <= MOST_JOBS:
        raise InvalidInput(f"jobs: expected 1 to {MOST_JOBS:,} jobs, got {len(jobs):,}; simulate others on the command line")
    last, longest = max(at for at, _ in jobs), max(lasts for _, lasts in jobs)
    if last > LONGEST or longest > LONGEST_JOB:
        raise InvalidInput(
            f"jobs: expected arrivals within {LONGEST:,.0f} s and durations of at most {LONGEST_JOB:,.0f} s, "
            f"got {last:,.0f} s and {longest:,.0f} s; simulate longer traces on the command line"
        )


async def apart(work: Callable[[], Made]) -> Made:
    """What ``work`` makes in a thread of its own, which ends with the process however far it has come."""
    loop = asyncio.get_running_loop()
    made: asyncio.Future[Made] = loop.create_future()

    def run() -> None:
        try:
            found = work()
        except Exception as exc:  # whoever waits is told
            _tell(loop, made, exc, None)
        else:
            _tell(loop, made, None, found)

    threading.Thread(target=run, name="simulation", daemon=True).start()
    return await made


def _tell(loop: asyncio.AbstractEventLoop, made: "asyncio.Future[Any]", error: Exception | None, found: object) -> None:
    """Nobody may wait any more, and the loop may be gone."""

    def settle() -> None:
        if made.done():
            return
        if error is None:
            made.set_result(found)
        else:
            made.set_exception(error)

    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(settle)
